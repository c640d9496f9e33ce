#include "tiering/policies/ghost_list.h"

#include "allocator/base/check.h"

namespace kv {

GhostList::GhostList(std::uint32_t capacity) : entries_(capacity), index_(capacity) {
  for (std::uint32_t i = capacity; i-- > 0;) {
    entries_[i].newer = free_;
    free_ = i;
  }
}

std::uint32_t GhostList::find(std::uint64_t identity) const {
  return index_.find(identity, [&](std::uint32_t at) { return entries_[at].identity == identity; });
}

void GhostList::push(std::uint64_t identity) {
  if (entries_.empty()) return;
  take(identity);
  if (free_ == kNone) drop_oldest();
  const std::uint32_t at = free_;
  free_ = entries_[at].newer;
  entries_[at] = Entry{identity, newest_, kNone};
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = at;
  newest_ = at;
  index_.insert(identity, at);
  ++size_;
}

bool GhostList::take(std::uint64_t identity) {
  const std::uint32_t at = find(identity);
  if (at == FlatMap::kNone) return false;
  erase(at);
  return true;
}

void GhostList::drop_oldest() {
  KV_CHECK(size_ > 0);
  erase(oldest_);
}

void GhostList::erase(std::uint32_t at) {
  const Entry entry = entries_[at];
  index_.erase(entry.identity, at);
  (entry.older == kNone ? oldest_ : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNone ? newest_ : entries_[entry.newer].older) = entry.older;
  entries_[at] = Entry{0, kNone, free_};
  free_ = at;
  --size_;
}

std::uint64_t GhostList::bytes() const {
  return entries_.capacity() * sizeof(Entry) + index_.bytes();
}

}  // namespace kv
