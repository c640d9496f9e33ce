// StepHistory: what must hold between one step and the next: generations rise with each new owner
// (14), counters never fall (24), a block that stays covered keeps its copies (4). Owner: the test
// or the world; one an Engine. Threads: none. Cost: O(slots + blocks) a call.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "allocator/base/token.h"
#include "allocator/block_pool.h"
#include "allocator/block_records.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"

namespace kv::world {

// A Clear of one tier, of one namespace or of all, that was taken on and may still go on.
struct TierClear {
  Tier tier = Tier::device;
  std::optional<Digest> namespace_digest;
};

// A copy that gave an error when it was read.
using BadCopy = std::pair<Tier, Digest>;

// Why copies of covered blocks may go. `clears` may take lower ones, as many as the Engine counted
// as cleared in this step: one that has ended takes none.
struct Excuses {
  const std::set<BadCopy>* bad_copies = nullptr;
  std::span<const TierClear> clears;
};

class StepHistory {
 public:
  // Compares with the state at the last call, and keeps the new one.
  [[nodiscard]] std::vector<std::string> check(const core::Engine& engine,
                                               const Excuses& excuses = {});

 private:
  struct Slot {
    SlotState state;
    std::uint32_t generation;
  };
  // A sequence or transfer and a block that it pins.
  using Holder = std::tuple<std::uint64_t, std::uint64_t, BlockId>;
  struct Block {
    Digest key;
    std::vector<SlotId> slots;  // group-major, by tier
  };
  struct Root {
    bool is_retired = false;
    std::uint32_t block_count = 0;
  };
  void check_slots(const core::Engine& engine, std::vector<std::string>& problems);
  // Blocks that the same holder held at the last call and holds now.
  [[nodiscard]] std::set<BlockId> update_holders(const core::Engine& engine);
  [[nodiscard]] static Block look_at(const core::PrefixCache& cache, BlockId block);
  void check_blocks(const core::Engine& engine, const Excuses& excuses,
                    std::uint64_t cleared_copies, std::vector<std::string>& problems);
  // Blocks of roots that this step retired.
  [[nodiscard]] std::uint64_t count_retired(const core::PrefixCache& cache);

  std::vector<std::vector<Slot>> slots_[BlockRecords::kSlotTiers];
  std::vector<Block> blocks_;  // of the last call, by BlockId
  std::set<Holder> holders_;   // of the last call
  std::set<BlockId> moving_;   // by a transfer, now
  std::vector<Root> roots_;    // of the last call, by RootId
  core::Counters counters_;
};

}  // namespace kv::world
