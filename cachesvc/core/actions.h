// What the Engine tells the world: replies, notices, transfers. Plain values, in the order to be
// carried out within each list; erases come before transfers, transfers before replies. Owner: the
// caller; reuse one Actions (clear() keeps its memory). Threads: none.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "allocator/kv_layout.h"
#include "allocator/namespace.h"
#include "cachesvc/core/inputs.h"

namespace kv::core {

// Where every prompt token came from: the tiers' hits + computed = prompt.
struct Account {
  std::uint64_t prompt_tokens = 0;
  std::array<std::uint64_t, kTierCount> hit_tokens{};
  std::uint64_t computed_tokens = 0;   // of the prompt
  std::uint64_t generated_tokens = 0;  // appended after admission
  friend bool operator==(const Account&, const Account&) = default;
};

// ---------------------------------------------------------------- replies
struct HelloReply {
  std::uint32_t lease_ms = 0;       // a request or heartbeat at least this often
  std::uint32_t credits = 0;        // requests without a reply at one time; more get `busy`
  std::uint32_t message_bytes = 0;  // of a request; a longer one is `too_large`
};
struct AttachPoolReply {
  // For each layer group: where its slots lie in the device pool memory.
  struct Group {
    std::uint64_t offset = 0;      // bytes from the pool's start to slot 0
    std::uint64_t slot_bytes = 0;  // bytes from a slot to the next
    std::uint32_t slot_count = 0;
  };
  std::vector<Group> groups;
  std::uint64_t pool_bytes = 0;
};
struct AdmitReply {
  bool ready = false;  // false: wait for Notice{sequence_ready}; loads are under way
  Account account;     // hits planned
  std::uint32_t table_version = 0;
  std::uint32_t block_count = 0;  // blocks reserved
  std::vector<SlotId> slots;      // group-major: groups x block_count device slots
};
// Entries [first_block, +slot_count) of a sequence's table in one group became slots[slot_offset
// ...). An entry that held another slot before is a rewrite: both hold equal KV; the old one stays
// valid until the client acknowledges `version`.
struct TableDelta {
  SequenceId sequence;
  GroupId group;
  std::uint32_t version = 0;
  std::uint32_t first_block = 0;
  std::uint32_t slot_offset = 0;
  std::uint32_t slot_count = 0;
};
// To be done on the client's device before the work of its next step: the first `token_count`
// tokens of a block go into another slot. Both slots stay as they are until that step is completed.
struct BlockCopy {
  SequenceId sequence;  // whose table names the new slot
  GroupId group;
  SlotId from_slot, to_slot;
  std::uint32_t token_count = 0;
};
struct StepReply {
  struct Failure {
    std::uint32_t item = 0;  // index in the Step's items; all others succeeded
    Error error;
  };
  struct Ended {
    SequenceId sequence;
    Account account;
  };
  std::vector<Failure> failures;
  std::vector<TableDelta> deltas;
  std::vector<SlotId> slots;
  std::vector<Ended> ended;  // one for each free
  std::vector<BlockCopy> copies;
};
struct LookupReply {
  std::uint64_t hit_tokens = 0;
  std::array<std::uint64_t, kTierCount> hit_tokens_by_tier{};
  std::uint64_t known_tokens = 0;  // longest known path, holes included
};
// Why a token of a prompt is computed: a closed list.
enum class MissReason : std::uint8_t {
  never_stored,
  diverged,          // the block of the first token that differs from what is stored
  after_divergence,  // the blocks behind it
  below_block,       // the last tokens, too few for a block
  tail_recompute,    // the last block: one token at least is computed
  other_namespace,   // stored, but under another `field` of the namespace
  evicted,
  dropped_before_writeback,  // evicted while a lower tier was still to get it
  in_flight,                 // being computed by a sequence that runs
  load_failed,
  corrupt,
  not_cacheable,
  history_lost,  // stored once; what became of it is not known any more
};
inline constexpr std::uint8_t kMissReasonCount = 13;
enum class MissCause : std::uint8_t {
  none,
  room,      // evicted: others needed the slot
  cleared,   // evicted, or not cacheable: by a Clear or a new epoch
  io_error,  // load_failed
  orphaned,  // load_failed: found on the disk without the blocks in front of it
  no_room,   // not cacheable: the index of blocks was full
  dropped,   // not cacheable: computed after blocks in front of it had been dropped
};
inline constexpr std::uint8_t kMissCauseCount = 7;
struct WhyReply {
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
    friend bool operator==(const Span&, const Span&) = default;
  };
  std::uint64_t prompt_tokens = 0;
  std::array<std::uint64_t, kTierCount> hit_tokens{};  // these + computed_tokens = prompt_tokens
  std::uint64_t computed_tokens = 0;
  std::vector<Span> spans;       // of the computed tokens: in order, without a gap
  std::uint64_t history_ms = 0;  // what became of every block that went since then is known
};
struct TierStatus {
  std::uint64_t slot_bytes = 0;
  std::uint32_t slots = 0, free = 0, held = 0, cached = 0, fenced = 0;
  std::uint32_t covered = 0, evictable = 0, arriving = 0;
  friend bool operator==(const TierStatus&, const TierStatus&) = default;
};
// Counters only grow; gauges are of now.
struct Counters {
  std::array<std::uint64_t, kTierCount> hit_tokens{};
  std::uint64_t prompt_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  std::uint64_t lookups = 0, admissions = 0, exhausted = 0;
  std::uint64_t published_blocks = 0, adopted_blocks = 0, rewritten_blocks = 0,
                duplicate_blocks = 0;
  std::array<std::uint64_t, kTierCount> evicted_blocks{};
  std::array<std::uint64_t, kTierCount> corrupt_blocks{};  // quarantined, by the tier read
  std::array<std::uint64_t, kTierCount> failed_blocks{};   // io errors, by the tier of the failure
  std::uint64_t dropped_unsaved_blocks = 0;                // last copies evicted
  std::uint64_t recovered_blocks = 0, orphaned_blocks = 0;
  std::uint64_t transfers_started = 0, transfers_done = 0;
  std::array<std::uint64_t, kTierCount> saved_blocks{};   // copies made into this tier
  std::array<std::uint64_t, kTierCount> loaded_blocks{};  // copies read from this tier upward
  std::uint64_t stale_requests = 0, repeated_requests = 0, refused_requests = 0;
  std::uint64_t expired_clients = 0, gone_clients = 0;
  // Saves that found no room on the disk, and blocks that were saved again for it: a retry that
  // fails as well is counted in both, and in failed_blocks.
  std::uint64_t no_space_blocks = 0, retried_blocks = 0;
  // Refused requests by the limit that they met.
  std::uint64_t busy_requests = 0, too_large_requests = 0;
  std::uint64_t refused_sequences = 0, refused_prompt_tokens = 0, refused_namespaces = 0;
  std::uint64_t cleared_blocks = 0;  // by Clear and SetEpoch
  // Computed, but not to be cached: by a sequence from before a Clear, or after a drop; no room.
  std::uint64_t uncacheable_blocks = 0;
  std::uint64_t forked_sequences = 0, preempted_sequences = 0;
  std::uint64_t dropped_blocks = 0;  // by running sequences
  // Of sequences that were admitted again after a preemption: neither prompt nor hit tokens.
  std::uint64_t resumed_tokens = 0, resumed_hit_tokens = 0;
  std::uint64_t displaced_blocks = 0;  // of namespaces that gave way to new ones
  friend bool operator==(const Counters&, const Counters&) = default;
};
struct StatusReply {
  std::array<TierStatus, kTierCount> tiers;
  Counters counters;
  std::uint32_t clients = 0, sequences = 0, transfers_in_flight = 0;
  std::uint32_t tree_blocks = 0, tree_nodes = 0, holes = 0, namespaces = 0;
  std::uint32_t block_tokens = 0;  // 0: no pool was defined yet
  std::uint64_t metadata_bytes = 0;
  bool recovering = false;           // the disk index is still being read
  std::uint32_t retired_blocks = 0;  // of tree_blocks: cleared, not yet given up
  // Of namespaces that were cleared since the service started; the others' is 0.
  struct NamespaceEpoch {
    Digest namespace_digest;
    std::uint64_t epoch = 0;
  };
  std::vector<NamespaceEpoch> epochs;
};
struct TreeReply {
  // One node: a run of blocks; parents come before children.
  struct Node {
    std::uint32_t parent = 0xFFFFFFFFU;  // index in nodes; none: a namespace's first block
    Digest namespace_digest;
    Digest last_key;          // key of the run's last block
    std::uint32_t depth = 0;  // blocks before this run
    std::uint32_t block_count = 0;
    std::array<std::uint32_t, kTierCount> copies{};  // blocks of the run with a copy, by tier
    std::uint32_t pinned = 0;                        // covered blocks
  };
  std::vector<Node> nodes;
  bool truncated = false;  // more nodes exist than the limit
};
struct DemoteReply {
  std::uint64_t saved_blocks = 0;    // copied to the tier below for this request
  std::uint64_t dropped_blocks = 0;  // copies given up in the tier
  std::uint64_t kept_blocks = 0;     // in use, or could not be saved
};
struct FlushReply {
  std::uint64_t durable_blocks = 0;  // every one is served after a restart
  std::uint64_t unsaved_blocks = 0;  // could not be saved: no room, or an error
};
// Of Clear and SetEpoch.
struct ClearReply {
  std::uint64_t cleared_blocks = 0;  // known before; with one tier: that lost their copy there
  std::uint64_t kept_blocks = 0;     // cleared ones that running work holds; with one tier: that
                                     // still have a copy there
  std::uint64_t epoch = 0;           // of the namespace now; 0: of none in particular
};
using ReplyBody =
    std::variant<std::monostate, HelloReply, AttachPoolReply, AdmitReply, StepReply, LookupReply,
                 StatusReply, TreeReply, DemoteReply, FlushReply, ClearReply, WhyReply>;

struct Reply {
  ClientId client;
  RequestId request;
  Error error{ErrorCode::ok, {}, {}};
  std::uint32_t retry_after_us = 0;  // with busy and exhausted
  ReplyBody body;                    // monostate with an error
};

// ---------------------------------------------------------------- notices
enum class NoticeKind : std::uint8_t {
  sequence_ready,  // the loads of an admitted sequence are in: code ok, table as replied;
                   // code busy: a load failed, the sequence is as opened, Admit again
  lease_expired,   // pins were dropped, slots fenced: attach again, then Bye with the old id; the
                   // last one of a client that ended with it, since nothing of it is fenced
};
inline constexpr std::uint8_t kNoticeKindCount = 2;
struct Notice {
  ClientId client;
  std::uint64_t number = 0;  // rises by 1 for each client, from 1
  NoticeKind kind = NoticeKind::sequence_ready;
  SequenceId sequence;
  ErrorCode code = ErrorCode::ok;
  Account account;
};

// ---------------------------------------------------------------- transfers and disk
struct TransferBlock {
  SlotId from_slot, to_slot;
  std::uint32_t from_generation = 0, to_generation = 0;
  std::uint32_t checksum = 0;  // expected CRC32C; unused for device -> host
  std::uint32_t depth = 0;
  Digest key, parent_key;  // parent_key: the namespace's digest at depth 0
};
// Copies blocks between two tiers, one layer group. The shell reports TransferDone exactly once.
// device -> host computes checksums; every other direction verifies them (outcome corrupt).
struct StartTransfer {
  TransferId id;
  Tier from = Tier::device, to = Tier::host;
  GroupId group;
  std::uint32_t first_block = 0, block_count = 0;  // in Actions::transfer_blocks
  std::uint32_t first_token = 0;  // in Actions::tokens: block_tokens each; to disk only
  Digest namespace_digest;
};
// The index entry goes now, before the slot is written again.
struct EraseDisk {
  Digest key;
  std::uint32_t depth = 0;
  GroupId group;
  SlotId slot;
  std::uint32_t generation = 0;
};
// Make everything written so far durable, then report DiskSynced{id}.
struct SyncDisk {
  std::uint64_t id = 0;
};

struct Actions {
  std::vector<EraseDisk> erases;
  std::vector<StartTransfer> transfers;
  std::vector<TransferBlock> transfer_blocks;
  std::vector<Token> tokens;
  std::vector<SyncDisk> syncs;
  std::vector<Reply> replies;
  std::vector<Notice> notices;  // new ones; the shell also repeats unacknowledged ones (Engine)
  // Expired clients of which nothing is fenced (any more): unknown from here on, as after a Bye.
  std::vector<ClientId> ended_clients;
  const KvLayout* format_defined =
      nullptr;                   // first AttachPool: make the disk store for this layout
  bool continue_wanted = false;  // call step with Continue when no other input waits

  void clear() {
    erases.clear();
    transfers.clear();
    transfer_blocks.clear();
    tokens.clear();
    syncs.clear();
    replies.clear();
    notices.clear();
    ended_clients.clear();
    format_defined = nullptr;
    continue_wanted = false;
  }
};

}  // namespace kv::core
