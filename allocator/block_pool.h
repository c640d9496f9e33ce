// BlockPool: the slots of one tier and layer group. Counts, states and generations; never bytes.
// A slot is free -> held (by a sequence or a transfer) -> cached -> free, or fenced: a writer that
// may still be alive can reach it, so it is out of use until unfence. Owner: the engine's prefix
// cache. Threads: none. Cost: O(1) a slot.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/base/ids.h"
#include "allocator/base/result.h"

namespace kv {

enum class SlotState : std::uint8_t { free, held, cached, fenced };

class BlockPool {
 public:
  explicit BlockPool(std::uint32_t slot_count);

  // A free slot becomes held, its generation rises by 1. fails: exhausted. Order: last freed first;
  // one that take_exactly had claimed keeps its old place.
  [[nodiscard]] Result<SlotId> take();
  // Claims one given slot (recovery of a disk index). fails: exists, when it is not free;
  // not_found.
  [[nodiscard]] Result<void> take_exactly(SlotId slot, std::uint32_t generation);

  void set_cached(SlotId slot);  // requires: held
  void set_held(SlotId slot);    // requires: cached (a copy becomes private again)
  void release(SlotId slot);     // requires: held or cached; becomes free
  void fence(SlotId slot);       // requires: held; becomes fenced
  void unfence(SlotId slot);     // requires: fenced; becomes free

  [[nodiscard]] SlotState state(SlotId slot) const { return states_[slot.value]; }
  [[nodiscard]] std::uint32_t generation(SlotId slot) const { return generations_[slot.value]; }
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint32_t slot_count() const {
    return static_cast<std::uint32_t>(states_.size());
  }
  [[nodiscard]] std::uint32_t count(SlotState state) const {
    return counts_[static_cast<std::size_t>(state)];
  }

 private:
  void change(SlotId slot, SlotState to);

  std::vector<SlotState> states_;
  std::vector<std::uint32_t> generations_;
  // A stack. A slot claimed by take_exactly leaves its entry behind: take skips it while the slot
  // is in use, and release makes it good again instead of a second one.
  std::vector<std::uint32_t> free_;
  std::vector<bool> listed_;  // has an entry in free_
  std::uint32_t counts_[4] = {0, 0, 0, 0};
};

inline void BlockPool::change(SlotId slot, SlotState to) {
  SlotState& current = states_[slot.value];
  --counts_[static_cast<std::size_t>(current)];
  ++counts_[static_cast<std::size_t>(to)];
  current = to;
}

inline Result<SlotId> BlockPool::take() {
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

inline void BlockPool::set_cached(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::held);
  change(slot, SlotState::cached);
}

inline void BlockPool::release(SlotId slot) {
  KV_CHECK(state(slot) == SlotState::held || state(slot) == SlotState::cached);
  change(slot, SlotState::free);
  if (listed_[slot.value]) return;
  listed_[slot.value] = true;
  free_.push_back(slot.value);
}

}  // namespace kv
