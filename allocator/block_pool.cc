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

Result<void> BlockPool::take_exactly(SlotId slot, std::uint32_t generation) {
  if (slot.value >= slot_count()) return Error{ErrorCode::not_found, "no such slot", "slot"};
  if (state(slot) != SlotState::free) return Error{ErrorCode::exists, "slot is in use", "slot"};
  generations_[slot.value] = generation;
  change(slot, SlotState::held);
  return {};
}

void BlockPool::set_held(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::cached);
  change(slot, SlotState::held);
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

std::uint64_t BlockPool::bytes() const {
  return states_.capacity() * sizeof(states_[0]) +
         generations_.capacity() * sizeof(generations_[0]) + free_.capacity() * sizeof(free_[0]) +
         listed_.capacity() / 8;
}

}  // namespace kv
