// AlignedBuffer: memory on a 4 KiB boundary, as O_DIRECT wants it.
// Owner: whoever holds the value. Threads: none. Cost: one allocation; the bytes start undefined.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

namespace kv {

inline constexpr std::size_t kDiskUnitBytes = 4096;  // of O_DIRECT: offsets, lengths and memory

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // requires: bytes is a multiple of kDiskUnitBytes. Without memory the buffer is empty.
  explicit AlignedBuffer(std::size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kDiskUnitBytes, bytes))),
        bytes_(data_ == nullptr ? 0 : bytes) {}
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace kv
