// VirtualTiers: what lies in each slot of each tier, as fingerprints, and the index of the virtual
// disk. Also the residency check (invariants 12 and 19): the records of an Engine against what
// truly lies there. Owner: VirtualWorld. Threads: none. Cost: O(1) a slot; the check O(blocks +
// disk entries).
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "allocator/block_records.h"
#include "allocator/kv_layout.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/inputs.h"
#include "cachesvc/core/prefix_cache.h"
#include "tools/world/fingerprint.h"
#include "tools/world/virtual_epochs.h"

namespace kv::world {

class VirtualTiers {
 public:
  struct DiskEntry {
    core::RecoveredEntry entry;
    std::vector<Token> tokens;
    bool synced = false;
  };
  using Place = std::pair<GroupId, SlotId>;

  // Empty memory for the pools of this cache; the disk's payload and index stay as they are.
  void start(const core::PrefixCache& cache);
  [[nodiscard]] bool started() const { return started_; }
  // The service ends: device and host memory are lost, and nothing is served from any tier.
  void stop() {
    started_ = false;
    resident_.clear();
  }

  [[nodiscard]] Fingerprint read(Tier tier, GroupId group, SlotId slot) const {
    return memory_[tier_index(tier)].at(group.value).at(slot.value);
  }
  void write(Tier tier, GroupId group, SlotId slot, Fingerprint fingerprint);
  // Bytes that nobody wrote on purpose; another value each time. Returns it.
  Fingerprint write_garbage(Tier tier, GroupId group, SlotId slot);
  // The bytes go bad by themselves; the residency check knows.
  void rot(Tier tier, GroupId group, SlotId slot);

  [[nodiscard]] VirtualEpochs& epochs() { return epochs_; }

  // --- the disk's index, by slot
  [[nodiscard]] std::map<Place, DiskEntry>& disk() { return disk_; }
  [[nodiscard]] const std::map<Place, DiskEntry>& disk() const { return disk_; }
  [[nodiscard]] std::uint64_t synced_entries() const;
  // The entry goes; until a sync covers that, a crash may bring it back.
  void erase(const Place& place);
  [[nodiscard]] std::uint64_t erase_count() const { return erase_count_; }
  void forget_erased(std::uint64_t up_to);  // the first ones, of all time, are durable
  // A crash: what was not synced is lost, or comes back, as `lost` says for each.
  template <class Chance>
  void lose_unsynced(const Chance& lost);
  // A Clear that nobody confirmed may have spared any entry of the namespace (or of all): those
  // count as content of now.
  void adopt_epoch(const std::optional<Digest>& namespace_digest);

  // Every copy of the records lies where they say, and is right; every disk entry that is not
  // waiting for its recovery is known. Refreshes what resident_tiers() answers.
  void check_residency(const core::Engine& engine, const std::set<Place>& unrecovered,
                       std::vector<std::string>& problems);
  // Tiers that hold this prefix (of group 0) at the last check, as bits.
  [[nodiscard]] std::uint32_t resident_tiers(Fingerprint prefix) const;
  [[nodiscard]] std::uint64_t resident_blocks(Tier tier) const;

 private:
  void check_copy(const core::PrefixCache& cache, BlockId block, GroupId group, Tier tier,
                  Fingerprint wanted, std::vector<std::string>& problems) const;
  void check_disk_entry(const core::PrefixCache& cache, BlockId block, GroupId group, SlotId slot,
                        std::vector<std::string>& problems) const;
  [[nodiscard]] Fingerprint prefix_of(const core::PrefixCache& cache, BlockId block);

  std::vector<std::vector<Fingerprint>> memory_[BlockRecords::kSlotTiers];  // group, slot
  std::set<std::tuple<Tier, GroupId, SlotId>> rotten_;
  std::map<Place, DiskEntry> disk_;
  std::map<BlockId, Fingerprint> prefixes_;  // during one check
  std::map<Fingerprint, std::uint32_t> resident_;
  struct Erased {
    std::uint64_t number = 0;
    Place place;
    DiskEntry entry;
    Fingerprint bytes = 0;
  };
  [[nodiscard]] bool comes_back(const Erased& erased) const;
  std::vector<Erased> erased_;
  std::uint64_t erase_count_ = 0;
  VirtualEpochs epochs_;
  std::uint64_t garbage_ = 0;
  bool started_ = false;
};

template <class Chance>
void VirtualTiers::lose_unsynced(const Chance& lost) {
  for (auto at = disk_.begin(); at != disk_.end();) {
    at = !at->second.synced && lost() ? disk_.erase(at) : std::next(at);
  }
  for (const Erased& erased : erased_) {
    if (lost() && comes_back(erased)) disk_[erased.place] = erased.entry;
  }
  erased_.clear();
}

}  // namespace kv::world
