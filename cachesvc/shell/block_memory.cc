#include "cachesvc/shell/block_memory.h"

#include <utility>

#include "allocator/base/check.h"

namespace kv::shell {

Result<BlockMemory> BlockMemory::make(std::uint64_t device_bytes, std::uint64_t host_bytes) {
  BlockMemory memory;
  const std::array<std::uint64_t, kMemoryTiers> bytes = {device_bytes, host_bytes};
  constexpr std::array<const char*, kMemoryTiers> kNames = {"cachesvc-device", "cachesvc-host"};
  for (std::size_t tier = 0; tier < kMemoryTiers; ++tier) {
    if (bytes[tier] == 0) continue;
    // Runners write to the device tier; the host tier they only read.
    KV_TRY(HostArena arena, HostArena::make({.bytes = bytes[tier],
                                             .name = kNames[tier],
                                             .sole_writer = tier == tier_index(Tier::host)}));
    memory.arenas_[tier] = std::make_unique<HostArena>(std::move(arena));
  }
  return memory;
}

void BlockMemory::define(const KvLayout& layout, std::uint32_t device_slots,
                         std::uint32_t host_slots) {
  const std::array<std::uint32_t, kMemoryTiers> slots = {device_slots, host_slots};
  for (std::size_t tier = 0; tier < kMemoryTiers; ++tier) {
    std::uint64_t offset = 0;
    groups_[tier].clear();
    for (std::uint32_t group = 0; group < layout.groups.size(); ++group) {
      const std::uint64_t bytes = block_bytes(layout, GroupId(group));
      groups_[tier].push_back({offset, bytes, slots[tier]});
      offset += bytes * slots[tier];
    }
    KV_CHECK(offset == 0 || (arenas_[tier] && offset <= arenas_[tier]->bytes().size()));
  }
}

std::span<std::byte> BlockMemory::block(Tier tier, GroupId group, SlotId slot) const {
  const std::size_t index = tier_index(tier);
  KV_CHECK(index < kMemoryTiers && arenas_[index] && group.value < groups_[index].size());
  const Group& place = groups_[index][group.value];
  KV_CHECK(slot.value < place.slot_count);
  return arenas_[index]->bytes().subspan(
      static_cast<std::size_t>(place.offset + place.block_bytes * slot.value),
      static_cast<std::size_t>(place.block_bytes));
}

const HostArena* BlockMemory::arena(Tier tier) const {
  const std::size_t index = tier_index(tier);
  return index < kMemoryTiers ? arenas_[index].get() : nullptr;
}

}  // namespace kv::shell
