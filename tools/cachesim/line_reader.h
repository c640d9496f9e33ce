// Lines of a byte source. Owner: a trace reader. Threads: none. Memory: the longest line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.h"
#include "tools/cachesim/byte_source.h"

namespace kv::cachesim {

class LineReader {
 public:
  static constexpr std::size_t kLineBytesMax = 64U << 20U;

  explicit LineReader(ByteSource& source) : source_(source), buffer_(std::size_t{64} * 1024) {}
  // The next line, without its end; false after the last. Valid until the next call.
  // fails: as ByteSource::read; too_large.
  [[nodiscard]] Result<bool> next(std::string_view& line);
  [[nodiscard]] std::uint64_t number() const { return number_; }  // of the last line, from 1

 private:
  ByteSource& source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t number_ = 0;
  std::string line_;
};

}  // namespace kv::cachesim
