#include "tools/world/slot_owners.h"

namespace kv::world {
namespace {

std::string owner_name(const SlotOwners::Owner& owner) {
  switch (owner.kind) {
    case OwnerKind::nobody:
      return "nobody";
    case OwnerKind::block:
      return "block " + std::to_string(owner.id);
    case OwnerKind::sequence:
      return "sequence #" + std::to_string(owner.id);
    case OwnerKind::transfer:
      return "transfer " + std::to_string(owner.id);
    case OwnerKind::waiting:
      return "the waiting slots";
  }
  return "unknown";
}

}  // namespace

std::string slot_name(Tier tier, GroupId group, SlotId slot) {
  std::string name(tier_name(tier));
  if (group.value != 0) name += " group " + std::to_string(group.value);
  return name + " slot " + std::to_string(slot.value);
}

SlotOwners::SlotOwners(const core::Engine& engine, std::vector<std::string>& problems) {
  const core::PrefixCache& cache = *engine.cache();
  const auto groups = static_cast<std::uint32_t>(cache.layout().groups.size());
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      owners_[t].emplace_back(cache.pool(static_cast<Tier>(t), GroupId{g}).slot_count());
    }
  }
  claim_blocks(cache, problems);
  claim_sequences(engine, problems);
  claim_transfers(engine, problems);
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      for (const SlotId slot : engine.waiting_slots(static_cast<Tier>(t), GroupId{g})) {
        claim(static_cast<Tier>(t), GroupId{g}, slot, {OwnerKind::waiting, 0}, problems);
      }
    }
  }
}

void SlotOwners::claim(Tier tier, GroupId group, SlotId slot, Owner owner,
                       std::vector<std::string>& problems) {
  auto& owners = owners_[tier_index(tier)].at(group.value);
  if (slot.value >= owners.size()) {
    problems.push_back("2: " + owner_name(owner) + " names " + slot_name(tier, group, slot) +
                       ", which does not exist");
    return;
  }
  Owner& place = owners[slot.value];
  if (place.kind != OwnerKind::nobody) {
    problems.push_back("2: " + slot_name(tier, group, slot) + " belongs to " + owner_name(place) +
                       " and to " + owner_name(owner));
  }
  place = owner;
}

void SlotOwners::claim_blocks(const core::PrefixCache& cache, std::vector<std::string>& problems) {
  for (std::uint32_t b = 0; b < cache.records().block_capacity(); ++b) {
    const BlockId block{b};
    const bool known = cache.tree().contains(block);
    for (std::uint32_t g = 0; g < cache.layout().groups.size(); ++g) {
      for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
        const auto tier = static_cast<Tier>(t);
        const SlotId slot = cache.records().slot(block, GroupId{g}, tier);
        if (slot.is_none()) continue;
        if (!known) {
          problems.push_back("19: a copy in " + slot_name(tier, GroupId{g}, slot) +
                             " belongs to block " + std::to_string(b) + ", which the tree lost");
        }
        claim(tier, GroupId{g}, slot, {OwnerKind::block, b}, problems);
      }
    }
  }
}

void SlotOwners::claim_sequences(const core::Engine& engine, std::vector<std::string>& problems) {
  for (std::uint32_t i = 0; i < engine.sequence_count(); ++i) {
    const auto view = engine.sequence(i);
    for (std::uint32_t g = 0; g < view.group_count; ++g) {
      for (std::uint32_t b = 0; b < view.block_count; ++b) {
        if (view.owned[b] == 0) continue;
        claim(Tier::device, GroupId{g}, view.table[std::size_t{g} * view.block_count + b],
              {OwnerKind::sequence, i}, problems);
      }
    }
  }
}

void SlotOwners::claim_transfers(const core::Engine& engine, std::vector<std::string>& problems) {
  for (std::uint32_t i = 0; i < engine.transfer_count(); ++i) {
    const auto view = engine.transfer(i);
    for (const SlotId slot : view.to_slots) {
      claim(view.to, view.group, slot, {OwnerKind::transfer, view.id.value}, problems);
    }
  }
}

}  // namespace kv::world
