// SlotOwners: who owns each slot of every tier, counted anew from the Engine's views (invariants 1,
// 2). Owner: a check. Threads: none. Cost: O(slots + blocks + entries of tables).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/block_records.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/prefix_cache.h"

namespace kv::world {

enum class OwnerKind : std::uint8_t { nobody, block, sequence, transfer, waiting };

class SlotOwners {
 public:
  struct Owner {
    OwnerKind kind = OwnerKind::nobody;
    std::uint64_t id = 0;  // block, index of the sequence, transfer
  };
  // requires: engine.cache() is not null. Slots with two owners go to `problems`.
  SlotOwners(const core::Engine& engine, std::vector<std::string>& problems);

  [[nodiscard]] const Owner& owner(Tier tier, GroupId group, SlotId slot) const {
    return owners_[tier_index(tier)][group.value][slot.value];
  }

 private:
  void claim(Tier tier, GroupId group, SlotId slot, Owner owner,
             std::vector<std::string>& problems);
  void claim_blocks(const core::PrefixCache& cache, std::vector<std::string>& problems);
  void claim_sequences(const core::Engine& engine, std::vector<std::string>& problems);
  void claim_transfers(const core::Engine& engine, std::vector<std::string>& problems);

  std::vector<std::vector<Owner>> owners_[BlockRecords::kSlotTiers];
};

// "host slot 3", with the group when there are several.
[[nodiscard]] std::string slot_name(Tier tier, GroupId group, SlotId slot);

}  // namespace kv::world
