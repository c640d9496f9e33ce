#include "tiering/policies/s3fifo.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace kv {
namespace {

constexpr std::uint32_t kSmallShare = 10;  // one in so many slots
constexpr std::uint8_t kUsesMax = 3;
constexpr std::uint8_t kUsesToMoveOn = 2;

std::uint32_t small_slots(std::uint32_t slot_count) {
  return std::max(1U, slot_count / kSmallShare);
}

}  // namespace

S3FifoPolicy::S3FifoPolicy(std::uint32_t block_capacity, std::uint32_t slot_count)
    : small_target_(small_slots(slot_count)),
      records_(block_capacity),
      small_(block_capacity),
      main_(block_capacity),
      ghosts_(slot_count - std::min(slot_count, small_slots(slot_count))) {}

void S3FifoPolicy::insert(BlockId block, const BlockUse& use) {
  KV_CHECK(!contains(block));
  latest_use_ = std::max(latest_use_, use.last_use);
  const Place place = ghosts_.take(use.identity) ? Place::main : Place::small;
  records_[block.value] = Record{use.identity, latest_use_, use.depth, place, 0};
  if (place == Place::small) ++small_count_;
}

void S3FifoPolicy::touch(BlockId block, std::uint64_t last_use, bool counted) {
  KV_CHECK(contains(block));
  latest_use_ = std::max(latest_use_, last_use);
  if (!counted) return;
  Record& record = records_[block.value];
  record.uses = std::min<std::uint8_t>(static_cast<std::uint8_t>(record.uses + 1), kUsesMax);
  make_due_moves();
}

void S3FifoPolicy::set_evictable(BlockId block, std::optional<EvictionTurn> turn) {
  KV_CHECK(contains(block));
  const Record& record = records_[block.value];
  LruPolicy& order = queue(record);
  if (order.contains(block)) order.remove(block);
  if (turn) order.insert(block, record.entered, record.depth, *turn);
  make_due_moves();
}

void S3FifoPolicy::remove(BlockId block, bool evicted) {
  KV_CHECK(contains(block));
  Record& record = records_[block.value];
  LruPolicy& order = queue(record);
  if (order.contains(block)) order.remove(block);
  if (record.place == Place::small) {
    --small_count_;
    if (evicted) ghosts_.push(record.identity);
  }
  record = Record{};
  make_due_moves();
}

// requires: the block may go, and is at the end of its queue.
void S3FifoPolicy::enter_main(BlockId block) {
  Record& record = records_[block.value];
  LruPolicy& order = queue(record);
  const EvictionTurn turn = order.turn(block);
  order.remove(block);
  if (record.place == Place::small) --small_count_;
  record.place = Place::main;
  record.entered = latest_use_;
  main_.insert(block, record.entered, record.depth, turn);
}

void S3FifoPolicy::make_due_moves() {
  for (BlockId block = small_.victim();
       !block.is_none() && records_[block.value].uses >= kUsesToMoveOn; block = small_.victim()) {
    records_[block.value].uses = 0;
    enter_main(block);
  }
  for (BlockId block = main_.victim(); !block.is_none() && records_[block.value].uses > 0;
       block = main_.victim()) {
    --records_[block.value].uses;
    enter_main(block);
  }
}

std::optional<EvictionTurn> S3FifoPolicy::evictable(BlockId block) const {
  for (const LruPolicy* order : {&small_, &main_}) {
    if (order->contains(block)) return order->turn(block);
  }
  return std::nullopt;
}

BlockId S3FifoPolicy::victim() const {
  const bool from_small = small_count_ >= small_target_;
  const LruPolicy& wanted = from_small ? small_ : main_;
  const LruPolicy& other = from_small ? main_ : small_;
  const BlockId first = wanted.victim();
  const BlockId second = other.victim();
  if (first.is_none() || second.is_none()) return first.is_none() ? second : first;
  // The turn comes before the queue.
  return other.turn(second) < wanted.turn(first) ? second : first;
}

std::uint64_t S3FifoPolicy::bytes() const {
  return records_.capacity() * sizeof(Record) + small_.bytes() + main_.bytes() + ghosts_.bytes();
}

}  // namespace kv
