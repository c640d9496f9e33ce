// What a client can ask about the whole service: answers of lookup, why, status, tree, demote,
// flush, clear and set_epoch.
// Plain values. Threads: none. Cost: none.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/base/token.h"
#include "allocator/namespace.h"

namespace kv::client {

inline constexpr std::uint32_t kTreeNodesMax = 1'000;
// Of an epoch that is asked for. The next ones, which only count, never begin again at 0.
inline constexpr std::uint64_t kEpochMax = (std::uint64_t{1} << 63U) - 1;

struct LookupHits {
  std::uint64_t hit_tokens = 0;
  std::array<std::uint64_t, kTierCount> hit_tokens_by_tier{};
  std::uint64_t known_tokens = 0;  // longest known path, holes included
};

// Why a token of a prompt is computed: a closed list, as the service's.
enum class MissReason : std::uint8_t {
  never_stored,
  diverged,
  after_divergence,
  below_block,
  tail_recompute,
  other_namespace,
  evicted,
  dropped_before_writeback,
  in_flight,
  load_failed,
  corrupt,
  not_cacheable,
  history_lost
};
inline constexpr std::uint8_t kMissReasonCount = 13;
enum class MissCause : std::uint8_t { none, room, cleared, io_error, orphaned, no_room, dropped };
inline constexpr std::uint8_t kMissCauseCount = 7;
struct WhyAnswer {
  // A run of computed tokens with one reason. The facts are those of its first block.
  struct Span {
    std::uint32_t first_token = 0, token_count = 0;
    MissReason reason = MissReason::never_stored;
    MissCause cause = MissCause::none;
    Tier tier = Tier::device;  // of the copy that went last
    NamespaceField field = NamespaceField::none;
    std::uint32_t position = 0;  // diverged: of the first token that differs
    std::uint32_t reuses = 0;    // how often other requests hit the block that is gone
    std::uint64_t ago_ms = 0;    // when it went
  };
  std::uint64_t prompt_tokens = 0;
  std::array<std::uint64_t, kTierCount> hit_tokens_by_tier{};
  std::uint64_t computed_tokens = 0;
  std::vector<Span> spans;       // of the computed tokens: in order, without a gap
  std::uint64_t history_ms = 0;  // what became of every block that went since then is known
};

struct TierStatus {
  std::uint64_t slot_bytes = 0;
  std::uint32_t slots = 0, free = 0, held = 0, cached = 0, fenced = 0;
  std::uint32_t covered = 0;  // cached blocks that are pinned, or above a pinned one
  std::uint32_t evictable = 0, arriving = 0;
};

struct ServiceStatus {
  struct Counter {
    std::string name;  // by tier: name.device, name.host, ...
    std::uint64_t value = 0;
  };
  std::array<TierStatus, kTierCount> tiers;
  std::vector<Counter> counters;
  std::uint32_t clients = 0, sequences = 0, transfers_in_flight = 0;
  std::uint32_t tree_blocks = 0, tree_nodes = 0, holes = 0, namespaces = 0;
  std::uint32_t block_tokens = 0;  // 0: no pool was attached yet
  std::uint64_t metadata_bytes = 0;
  bool recovering = false;           // the disk's index is still being read
  std::uint32_t retired_blocks = 0;  // of tree_blocks: cleared, still held by running work
  struct NamespaceEpoch {
    Digest namespace_digest;
    std::uint64_t epoch = 0;
  };
  std::vector<NamespaceEpoch> epochs;  // of namespaces that were cleared; the others' is 0
  std::string disk_problem;  // why the configured disk tier is off, for people; empty: it is not
};

struct TreeNode {
  static constexpr std::uint32_t kNoParent = 0xFFFFFFFFU;
  std::uint32_t parent = kNoParent;  // index in nodes, always a smaller one
  Digest namespace_digest;
  Digest last_key;
  std::uint32_t depth = 0;        // blocks before this run
  std::uint32_t block_count = 0;  // of this run
  std::array<std::uint32_t, kTierCount> copies{};
  std::uint32_t pinned = 0;
};
struct TreeView {
  std::vector<TreeNode> nodes;  // parents before children
  bool truncated = false;
};

struct DemoteOutcome {
  std::uint64_t saved_blocks = 0;
  std::uint64_t dropped_blocks = 0;
  std::uint64_t kept_blocks = 0;
};
struct ClearOutcome {
  std::uint64_t cleared_blocks = 0;
  std::uint64_t kept_blocks = 0;  // still held by running work; out of every match all the same
  std::uint64_t epoch = 0;        // of the namespace now; 0: of none in particular
};
struct FlushOutcome {
  std::uint64_t durable_blocks = 0;
  std::uint64_t unsaved_blocks = 0;
};

}  // namespace kv::client
