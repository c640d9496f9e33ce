// The bytes of a file, decompressed as they are read: gzip, xz or zstd by its first bytes, else as
// they are. Owner: whoever reads a trace. Threads: none. Memory: a fixed buffer, and the window of
// the compression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "allocator/base/result.h"

namespace kv::cachesim {

class ByteSource {
 public:
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  ByteSource(ByteSource&&) = delete;
  ByteSource& operator=(ByteSource&&) = delete;
  virtual ~ByteSource() = default;

  // Fills the front of `into`; 0 at the end. fails: unavailable (the file cannot be read), corrupt
  // (damaged or cut off).
  [[nodiscard]] virtual Result<std::size_t> read(std::span<char> into) = 0;
  // Of the file, compressed: how far reading has come.
  [[nodiscard]] virtual std::uint64_t file_position() const = 0;
};

struct OpenedFile {
  std::unique_ptr<ByteSource> bytes;
  std::uint64_t file_bytes = 0;
};

// fails: not_found, unavailable.
[[nodiscard]] Result<OpenedFile> open_file(const std::string& path);

}  // namespace kv::cachesim
