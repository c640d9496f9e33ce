// FlatMap: a fixed-capacity open-addressing table from a 64-bit hash to a 32-bit index, sized at
// start. The table stores no key: the caller's equality decides, so the key lives once, in the
// caller's arrays. No rehash, no tombstones (backward-shift deletion), no pointer order, no
// iteration.
// Owner: one data structure. Threads: none. Cost: O(1) expected; at most 3/4 full, 10.7 bytes an
// entry.
#pragma once

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
    std::uint32_t i = home_of(tag);
    for (std::uint32_t distance = 0;; ++distance) {
      const Entry& entry = entries_[i];
      if (entry.value == kNone || distance_of(entry, i) < distance) return kNone;
      if (entry.tag == tag && equal(entry.value)) return entry.value;
      i = next(i);
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
  // The tag is the upper half of the hash, and gives the home alone, so that every entry's home is
  // known to erase. Entries of a stretch stand in the order of their homes (Robin Hood hashing):
  // a search for what is not there ends at the first entry that is nearer to its home.
  struct Entry {
    std::uint32_t tag = 0;
    std::uint32_t value = kNone;
  };
  [[nodiscard]] static std::uint32_t tag_of(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash >> 32U);
  }
  [[nodiscard]] std::uint32_t home_of(std::uint32_t tag) const {
    return static_cast<std::uint32_t>((std::uint64_t{tag} * entry_count_) >> 32U);
  }
  [[nodiscard]] std::uint32_t next(std::uint32_t i) const {
    return i + 1 == entry_count_ ? 0 : i + 1;
  }
  [[nodiscard]] std::uint32_t distance_of(const Entry& entry, std::uint32_t i) const {
    const std::uint32_t home = home_of(entry.tag);
    return i >= home ? i - home : i + entry_count_ - home;
  }
  [[nodiscard]] std::uint32_t position_of(std::uint64_t hash, std::uint32_t value) const;

  std::vector<Entry> entries_;
  std::uint32_t entry_count_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace kv
