// What the Engine keeps of one sequence, from its Open to its end. Private to the sources of the
// Engine. Owner: Engine. Threads: none. Cost: tokens and table, and what an admission needs.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"
#include "cachesvc/core/actions.h"

namespace kv::core {

inline constexpr std::uint32_t kNoIndex = 0xFFFFFFFFU;

enum class SequencePhase : std::uint8_t {
  unused,
  opened,
  waiting,    // an Admit waits for another sequence's load, or its admission
  admitting,  // slots accumulate over several steps
  loading,
  admitted,
  forking,     // a fork takes its slots over several steps
  preempting,  // unwinds when its step is completed
  unwinding,   // a load failed: gives everything back, then is opened again
  fencing,     // its client expired: slots are being fenced
  fenced,
  ending,  // gives everything back, then is unused
};

enum class LoadPhase : std::uint8_t { on_disk, from_disk, in_host, to_device, arrived, added };
struct LoadItem {
  std::uint32_t path_index = 0;
  LoadPhase phase = LoadPhase::in_host;
  bool landed = false;  // its host bytes lie in landing slots of its own, not in the block's copy
};

struct GroupSlot {
  GroupId group;
  SlotId slot;
};

struct ReplacedSlot {
  std::uint32_t version = 0;
  GroupId group;
  SlotId slot;
};

struct SequenceState {
  std::uint64_t serial = 0;
  SequencePhase phase = SequencePhase::unused;
  ClientId client;
  SequenceId id;
  RootId root;
  Digest namespace_digest;
  bool skip_read = false;
  bool accept_rewrite = true;
  bool outdated = false;  // its namespace was cleared since: reads and publishes nothing cached
  std::uint32_t uncacheable_blocks = 0;  // that it would have published otherwise, to this one
  Digest uncacheable_key;                // of the last of them
  std::vector<Token> tokens;
  std::uint64_t prompt_tokens = 0;  // as counted by the limits of them
  std::vector<SlotId> table;        // group-major
  std::vector<std::uint8_t> owned;  // by block
  std::uint32_t block_count = 0;
  std::uint32_t published_blocks = 0;
  std::uint32_t publish_requested = 0;  // tokens of the last publish, applied or waiting
  bool publish_stopped = false;         // the tree had no room: what follows stays private
  BlockId deepest;
  std::uint32_t table_version = 0;
  std::vector<ReplacedSlot> replaced;
  Account account;                // of the whole request
  Account admission;              // of the last Admit: another one when it was preempted
  bool is_resumed = false;        // it was preempted at some time
  std::uint32_t base_tokens = 0;  // that it began with; what follows was generated
  std::uint32_t cacheable_tokens = kNoIndex;  // what is computed behind them was not cold
  std::uint64_t held_until = 0;               // step: copies of a fork use its slots as long
  // admission
  RequestId admit_request;
  std::uint32_t max_new_tokens = 0;
  std::uint32_t blocks_wanted = 0;
  std::uint32_t hit_blocks = 0;
  std::uint32_t cursor = 0;  // next block of an admission or an ending that goes on
  std::vector<BlockId> path;
  std::vector<LoadItem> loads;
  std::vector<SlotId> landing;  // loads x groups
  std::uint32_t loads_added = 0;
  std::uint32_t loads_in_flight = 0;
  bool load_failed = false;
};

}  // namespace kv::core
