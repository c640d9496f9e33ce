// BlockRecords: what is known of each block, as arrays indexed by BlockId and layer group.
// Plain storage: it keeps no invariant between fields. Derived facts (leaf in a tier, covered by a
// pin, evictable) live in PrefixCache, the only writer.
// Owner: PrefixCache. Threads: none. Cost: O(1); about 80 bytes a block with one group and 3 tiers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"

namespace kv {

class BlockRecords {
 public:
  // Tiers that hold slots of this service; remote copies have no slot.
  static constexpr std::size_t kSlotTiers = 3;

  // `tiers`: those that can hold copies; the others cost no memory.
  BlockRecords(std::uint32_t block_capacity, std::uint32_t group_count,
               std::array<bool, kSlotTiers> tiers = {true, true, true});

  // Forgets everything of one block: no copies, no pins, last use 0, zero key.
  void reset(BlockId block);

  [[nodiscard]] SlotId slot(BlockId block, GroupId group, Tier tier) const {
    if (tier_index(tier) >= kSlotTiers || slots_[tier_index(tier)].empty()) return SlotId::none();
    return SlotId(slots_[tier_index(tier)][at(block, group)]);
  }
  // How many of the `count` blocks from `first` on have a slot of every group in the tier, up to
  // the first that has not.
  [[nodiscard]] std::uint32_t leading_slots(BlockId first, std::uint32_t count, Tier tier) const;
  // requires: the tier can hold copies.
  void set_slot(BlockId block, GroupId group, Tier tier, SlotId slot);  // none() clears
  // Checksum (CRC32C) of the bytes that the host and disk copies of this block hold.
  [[nodiscard]] std::uint32_t checksum(BlockId block, GroupId group) const;
  void set_checksum(BlockId block, GroupId group, std::uint32_t checksum);

  [[nodiscard]] const Digest& key(BlockId block) const { return keys_[block.value]; }
  void set_key(BlockId block, const Digest& key) { keys_[block.value] = key; }
  // A counter of the engine, not a time: larger is later.
  [[nodiscard]] std::uint64_t last_use(BlockId block) const { return last_uses_[block.value]; }
  void set_last_use(BlockId block, std::uint64_t use) { last_uses_[block.value] = use; }
  // How often other requests than its first one used it; stays at its largest value.
  [[nodiscard]] std::uint32_t reuses(BlockId block) const { return reuses_[block.value]; }
  void add_reuse(BlockId block) {
    std::uint16_t& reuses = reuses_[block.value];
    reuses = static_cast<std::uint16_t>(reuses + (reuses < 0xFFFFU ? 1 : 0));
  }
  [[nodiscard]] std::uint32_t pins(BlockId block) const { return pins_[block.value]; }
  void set_pins(BlockId block, std::uint32_t pins) { pins_[block.value] = pins; }
  // A transfer into this tier is under way for the block (any group).
  [[nodiscard]] bool arriving(BlockId block, Tier tier) const;
  void set_arriving(BlockId block, Tier tier, bool arriving);

  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint32_t block_capacity() const {
    return static_cast<std::uint32_t>(pins_.size());
  }
  [[nodiscard]] std::uint32_t group_count() const { return group_count_; }

 private:
  [[nodiscard]] std::size_t at(BlockId block, GroupId group) const {
    return std::size_t{block.value} * group_count_ + group.value;
  }
  std::uint32_t group_count_;
  std::vector<std::uint32_t> slots_[kSlotTiers];
  std::vector<std::uint32_t> checksums_;
  std::vector<Digest> keys_;
  std::vector<std::uint64_t> last_uses_;
  std::vector<std::uint16_t> reuses_;
  std::vector<std::uint32_t> pins_;
  std::vector<std::uint8_t> arriving_;
};

}  // namespace kv
