#include "tools/world/checkers.h"

#include <array>
#include <span>

#include "allocator/block_records.h"
#include "cachesvc/core/prefix_cache.h"
#include "tools/world/slot_owners.h"
#include "tools/world/tree_checks.h"

namespace kv::world {
namespace {

using core::Engine;
using core::PrefixCache;

constexpr std::size_t kTiers = BlockRecords::kSlotTiers;

struct StateCounts {
  std::array<std::uint32_t, 4> of{};
  [[nodiscard]] std::uint32_t sum() const { return of[0] + of[1] + of[2] + of[3]; }
};

StateCounts count_states(const BlockPool& pool) {
  StateCounts counts;
  for (std::uint32_t s = 0; s < pool.slot_count(); ++s) {
    ++counts.of[static_cast<std::size_t>(pool.state(SlotId{s}))];
  }
  return counts;
}

void check_conservation(const Engine& engine, std::vector<std::string>& problems) {
  const PrefixCache& cache = *engine.cache();
  const auto status = engine.status();
  for (std::size_t t = 0; t < kTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    const std::string name(tier_name(tier));
    std::uint64_t bytes = 0;
    for (std::uint32_t g = 0; g < cache.layout().groups.size(); ++g) {
      const BlockPool& pool = cache.pool(tier, GroupId{g});
      const StateCounts counts = count_states(pool);
      for (std::size_t s = 0; s < counts.of.size(); ++s) {
        if (counts.of[s] != pool.count(static_cast<SlotState>(s))) {
          problems.push_back("1: " + name + ": the count of state " + std::to_string(s) + " is " +
                             std::to_string(pool.count(static_cast<SlotState>(s))) + ", counted " +
                             std::to_string(counts.of[s]));
        }
      }
      if (counts.sum() != pool.slot_count()) problems.push_back("1: " + name + ": slots are lost");
      bytes += pool.slot_count() * block_bytes(cache.layout(), GroupId{g});
    }
    if (bytes > engine.options().tier_bytes[t]) {
      problems.push_back("20: " + name + " holds more bytes than its cap");
    }
    const auto& told = status.tiers[t];
    if (std::uint64_t{told.free} + told.held + told.cached + told.fenced != told.slots) {
      problems.push_back("24: status of " + name + ": free + held + cached + fenced != slots");
    }
    if (told.covered + told.evictable != told.cached) {
      problems.push_back("24: status of " + name + ": covered + evictable != cached");
    }
  }
}

void check_owners(const Engine& engine, std::vector<std::string>& problems) {
  const PrefixCache& cache = *engine.cache();
  const SlotOwners owners(engine, problems);
  for (std::size_t t = 0; t < kTiers; ++t) {
    const auto tier = static_cast<Tier>(t);
    for (std::uint32_t g = 0; g < cache.layout().groups.size(); ++g) {
      const BlockPool& pool = cache.pool(tier, GroupId{g});
      for (std::uint32_t s = 0; s < pool.slot_count(); ++s) {
        const OwnerKind kind = owners.owner(tier, GroupId{g}, SlotId{s}).kind;
        SlotState wanted = SlotState::held;
        if (kind == OwnerKind::block) wanted = SlotState::cached;
        if (kind == OwnerKind::nobody) wanted = SlotState::free;
        const SlotState state = pool.state(SlotId{s});
        if (state == wanted) continue;
        // Fenced slots are those that an expired client held.
        const bool of_client =
            kind == OwnerKind::nobody || kind == OwnerKind::sequence || kind == OwnerKind::waiting;
        if (state == SlotState::fenced && of_client) continue;
        problems.push_back("2: " + slot_name(tier, GroupId{g}, SlotId{s}) + " is in state " +
                           std::to_string(static_cast<int>(state)) + " but its owner is of kind " +
                           std::to_string(static_cast<int>(kind)));
      }
    }
  }
}

// Table entries that a sequence does not own are copies of the blocks of its path, or, while it
// loads, slots that transfers fill or will fill.
void check_tables(const Engine& engine, std::vector<std::string>& problems) {
  const PrefixCache& cache = *engine.cache();
  for (std::uint32_t i = 0; i < engine.sequence_count(); ++i) {
    const auto view = engine.sequence(i);
    const std::string name = "2: sequence " + std::to_string(view.id.value) + " of client " +
                             std::to_string(view.client.value);
    if (view.table.size() != std::size_t{view.group_count} * view.block_count) {
      problems.push_back(name + ": its table has a wrong size");
      continue;
    }
    if (view.loading || !view.admitted) continue;
    for (std::uint32_t g = 0; g < view.group_count; ++g) {
      for (std::uint32_t b = 0; b < view.block_count; ++b) {
        const SlotId slot = view.table[std::size_t{g} * view.block_count + b];
        if (slot.is_none()) continue;  // dropped
        const auto state = cache.pool(Tier::device, GroupId{g}).state(slot);
        const auto wanted = view.owned[b] != 0 ? SlotState::held : SlotState::cached;
        if (state == wanted) continue;
        problems.push_back(name + ": entry " + std::to_string(b) + " lies in a slot of state " +
                           std::to_string(static_cast<int>(state)));
      }
    }
  }
}

class Digester {
 public:
  void add(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15U;
    state_ ^= state_ >> 29U;
  }
  void add(const Digest& digest) {
    for (const std::byte byte : digest.bytes) add(std::to_integer<std::uint64_t>(byte));
  }
  template <class Id>
  void add_ids(std::span<const Id> ids) {
    add(ids.size());
    for (const Id id : ids) add(id.value);
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 1;
};

void digest_cache(const Engine& engine, Digester& digester) {
  const PrefixCache& cache = *engine.cache();
  const auto groups = static_cast<std::uint32_t>(cache.layout().groups.size());
  for (std::size_t t = 0; t < kTiers; ++t) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      const auto tier = static_cast<Tier>(t);
      const BlockPool& pool = cache.pool(tier, GroupId{g});
      for (std::uint32_t s = 0; s < pool.slot_count(); ++s) {
        digester.add(static_cast<std::uint64_t>(pool.state(SlotId{s})));
        digester.add(pool.generation(SlotId{s}));
      }
      digester.add_ids(engine.waiting_slots(tier, GroupId{g}));
    }
  }
  const BlockRecords& records = cache.records();
  for (std::uint32_t b = 0; b < records.block_capacity(); ++b) {
    const BlockId block{b};
    if (!cache.tree().contains(block)) continue;
    digester.add(b);
    digester.add(records.key(block));
    digester.add(records.last_use(block));
    digester.add(records.pins(block));
    for (std::uint32_t g = 0; g < groups; ++g) {
      digester.add(records.checksum(block, GroupId{g}));
      for (std::size_t t = 0; t < kTiers; ++t) {
        digester.add(records.slot(block, GroupId{g}, static_cast<Tier>(t)).value);
      }
    }
  }
}

}  // namespace

std::vector<std::string> check(const Engine& engine, const Known& known) {
  std::vector<std::string> problems;
  const auto counters = engine.status().counters;
  std::uint64_t accounted = counters.computed_tokens;
  for (const std::uint64_t tokens : counters.hit_tokens) accounted += tokens;
  if (accounted != counters.prompt_tokens) {
    problems.emplace_back("24: hits and computed tokens do not add up to the prompt tokens");
  }
  if (engine.cache() == nullptr) return problems;
  check_conservation(engine, problems);
  check_owners(engine, problems);
  check_tables(engine, problems);
  check_tree(engine, known, problems);
  check_pins(engine, problems);
  return problems;
}

std::vector<std::string> check_drained(const Engine& engine, const Known& known) {
  std::vector<std::string> problems = check(engine, known);
  const auto status = engine.status();
  if (status.clients != 0) problems.emplace_back("15: clients are left");
  if (engine.sequence_count() != 0) problems.emplace_back("15: sequences are left");
  if (engine.transfer_count() != 0) problems.emplace_back("15: transfers are left");
  for (const auto& tier : status.tiers) {
    if (tier.held != 0 || tier.fenced != 0) problems.emplace_back("15: slots are left in use");
    if (tier.covered != 0) problems.emplace_back("15: blocks are left pinned");
    if (tier.arriving != 0) problems.emplace_back("15: blocks are left as arriving");
  }
  return problems;
}

std::uint64_t state_digest(const Engine& engine) {
  Digester digester;
  for (std::uint32_t i = 0; i < engine.sequence_count(); ++i) {
    const auto view = engine.sequence(i);
    digester.add(view.client.value);
    digester.add(view.id.value);
    digester.add(view.tokens.size());
    for (const Token token : view.tokens) digester.add(token);
    digester.add_ids(view.table);
    digester.add(view.published_blocks);
    digester.add(view.deepest.value);
    digester.add((view.admitted ? 1U : 0U) | (view.loading ? 2U : 0U));
    for (const std::uint8_t owned : view.owned) digester.add(owned);
  }
  for (std::uint32_t i = 0; i < engine.transfer_count(); ++i) {
    const auto view = engine.transfer(i);
    digester.add(view.id.value);
    digester.add_ids(view.blocks);
    digester.add_ids(view.from_slots);
    digester.add_ids(view.to_slots);
  }
  if (engine.cache() != nullptr) digest_cache(engine, digester);
  return digester.value();
}

}  // namespace kv::world
