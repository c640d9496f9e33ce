#include "allocator/flat_map.h"

#include <utility>

namespace kv {

// One entry is always empty, so every search ends.
FlatMap::FlatMap(std::uint32_t capacity) : capacity_(capacity) {
  const std::uint64_t entries = std::uint64_t{capacity} * 4 / 3 + 2;
  KV_CHECK(entries < kNone);
  entry_count_ = static_cast<std::uint32_t>(entries);
  entries_.resize(entry_count_);
}

void FlatMap::insert(std::uint64_t hash, std::uint32_t value) {
  KV_CHECK(size_ < capacity_ && value != kNone);
  Entry carried{tag_of(hash), value};
  std::uint32_t i = home_of(carried.tag);
  for (std::uint32_t distance = 0;; ++distance) {
    Entry& entry = entries_[i];
    if (entry.value == kNone) {
      entry = carried;
      ++size_;
      return;
    }
    if (const std::uint32_t other = distance_of(entry, i); other < distance) {
      std::swap(entry, carried);
      distance = other;
    }
    i = next(i);
  }
}

std::uint32_t FlatMap::position_of(std::uint64_t hash, std::uint32_t value) const {
  std::uint32_t i = home_of(tag_of(hash));
  while (entries_[i].value != value) {
    KV_CHECK(entries_[i].value != kNone);
    i = next(i);
  }
  return i;
}

void FlatMap::replace(std::uint64_t hash, std::uint32_t old_value, std::uint32_t new_value) {
  KV_CHECK(new_value != kNone);
  entries_[position_of(hash, old_value)].value = new_value;
}

// What follows moves up by one, until an entry that is at home.
void FlatMap::erase(std::uint64_t hash, std::uint32_t value) {
  std::uint32_t hole = position_of(hash, value);
  for (std::uint32_t i = next(hole);; i = next(i)) {
    const Entry entry = entries_[i];
    if (entry.value == kNone || home_of(entry.tag) == i) break;
    entries_[hole] = entry;
    hole = i;
  }
  entries_[hole] = Entry{};
  --size_;
}

}  // namespace kv
