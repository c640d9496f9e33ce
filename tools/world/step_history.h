// StepHistory: what must hold between one step and the next: generations rise with each new owner
// (14), counters never fall (24), a block that stays covered keeps its copies (4). Owner: the test
// or the world; one an Engine. Threads: none. Cost: O(slots + blocks) a call.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "allocator/base/token.h"
#include "allocator/block_pool.h"
#include "allocator/block_records.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"

namespace kv::world {

class StepHistory {
 public:
  // Compares with the state at the last call, and keeps the new one. `tier_is_cleared`: a Clear of
  // one tier goes on. `errors_reported`: this step told the Engine about bad copies, which it may
  // drop although they are covered.
  [[nodiscard]] std::vector<std::string> check(const core::Engine& engine, bool errors_reported,
                                               bool tier_is_cleared = false);

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
  void check_slots(const core::Engine& engine, std::vector<std::string>& problems);
  void check_blocks(const core::Engine& engine, bool errors_reported, bool tier_is_cleared,
                    std::vector<std::string>& problems);

  std::vector<std::vector<Slot>> slots_[BlockRecords::kSlotTiers];
  std::vector<Block> blocks_;  // of the last call, by BlockId
  std::set<Holder> holders_;   // of the last call
  core::Counters counters_;
};

}  // namespace kv::world
