// Requests that go on over several steps. Private to the sources of the Engine. Owner: Engine.
// Threads: none. Cost: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"
#include "allocator/namespace.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/inputs.h"
#include "cachesvc/core/sequence_state.h"

namespace kv::core {

// Demote or Flush in progress.
struct SaveJob {
  enum class Phase : std::uint8_t { scan, save, settle, drop, sync };
  ClientId client;
  RequestId request;
  bool flush = false;
  Tier tier = Tier::device;  // demote
  Phase phase = Phase::scan;
  std::uint32_t cursor = 0;  // BlockId of the scan
  std::uint64_t saved_at_start = 0;
  std::uint64_t missing = 0;  // flush: copies that this round's scan found missing
  std::uint64_t missing_before = ~std::uint64_t{0};  // and that of the round before
  std::uint64_t pushed_to_host = 0;                  // at the end of the scan
  std::uint64_t pushed_to_disk = 0;
  std::uint64_t last_move = 0;  // the youngest move to wait for
  std::uint64_t dropped = 0;
  std::uint64_t sync_id = 0;
  std::optional<std::uint64_t> durable;  // flush: blocks, at the end of the step that syncs
};

// Clear or SetEpoch in progress.
struct ClearJob {
  enum class Phase : std::uint8_t {
    recover,  // one tier: the disk index is read to its end first
    drop,     // one tier: its copies go, one scan
    count,    // one tier: what is left
    give_up,  // all tiers: each retired block has its turn
    settle,   // moves to and from the disk, from before, end
    sync,
  };
  ClientId client;  // none(): gone, nobody waits for the reply
  RequestId request;
  bool all_tiers = true;
  Tier tier = Tier::device;
  bool all_namespaces = true;
  Digest namespace_digest;
  Phase phase = Phase::give_up;
  std::uint32_t cursor = 0;  // BlockId of the scan
  BlockId path;              // where its way upward goes on
  std::uint64_t roots = 0;   // RetiredQueue::added() when it began
  std::uint64_t last_move = 0;
  std::uint64_t sync_id = 0;
  ClearReply answer;
};

// A Why in progress: reads, and changes nothing. Blocks count from the prompt's first one.
struct WhyJob {
  enum class Phase : std::uint8_t {
    siblings,    // how far what is stored beside the first unknown block agrees with it
    namespaces,  // whether another one has more of the prompt
    sequences,   // whether one computes it
    keys,        // what became of each unknown block
  };
  ClientId client;
  RequestId request;
  Digest namespace_digest;
  NamespaceTraits traits;
  std::vector<Token> tokens;
  Phase phase = Phase::siblings;
  std::uint32_t cursor = 0;        // root, sequence or block
  std::uint32_t block_count = 0;   // whole blocks of the prompt
  std::uint32_t known_blocks = 0;  // in the tree
  std::uint32_t hit_blocks = 0;    // of them
  bool is_tail_cached = false;     // the last block would be hit if one token more followed
  // Of the known block that has no copy, where the match ends.
  Digest stop_key;
  bool is_stop_held = false, is_stop_computed = false;
  Digest key;  // of the block before the cursor
  // siblings
  RootId root;     // of the namespace, or none()
  BlockId parent;  // last known block, or none()
  NodeId sibling;  // where the walk goes on; none(): it begins
  std::uint32_t restarts = 0;
  bool has_siblings = false;
  std::uint32_t agreeing_tokens = 0;
  // namespaces
  std::uint32_t other_blocks = 0;  // hit in the best of the others
  std::uint32_t other_differences = 0;
  NamespaceField other_field = NamespaceField::none;
  // sequences
  std::uint32_t computing_to = 0;  // blocks that some sequence has in common with the prompt
  WhyReply answer;
};

// A Step being applied: spans point into the input, or into own memory once suspended.
struct StepJob {
  ClientId client;
  RequestId request;
  std::uint64_t step_seq = 0;
  std::span<const StepItem> items;
  std::span<const Token> tokens;
  std::span<const SequenceId> children;
  std::uint32_t next_item = 0;
  StepReply reply;
  // Before the append that goes on over several steps (kNoIndex: none does): blocks, version.
  std::uint32_t append_from = kNoIndex, append_version = 0;
  std::size_t append_slots = 0;        // and slots of the reply
  bool append_undone = false;          // it found no slot, and gives back what it took
  std::uint32_t child = kNoIndex;      // of the fork that goes on
  std::uint32_t drop_next = kNoIndex;  // block at which the drop goes on
  std::vector<StepItem> own_items;
  std::vector<Token> own_tokens;
  std::vector<SequenceId> own_children;
};

}  // namespace kv::core
