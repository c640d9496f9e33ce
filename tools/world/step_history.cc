#include "tools/world/step_history.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "cachesvc/core/prefix_cache.h"
#include "tools/world/slot_owners.h"

namespace kv::world {
namespace {

bool takes(std::span<const TierClear> clears, Tier tier, const Digest& namespace_digest) {
  return std::ranges::any_of(clears, [&](const TierClear& clear) {
    return clear.tier == tier &&
           clear.namespace_digest.value_or(namespace_digest) == namespace_digest;
  });
}

}  // namespace

std::vector<std::string> StepHistory::check(const core::Engine& engine, const Excuses& excuses) {
  std::vector<std::string> problems;
  using Words = std::array<std::uint64_t, sizeof(core::Counters) / sizeof(std::uint64_t)>;
  const core::Counters now = engine.status().counters;
  const auto before = std::bit_cast<Words>(counters_);
  const auto after = std::bit_cast<Words>(now);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (after[i] < before[i]) problems.push_back("24: counter " + std::to_string(i) + " fell");
  }
  const std::uint64_t cleared = now.cleared_blocks - counters_.cleared_blocks +
                                now.displaced_blocks - counters_.displaced_blocks;
  counters_ = now;
  if (engine.cache() == nullptr) return problems;
  check_slots(engine, problems);
  // A Clear of all tiers counts what it retires, and so does a namespace that gives way to another
  // one; a Clear of one tier counts each copy that it drops.
  const std::uint64_t retired = count_retired(*engine.cache());
  check_blocks(engine, excuses, cleared - retired, problems);
  return problems;
}

std::uint64_t StepHistory::count_retired(const core::PrefixCache& cache) {
  const PrefixTree& tree = cache.tree();
  roots_.resize(tree.root_count());
  std::uint64_t blocks = 0;
  for (std::uint32_t r = 0; r < roots_.size(); ++r) {
    const Root now{tree.is_retired(RootId{r}), tree.block_count(RootId{r})};
    const Root before = std::exchange(roots_[r], now);
    if (now.is_retired && !before.is_retired) blocks += before.block_count;
  }
  return blocks;
}

void StepHistory::check_slots(const core::Engine& engine, std::vector<std::string>& problems) {
  const core::PrefixCache& cache = *engine.cache();
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    slots_[t].resize(cache.layout().groups.size());
    for (std::uint32_t g = 0; g < slots_[t].size(); ++g) {
      const BlockPool& pool = cache.pool(tier, GroupId{g});
      auto& slots = slots_[t][g];
      slots.resize(pool.slot_count(), {SlotState::free, 0});
      for (std::uint32_t s = 0; s < slots.size(); ++s) {
        const Slot now{pool.state(SlotId{s}), pool.generation(SlotId{s})};
        const Slot before = std::exchange(slots[s], now);
        const bool given_out = before.state == SlotState::free && now.state != SlotState::free;
        if (now.generation < before.generation ||
            (given_out && now.generation == before.generation)) {
          problems.push_back("14: " + slot_name(tier, GroupId{g}, SlotId{s}) +
                             ": its generation did not rise");
        }
        if (before.state == SlotState::fenced && now.state != SlotState::fenced &&
            now.state != SlotState::free && now.generation == before.generation) {
          problems.push_back("14: " + slot_name(tier, GroupId{g}, SlotId{s}) +
                             " was fenced and is in use again");
        }
      }
    }
  }
}

std::set<BlockId> StepHistory::update_holders(const core::Engine& engine) {
  std::set<Holder> holders;
  for (std::uint32_t i = 0; i < engine.sequence_count(); ++i) {
    const auto view = engine.sequence(i);
    if (!view.deepest.is_none()) holders.insert({view.client.value, view.id.value, view.deepest});
  }
  moving_.clear();
  for (std::uint32_t i = 0; i < engine.transfer_count(); ++i) {
    const auto view = engine.transfer(i);
    for (const BlockId block : view.blocks) {
      holders.insert({0, view.id.value, block});
      moving_.insert(block);
    }
  }
  std::set<BlockId> held;
  for (const Holder& holder : holders) {
    if (!holders_.contains(holder)) continue;
    for (BlockId b = std::get<BlockId>(holder); !b.is_none() && held.insert(b).second;) {
      b = engine.cache()->tree().parent(b);
    }
  }
  holders_ = std::move(holders);
  return held;
}

StepHistory::Block StepHistory::look_at(const core::PrefixCache& cache, BlockId block) {
  Block now;
  if (!cache.tree().contains(block)) return now;
  now.key = cache.records().key(block);
  for (std::uint32_t g = 0; g < cache.layout().groups.size(); ++g) {
    for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
      now.slots.push_back(cache.records().slot(block, GroupId{g}, static_cast<Tier>(t)));
    }
  }
  return now;
}

void StepHistory::check_blocks(const core::Engine& engine, const Excuses& excuses,
                               std::uint64_t cleared_copies, std::vector<std::string>& problems) {
  const core::PrefixCache& cache = *engine.cache();
  const std::set<BlockId> held = update_holders(engine);
  blocks_.resize(cache.records().block_capacity());
  std::uint64_t lost_to_clears = 0;
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    const BlockId block{b};
    const Block now = look_at(cache, block);
    const Block before = std::exchange(blocks_[b], now);
    const auto was_whole = [&before](std::size_t tier) {  // one of some groups is no copy
      for (std::size_t i = tier; i < before.slots.size(); i += BlockRecords::kSlotTiers) {
        if (before.slots[i].is_none()) return false;
      }
      return true;
    };
    if (!held.contains(block) || before.key != now.key) continue;
    // Cleared: running sequences read its device copy only; a transfer keeps all of it.
    const bool is_retired = cache.tree().is_retired(block);
    const Digest& namespace_digest = cache.tree().namespace_digest(cache.tree().root(block));
    std::set<Tier> taken;  // by Clears of a tier
    for (std::size_t i = 0; i < before.slots.size(); ++i) {
      if (before.slots[i].is_none() || before.slots[i] == now.slots[i]) continue;
      if (!was_whole(i % BlockRecords::kSlotTiers)) continue;
      const auto tier = static_cast<Tier>(i % BlockRecords::kSlotTiers);
      const bool is_bad =
          excuses.bad_copies != nullptr && excuses.bad_copies->contains({tier, now.key});
      if (is_bad) continue;
      if (tier != Tier::device && !moving_.contains(block)) {
        if (is_retired) continue;
        if (takes(excuses.clears, tier, namespace_digest)) {
          taken.insert(tier);
          continue;
        }
      }
      const GroupId group{static_cast<std::uint32_t>(i / BlockRecords::kSlotTiers)};
      problems.push_back("4: block " + std::to_string(b) + " was in use and lost its copy in " +
                         slot_name(tier, group, before.slots[i]));
    }
    lost_to_clears += taken.size();
  }
  if (lost_to_clears > cleared_copies) {
    problems.push_back("4: blocks in use lost " + std::to_string(lost_to_clears) +
                       " copies that a Clear might take, it took " +
                       std::to_string(cleared_copies));
  }
}

}  // namespace kv::world
