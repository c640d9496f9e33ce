// The files of a tar archive (ustar), one after the other. Owner: a trace reader. Threads: none.
// Memory: the largest file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "allocator/base/result.h"
#include "tools/cachesim/byte_source.h"

namespace kv::cachesim {

class TarReader {
 public:
  static constexpr std::uint64_t kFileBytesMax = 256U << 20U;

  explicit TarReader(ByteSource& source) : source_(source) {}
  // The next plain file; false at the end. fails: corrupt, too_large.
  [[nodiscard]] Result<bool> next(std::string& name, std::string& content);

 private:
  // All of `into`, or nothing at the end of the archive (then false). fails: corrupt (cut off).
  [[nodiscard]] Result<bool> read_all(char* into, std::size_t bytes);

  ByteSource& source_;
};

}  // namespace kv::cachesim
