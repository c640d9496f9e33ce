// ByteWriter and ByteReader: fixed binary records, little endian but where a name says otherwise.
// A reader never goes past its end: what is missing reads as zero and ok() turns false.
// Owner: the caller. Threads: none. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "allocator/base/token.h"

namespace kv {

class ByteWriter {
 public:
  void u8(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void u32(std::uint32_t value) {
    for (unsigned shift = 0; shift < 32; shift += 8) u8(static_cast<std::uint8_t>(value >> shift));
  }
  void u64(std::uint64_t value) {
    u32(static_cast<std::uint32_t>(value));
    u32(static_cast<std::uint32_t>(value >> 32U));
  }
  void u32_big_endian(std::uint32_t value) {
    for (unsigned shift = 32; shift > 0; shift -= 8) {
      u8(static_cast<std::uint8_t>(value >> (shift - 8)));
    }
  }
  void digest(const Digest& digest) {
    bytes_.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  }
  void text(std::string_view text) { bytes_.append(text); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t left() const { return bytes_.size(); }
  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }
  std::uint8_t u8() {
    const std::string_view part = take(1);
    return part.empty() ? std::uint8_t{0} : static_cast<std::uint8_t>(part.front());
  }
  std::uint32_t u32() {
    const std::string_view part = take(4);
    std::uint32_t value = 0;
    if (part.empty()) return value;
    for (unsigned i = 0; i < 4; ++i) {
      value |= std::uint32_t{static_cast<std::uint8_t>(part[i])} << (8 * i);
    }
    return value;
  }
  std::uint64_t u64() {
    const std::uint64_t low = u32();
    return low | std::uint64_t{u32()} << 32U;
  }
  std::uint32_t u32_big_endian() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8U | u8();
    return value;
  }
  Digest digest() {
    Digest digest;
    const std::string_view part = take(digest.bytes.size());
    if (!part.empty()) std::memcpy(digest.bytes.data(), part.data(), part.size());
    return digest;
  }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace kv
