#include "allocator/block_pool.h"

namespace kv {

BlockPool::BlockPool(std::uint32_t slot_count)
    : states_(slot_count, SlotState::free),
      generations_(slot_count, 0),
      free_(slot_count),
      free_position_(slot_count) {
  // The lowest slot is on top.
  for (std::uint32_t i = 0; i < slot_count; ++i) {
    const std::uint32_t slot = slot_count - 1 - i;
    free_[i] = slot;
    free_position_[slot] = i;
  }
  counts_[static_cast<std::size_t>(SlotState::free)] = slot_count;
}

Result<SlotId> BlockPool::take() {
  if (free_.empty()) return Error{ErrorCode::exhausted, "no free slot", {}};
  const SlotId slot(free_.back());
  free_.pop_back();
  ++generations_[slot.value];
  change(slot, SlotState::held);
  return slot;
}

Result<void> BlockPool::take_exactly(SlotId slot, std::uint32_t generation) {
  if (slot.value >= slot_count()) return Error{ErrorCode::not_found, "no such slot", "slot"};
  if (state(slot) != SlotState::free) return Error{ErrorCode::exists, "slot is in use", "slot"};
  const std::uint32_t position = free_position_[slot.value];
  const std::uint32_t last = free_.back();
  free_[position] = last;
  free_position_[last] = position;
  free_.pop_back();
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
  free_position_[slot.value] = static_cast<std::uint32_t>(free_.size());
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

}  // namespace kv
