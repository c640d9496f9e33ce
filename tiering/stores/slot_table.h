// SlotTable: which block each disk slot of one layer group holds, in memory. It answers whether an
// expected block is still the one in the slot, and grows with the highest slot in use.
// Owner: the disk store. Threads: one caller. Cost: 44 bytes a slot, O(1) a call.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"

namespace kv {

class SlotTable {
 public:
  enum class Origin : std::uint8_t { none, earlier_run, this_run };
  struct Occupant {
    Digest key;
    std::uint32_t depth = 0;
    std::uint32_t generation = 0;
    Origin origin = Origin::none;  // none: the slot is free

    [[nodiscard]] bool is(const Digest& other, std::uint32_t other_depth,
                          std::uint32_t other_generation) const {
      return origin != Origin::none && generation == other_generation && depth == other_depth &&
             key == other;
    }
  };

  [[nodiscard]] const Occupant& at(SlotId slot) const {
    return slot.value < slots_.size() ? slots_[slot.value] : free_;
  }
  void set(SlotId slot, const Occupant& occupant) {
    if (slot.value >= slots_.size()) slots_.resize(std::size_t{slot.value} + 1);
    slots_[slot.value] = occupant;
  }
  void clear(SlotId slot) {
    if (slot.value < slots_.size()) slots_[slot.value] = {};
  }

 private:
  std::vector<Occupant> slots_;
  Occupant free_;
};

}  // namespace kv
