#include "tools/world/virtual_tiers.h"

#include <algorithm>

#include "tools/world/slot_owners.h"

namespace kv::world {

void VirtualTiers::start(const core::PrefixCache& cache) {
  started_ = true;
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    const auto groups = static_cast<std::uint32_t>(cache.layout().groups.size());
    memory_[t].resize(groups);
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::uint32_t slots = cache.pool(tier, GroupId{g}).slot_count();
      if (tier == Tier::disk && slots == 0) continue;  // off: what lies there stays
      const bool keeps = tier == Tier::disk && memory_[t][g].size() == slots;
      if (keeps) continue;
      memory_[t][g].resize(slots);
      for (std::uint32_t s = 0; s < slots; ++s) write_garbage(tier, GroupId{g}, SlotId{s});
    }
  }
}

void VirtualTiers::write(Tier tier, GroupId group, SlotId slot, Fingerprint fingerprint) {
  memory_[tier_index(tier)].at(group.value).at(slot.value) = fingerprint;
  rotten_.erase({tier, group, slot});
}

Fingerprint VirtualTiers::write_garbage(Tier tier, GroupId group, SlotId slot) {
  const Fingerprint garbage = mix(0xBADBADBADU, ++garbage_);
  write(tier, group, slot, garbage);
  return garbage;
}

void VirtualTiers::rot(Tier tier, GroupId group, SlotId slot) {
  memory_[tier_index(tier)].at(group.value).at(slot.value) ^= 0x8000000000000001U;
  rotten_.insert({tier, group, slot});
}

std::uint64_t VirtualTiers::synced_entries() const {
  std::uint64_t count = 0;
  for (const auto& [place, entry] : disk_) count += entry.synced ? 1 : 0;
  return count;
}

void VirtualTiers::erase(const Place& place) {
  const auto found = disk_.find(place);
  erased_.push_back(
      {++erase_count_, place, found->second, read(Tier::disk, place.first, place.second)});
  disk_.erase(found);
}

void VirtualTiers::forget_erased(std::uint64_t up_to) {
  std::erase_if(erased_, [up_to](const Erased& erased) { return erased.number <= up_to; });
}

// Its slot is as it was, and no younger entry has its key.
bool VirtualTiers::comes_back(const Erased& erased) const {
  if (disk_.contains(erased.place) ||
      read(Tier::disk, erased.place.first, erased.place.second) != erased.bytes) {
    return false;
  }
  return std::ranges::none_of(disk_, [&erased](const auto& other) {
    return other.first.first == erased.place.first &&
           other.second.entry.key == erased.entry.entry.key;
  });
}

void VirtualTiers::adopt_epoch(const std::optional<Digest>& namespace_digest) {
  std::vector<std::pair<std::uint32_t, Place>> order;  // parents first
  order.reserve(disk_.size());
  for (const auto& [place, disk_entry] : disk_) {
    order.emplace_back(disk_entry.entry.depth, place);
  }
  std::ranges::sort(order);
  std::map<Digest, Fingerprint> prefixes;
  for (const auto& [depth, place] : order) {
    DiskEntry& disk_entry = disk_.at(place);
    core::RecoveredEntry& entry = disk_entry.entry;
    if (namespace_digest && entry.namespace_digest != *namespace_digest) continue;
    const auto parent = prefixes.find(entry.parent_key);
    if (depth > 0 && parent == prefixes.end()) continue;
    const Fingerprint before = depth == 0 ? epochs_.start(entry.namespace_digest) : parent->second;
    const Fingerprint prefix = extend(before, disk_entry.tokens);
    prefixes[entry.key] = prefix;
    const Fingerprint bytes = of_group(prefix, entry.group);
    const bool is_rotten =
        checksum_of(read(Tier::disk, place.first, place.second)) != entry.checksum;
    entry.checksum = checksum_of(bytes);
    if (!is_rotten) write(Tier::disk, place.first, place.second, bytes);
  }
}

std::uint32_t VirtualTiers::resident_tiers(Fingerprint prefix) const {
  const auto found = resident_.find(prefix);
  return found == resident_.end() ? 0 : found->second;
}

std::uint64_t VirtualTiers::resident_blocks(Tier tier) const {
  std::uint64_t count = 0;
  for (const auto& [prefix, tiers] : resident_) count += tiers >> tier_index(tier) & 1U;
  return count;
}

// Parents are looked up first, so that no path is walked twice; no recursion.
Fingerprint VirtualTiers::prefix_of(const core::PrefixCache& cache, BlockId block) {
  const PrefixTree& tree = cache.tree();
  std::vector<BlockId> path;
  BlockId at = block;
  while (!at.is_none() && !prefixes_.contains(at)) {
    path.push_back(at);
    at = tree.parent(at);
  }
  Fingerprint prefix = at.is_none() ? epochs_.start_of_root(tree.root(block)) : prefixes_.at(at);
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    prefix = extend(prefix, tree.tokens(*step));
    prefixes_[*step] = prefix;
  }
  return prefix;
}

void VirtualTiers::check_residency(const core::Engine& engine, const std::set<Place>& unrecovered,
                                   std::vector<std::string>& problems) {
  if (engine.cache() == nullptr) return;
  const core::PrefixCache& cache = *engine.cache();
  prefixes_.clear();
  resident_.clear();
  const auto groups = static_cast<std::uint32_t>(cache.layout().groups.size());
  std::set<Place> known;  // each entry of the index matches its block (check_disk_entry)
  for (std::uint32_t b = 0; b < cache.records().block_capacity(); ++b) {
    const BlockId block{b};
    if (!cache.tree().contains(block)) continue;
    const Fingerprint prefix = prefix_of(cache, block);
    for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      for (std::uint32_t g = 0; g < groups; ++g) {
        check_copy(cache, block, GroupId{g}, tier, of_group(prefix, GroupId{g}), problems);
      }
      const bool is_served = !cache.tree().is_retired(block);
      if (is_served && cache.has_copy(block, tier)) resident_[prefix] |= 1U << t;
    }
    for (std::uint32_t g = 0; g < groups; ++g) {
      const SlotId slot = cache.records().slot(block, GroupId{g}, Tier::disk);
      if (!slot.is_none()) known.insert({GroupId{g}, slot});
    }
  }
  // Several groups of a block are written one by one: known when the last is.
  std::set<Place> arriving;
  for (std::uint32_t i = 0; i < engine.transfer_count(); ++i) {
    const auto view = engine.transfer(i);
    if (view.to != Tier::disk) continue;
    for (const SlotId slot : view.to_slots) arriving.insert({view.group, slot});
  }
  for (const auto& [place, disk_entry] : disk_) {
    if (arriving.contains(place) || unrecovered.contains(place)) continue;
    if (!known.contains(place)) {
      problems.push_back("19: the disk index has an entry in slot " +
                         std::to_string(place.second.value) + " that the records do not know");
    }
  }
}

void VirtualTiers::check_copy(const core::PrefixCache& cache, BlockId block, GroupId group,
                              Tier tier, Fingerprint wanted,
                              std::vector<std::string>& problems) const {
  const SlotId slot = cache.records().slot(block, group, tier);
  if (slot.is_none()) return;
  const std::string name =
      "block " + std::to_string(block.value) + " in " + slot_name(tier, group, slot);
  if (read(tier, group, slot) != wanted && !rotten_.contains({tier, group, slot})) {
    problems.push_back("12: " + name + " has other bytes than its tokens would give");
  }
  if (tier == Tier::device) return;
  if (cache.records().checksum(block, group) != checksum_of(wanted)) {
    problems.push_back("19: " + name + " has another checksum in the records");
  }
  if (tier == Tier::disk) check_disk_entry(cache, block, group, slot, problems);
}

void VirtualTiers::check_disk_entry(const core::PrefixCache& cache, BlockId block, GroupId group,
                                    SlotId slot, std::vector<std::string>& problems) const {
  const auto found = disk_.find({group, slot});
  if (found == disk_.end()) {
    problems.push_back("19: block " + std::to_string(block.value) +
                       " is said to be on disk; the index does not have it");
    return;
  }
  const core::RecoveredEntry& entry = found->second.entry;
  if (entry.key != cache.records().key(block) || entry.depth != cache.tree().depth(block) ||
      entry.generation != cache.pool(Tier::disk, group).generation(slot)) {
    problems.push_back("19: the disk index has another block in slot " +
                       std::to_string(slot.value) + " than the records");
  }
}

}  // namespace kv::world
