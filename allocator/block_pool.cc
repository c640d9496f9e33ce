#include "allocator/block_pool.h"

namespace kv {

BlockPool::BlockPool(std::uint32_t slot_count)
    : states_(slot_count, SlotState::free),
      generations_(slot_count, 0),
      free_(slot_count),
      listed_(slot_count, true) {
  // The lowest slot is on top.
  for (std::uint32_t i = 0; i < slot_count; ++i) free_[i] = slot_count - 1 - i;
  counts_[static_cast<std::size_t>(SlotState::free)] = slot_count;
}

Result<SlotId> BlockPool::take() {
  while (!free_.empty()) {
    const SlotId slot(free_.back());
    free_.pop_back();
    listed_[slot.value] = false;
    if (state(slot) != SlotState::free) continue;
    ++generations_[slot.value];
    change(slot, SlotState::held);
    return slot;
  }
  return Error{ErrorCode::exhausted, "no free slot", {}};
}

Result<void> BlockPool::take_exactly(SlotId slot, std::uint32_t generation) {
  if (slot.value >= slot_count()) return Error{ErrorCode::not_found, "no such slot", "slot"};
  if (state(slot) != SlotState::free) return Error{ErrorCode::exists, "slot is in use", "slot"};
  generations_[slot.value] = generation;
  change(slot, SlotState::held);
  return {};
}

void BlockPool::set_cached(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::held);
  change(slot, SlotState::cached);
}

void BlockPool::set_held(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::cached);
  change(slot, SlotState::held);
}

void BlockPool::release(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::held || state(slot) == SlotState::cached);
  change(slot, SlotState::free);
  if (listed_[slot.value]) return;
  listed_[slot.value] = true;
  free_.push_back(slot.value);
}

void BlockPool::fence(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::held);
  change(slot, SlotState::fenced);
}

void BlockPool::unfence(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::fenced);
  change(slot, SlotState::held);
  release(slot);
}

void BlockPool::change(SlotId slot, SlotState to) {
  SlotState& current = states_[slot.value];
  --counts_[static_cast<std::size_t>(current)];
  ++counts_[static_cast<std::size_t>(to)];
  current = to;
}

std::uint64_t BlockPool::bytes() const {
  return states_.size() * (sizeof(SlotState) + 2 * sizeof(std::uint32_t)) + listed_.size() / 8;
}

}  // namespace kv
