#include "tiering/policies/gdsf.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace kv {
namespace {

// Uses and costs are clipped, so that one block's part of H stays below 2^61.
constexpr std::uint32_t kUsesMax = (1U << 20U) - 1;
constexpr std::uint64_t kCostMax = (std::uint64_t{1} << 41U) - 1;
// L beyond this: all of H is moved down by it.
constexpr std::uint64_t kAgeMax = std::uint64_t{1} << 61U;

}  // namespace

GdsfPolicy::GdsfPolicy(std::uint32_t block_capacity, RecomputeCost cost)
    : cost_(cost), records_(block_capacity), heap_(block_capacity) {}

void GdsfPolicy::set_priority(Record& record) {
  const std::uint64_t cost =
      std::min(cost_.block + std::uint64_t{cost_.depth} * record.depth, kCostMax);
  record.priority = age_ + record.uses * cost;
}

void GdsfPolicy::insert(BlockId block, const BlockUse& use) {
  KV_CHECK(!contains(block));
  Record& record = records_[block.value];
  record.uses = 1;
  record.last_use = use.last_use;
  record.depth = use.depth;
  set_priority(record);
}

void GdsfPolicy::touch(BlockId block, std::uint64_t last_use, bool counted) {
  KV_CHECK(contains(block));
  Record& record = records_[block.value];
  record.last_use = last_use;
  if (counted) {
    record.uses = std::min(record.uses + 1, kUsesMax);
    set_priority(record);
  }
  if (const auto turn = evictable(block)) {
    heap_.remove(block);
    push(block, *turn);
  }
}

void GdsfPolicy::set_evictable(BlockId block, std::optional<EvictionTurn> turn) {
  KV_CHECK(contains(block));
  if (heap_.contains(block)) heap_.remove(block);
  if (turn) push(block, *turn);
}

void GdsfPolicy::push(BlockId block, EvictionTurn turn) {
  const Record& record = records_[block.value];
  heap_.push(block, turn, record.priority, record.last_use, record.depth);
}

void GdsfPolicy::remove(BlockId block, bool evicted) {
  KV_CHECK(contains(block));
  if (heap_.contains(block)) heap_.remove(block);
  if (evicted) age_ = std::max(age_, records_[block.value].priority);
  records_[block.value] = Record{};
  if (age_ > kAgeMax) start_over();
}

void GdsfPolicy::start_over() {
  for (Record& record : records_) record.priority -= std::min(record.priority, kAgeMax);
  heap_.subtract(kAgeMax);
  age_ -= kAgeMax;
}

std::optional<EvictionTurn> GdsfPolicy::evictable(BlockId block) const {
  if (!heap_.contains(block)) return std::nullopt;
  return heap_.turn(block);
}

std::uint64_t GdsfPolicy::bytes() const {
  return records_.capacity() * sizeof(Record) + heap_.bytes();
}

}  // namespace kv
