// FlatMap: a fixed-capacity open-addressing table from a 64-bit hash to a 32-bit index, sized at start.
// The table stores no key: the caller's equality decides, so the key lives once, in the caller's arrays.
// No rehash, no tombstones (backward-shift deletion), no pointer order, no iteration.
// Owner: one data structure. Threads: none. Cost: O(1) expected; 8 bytes an entry at most 7/8 full.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "allocator/base/check.h"

namespace kv {

class FlatMap {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

  // Holds up to `capacity` entries.
  explicit FlatMap(std::uint32_t capacity);

  // The value for which equal(value) holds among entries of this hash, else kNone.
  template <class Equal>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Equal&& equal) const {
    const auto tag = tag_of(hash);
    for (std::uint32_t i = home_of(hash);; i = (i + 1) & mask_) {
      const Entry& entry = entries_[i];
      if (entry.value == kNone) return kNone;
      if (entry.tag == tag && equal(entry.value)) return entry.value;
    }
  }
  // requires: size() < capacity; value != kNone; no equal entry exists.
  void insert(std::uint64_t hash, std::uint32_t value);
  // Replaces the entry (hash, old_value). requires: it exists.
  void replace(std::uint64_t hash, std::uint32_t old_value, std::uint32_t new_value);
  // requires: the entry (hash, value) exists.
  void erase(std::uint64_t hash, std::uint32_t value);

  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint64_t bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  // The tag is the upper half of the hash; the home is the lower part of a mix of both halves that
  // can be computed from the tag alone, so that erase can find every entry's home.
  struct Entry {
    std::uint32_t tag = 0;
    std::uint32_t value = kNone;
  };
  [[nodiscard]] static std::uint32_t tag_of(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash >> 32U);
  }
  [[nodiscard]] std::uint32_t home_of_tag(std::uint32_t tag) const {
    return static_cast<std::uint32_t>((tag * 0x9E3779B97F4A7C15ULL) >> 32U) & mask_;
  }
  [[nodiscard]] std::uint32_t home_of(std::uint64_t hash) const { return home_of_tag(tag_of(hash)); }
  [[nodiscard]] std::uint32_t position_of(std::uint64_t hash, std::uint32_t value) const;

  std::vector<Entry> entries_;
  std::uint32_t mask_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace kv
