#include "cachesvc/core/miss_history.h"

#include <algorithm>
#include <cstring>

namespace kv::core {

MissHistory::MissHistory(std::uint32_t capacity, TimePoint now)
    : entries_(capacity),
      is_live_(capacity, 0),
      index_(std::max(capacity, 1U)),
      lost_{Filter(capacity), Filter(capacity)},
      known_since_(now) {
  static_assert(sizeof(Entry) <= 32);  // + 1 + 10.7 of the index + 16 of the filters
}

MissHistory::Name MissHistory::name_of(const Digest& key) {
  Name name{};
  std::memcpy(name.data(), key.bytes.data(), sizeof name);
  return name;
}

std::uint32_t MissHistory::find_index(const Name& name) const {
  return index_.find(name[0], [&](std::uint32_t place) { return entries_[place].name == name; });
}

const MissHistory::Fact* MissHistory::find(const Digest& key) const {
  const std::uint32_t place = find_index(name_of(key));
  return place == FlatMap::kNone ? nullptr : &entries_[place].fact;
}

void MissHistory::record(const Digest& key, const Fact& fact) {
  if (entries_.empty()) return;
  const Name name = name_of(key);
  if (const std::uint32_t older = find_index(name); older != FlatMap::kNone) {
    index_.erase(name[0], older);
    is_live_[older] = 0;
  }
  Entry& place = entries_[next_];
  if (is_live_[next_] != 0) {
    known_since_ = std::max(known_since_, place.fact.when);
    index_.erase(place.name[0], next_);
    forget(place.name);
  }
  place = {name, fact};
  is_live_[next_] = 1;
  index_.insert(name[0], next_);
  next_ = next_ + 1 == entries_.size() ? 0 : next_ + 1;
}

// A key's words are a hash already. Steps of an odd second word meet each bit at most once.
template <class Visit>
void MissHistory::for_each_bit(const Name& name, Visit&& visit) const {
  const std::uint64_t bits = std::uint64_t{64} * entries_.size();
  for (std::uint32_t i = 0; i < kProbes; ++i) visit((name[0] + i * (name[1] | 1U)) % bits);
}

void MissHistory::forget(const Name& name) {
  if (lost_count_ == std::uint64_t{kKeysPerEntry} * entries_.size()) {
    lost_[0].swap(lost_[1]);
    std::fill(lost_[0].begin(), lost_[0].end(), 0);
    lost_count_ = 0;
  }
  ++lost_count_;
  for_each_bit(name,
               [this](std::uint64_t bit) { lost_[0][bit / 64] |= std::uint64_t{1} << (bit % 64); });
}

bool MissHistory::is_lost(const Digest& key) const {
  if (entries_.empty()) return false;
  const Name name = name_of(key);
  if (find_index(name) != FlatMap::kNone) return false;
  return std::any_of(lost_.begin(), lost_.end(), [&](const Filter& filter) {
    bool all = true;
    for_each_bit(name,
                 [&](std::uint64_t bit) { all &= (filter[bit / 64] >> (bit % 64) & 1U) != 0; });
    return all;
  });
}

std::uint64_t MissHistory::bytes() const {
  return entries_.size() * (sizeof(Entry) + 1) + index_.bytes() +
         2 * lost_[0].size() * sizeof(std::uint64_t);
}

}  // namespace kv::core
