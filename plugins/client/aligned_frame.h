// AlignedFrame: a frame at an address that FlatBuffers may read in place: the frame itself where it
// is aligned, else a copy. ZeroMQ's receive buffers start at any address. Owner: the caller;
// outlives what was read from it. Threads: none. Cost: O(bytes) when misaligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace kv::client {

class AlignedFrame {
 public:
  explicit AlignedFrame(std::span<const std::byte> frame)
      : data_(reinterpret_cast<const std::uint8_t*>(frame.data())), bytes_(frame.size()) {
    if (reinterpret_cast<std::uintptr_t>(data_) % alignof(std::uint64_t) == 0) return;
    copy_.resize((bytes_ + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    std::memcpy(copy_.data(), data_, bytes_);
    data_ = reinterpret_cast<const std::uint8_t*>(copy_.data());
  }
  AlignedFrame(const AlignedFrame&) = delete;
  AlignedFrame& operator=(const AlignedFrame&) = delete;
  AlignedFrame(AlignedFrame&&) = delete;
  AlignedFrame& operator=(AlignedFrame&&) = delete;
  ~AlignedFrame() = default;

  [[nodiscard]] const std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  std::vector<std::uint64_t> copy_;
  const std::uint8_t* data_;
  std::size_t bytes_;
};

}  // namespace kv::client
