#include "tiering/policies/arc.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace kv {

ArcPolicy::ArcPolicy(std::uint32_t block_capacity, std::uint32_t slot_count)
    : slot_count_(slot_count),
      records_(block_capacity),
      recent_(block_capacity),
      frequent_(block_capacity),
      recent_ghosts_(slot_count),
      frequent_ghosts_(slot_count) {}

void ArcPolicy::insert(BlockId block, const BlockUse& use) {
  KV_CHECK(!contains(block));
  Record& record = records_[block.value];
  record.use = use;
  record.place = Place::frequent;
  const std::uint32_t recent = std::max(1U, recent_ghosts_.size());
  const std::uint32_t frequent = std::max(1U, frequent_ghosts_.size());
  if (recent_ghosts_.take(use.identity)) {
    const std::uint32_t step = std::max(1U, frequent_ghosts_.size() / recent);
    recent_target_ = std::min(slot_count_, recent_target_ + step);
  } else if (frequent_ghosts_.take(use.identity)) {
    const std::uint32_t step = std::max(1U, recent_ghosts_.size() / frequent);
    recent_target_ -= std::min(recent_target_, step);
  } else {
    record.place = Place::recent;
  }
  ++(record.place == Place::recent ? recent_count_ : frequent_count_);
  trim_ghosts();
}

// At most as many recent blocks and ghosts as there are slots, and twice as many of all.
void ArcPolicy::trim_ghosts() {
  while (recent_ghosts_.size() > 0 && recent_count_ + recent_ghosts_.size() > slot_count_) {
    recent_ghosts_.drop_oldest();
  }
  while (frequent_ghosts_.size() > 0 &&
         recent_count_ + frequent_count_ + recent_ghosts_.size() + frequent_ghosts_.size() >
             2 * std::uint64_t{slot_count_}) {
    frequent_ghosts_.drop_oldest();
  }
}

void ArcPolicy::touch(BlockId block, std::uint64_t last_use, bool counted) {
  KV_CHECK(contains(block));
  Record& record = records_[block.value];
  record.use.last_use = last_use;
  const auto turn = evictable(block);
  if (turn) list(record).remove(block);
  if (counted && record.place == Place::recent) {
    record.place = Place::frequent;
    --recent_count_;
    ++frequent_count_;
  }
  if (turn) list(record).insert(block, last_use, record.use.depth, *turn);
}

void ArcPolicy::set_evictable(BlockId block, std::optional<EvictionTurn> turn) {
  KV_CHECK(contains(block));
  const Record& record = records_[block.value];
  LruPolicy& order = list(record);
  if (order.contains(block)) order.remove(block);
  if (turn) order.insert(block, record.use.last_use, record.use.depth, *turn);
}

void ArcPolicy::remove(BlockId block, bool evicted) {
  KV_CHECK(contains(block));
  set_evictable(block, std::nullopt);
  Record& record = records_[block.value];
  const bool recent = record.place == Place::recent;
  --(recent ? recent_count_ : frequent_count_);
  if (evicted) (recent ? recent_ghosts_ : frequent_ghosts_).push(record.use.identity);
  record = Record{};
  trim_ghosts();
}

std::optional<EvictionTurn> ArcPolicy::evictable(BlockId block) const {
  for (const LruPolicy* order : {&recent_, &frequent_}) {
    if (order->contains(block)) return order->turn(block);
  }
  return std::nullopt;
}

BlockId ArcPolicy::victim() const {
  const bool from_recent = recent_count_ > recent_target_;
  const LruPolicy& wanted = from_recent ? recent_ : frequent_;
  const LruPolicy& other = from_recent ? frequent_ : recent_;
  const BlockId first = wanted.victim();
  const BlockId second = other.victim();
  if (first.is_none() || second.is_none()) return first.is_none() ? second : first;
  // The turn comes before the list.
  return other.turn(second) < wanted.turn(first) ? second : first;
}

std::uint64_t ArcPolicy::bytes() const {
  return records_.capacity() * sizeof(Record) + recent_.bytes() + frequent_.bytes() +
         recent_ghosts_.bytes() + frequent_ghosts_.bytes();
}

}  // namespace kv
