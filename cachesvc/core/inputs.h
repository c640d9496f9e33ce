// What the world tells the Engine: requests of clients and reports of the shell. Plain values;
// spans and string views point into the caller's memory (a verified frame) and are valid for one
// step only. Everything a message could get wrong in form was checked by the wire layer; meaning
// (ids, counts, ranges, order) is checked by the Engine, which answers with an Error and stays as
// it was.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/time_point.h"
#include "allocator/base/token.h"
#include "allocator/kv_layout.h"
#include "allocator/namespace.h"

namespace kv::core {

// ---------------------------------------------------------------- limits (reject, never truncate)
inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::uint32_t kTokensPerMessageMax = 65'536;  // of one Open, Lookup or Step
inline constexpr std::uint32_t kStepItemsMax = 4'096;
inline constexpr std::uint32_t kTransferBlocksMax =
    64;  // of one transfer: a 64-bit map of failures
inline constexpr std::uint32_t kRecoveredEntriesMax = 1'024;  // of one Recovered input
inline constexpr std::uint32_t kTreeNodesMax = 1'000;         // of one Tree reply

// ---------------------------------------------------------------- requests
// Every request can be repeated: the same (client, request) gets the same reply and no second
// effect.
struct RequestHeader {
  ClientId client;
  RequestId request;                       // rises by 1 with each new request of a client, from 1
  std::uint64_t notices_acknowledged = 0;  // notices up to this number arrived
};

enum class ClientRole : std::uint8_t { runner, observer, admin };
inline constexpr std::uint8_t kClientRoleCount = 3;

// First request of a client. `layout` may be null for clients without a pool (tools).
struct Hello {
  RequestHeader header;
  std::uint32_t protocol_version = 0;
  std::string_view name;       // for people: shown by status
  std::uint64_t instance = 0;  // engine instance, rank: one each in the frame
  std::uint32_t rank = 0;
};
struct Heartbeat {
  RequestHeader header;
};
// Orderly end, and for an expired client the acknowledgement of its fence: it touches no slot any
// more.
struct Bye {
  RequestHeader header;
};

// Asks for the device pool in this storage format. The first one of a service makes the pools; a
// later one with another layout is `mismatch` with the field. The memory itself goes over the
// attach socket.
struct AttachPool {
  RequestHeader header;
  const KvLayout* layout = nullptr;  // never null
};

// Declares a sequence (first part) or adds prompt tokens to one that is not yet admitted.
struct Open {
  RequestHeader header;
  SequenceId sequence;
  bool first = true;  // false: more tokens of a sequence opened before
  const NamespaceFields* fields =
      nullptr;  // with first only; its tenant is ignored (the connection's)
  std::span<const Token> tokens;
  bool skip_read = false;  // compute everything; still publish
  bool accept_rewrite =
      true;  // publish may move table entries onto an equal block (see TableDelta)
};

// Matches, plans, pins and reserves the whole prompt and max_new_tokens, all or nothing.
struct Admit {
  RequestHeader header;
  SequenceId sequence;
  std::uint32_t max_new_tokens = 0;
};

enum class StepOp : std::uint8_t {
  append,   // tokens [token_offset, +token_count) of the Step follow the sequence's tokens; slots
            // are granted beyond the reservation where needed
  publish,  // the first `value` tokens of the sequence hold computed KV: full blocks become visible
  truncate,     // keep the first `value` tokens; not below what was published
  free,         // the sequence ends; published blocks stay cached
  acknowledge,  // table version `value` is in use: entries replaced by it are no longer read
  fork,     // Step::children[value] begins as a copy of the sequence, with room for `token_count`
            // tokens more: it shares published blocks, and the others are copied (BlockCopy)
  preempt,  // its slots are given back, its tokens stay: Admit goes on with what is cached by then
  drop,     // no KV is kept at positions [token_offset, +token_count), which are whole blocks; what
            // is computed from now on is not cacheable
};
inline constexpr std::uint8_t kStepOpCount = 8;

struct StepItem {
  SequenceId sequence;
  StepOp op = StepOp::append;
  std::uint32_t token_offset = 0;
  std::uint32_t token_count = 0;
  std::uint32_t value = 0;
};

// One batched request for each scheduler step. Items are applied in order, each with its own
// status. Publishes and freed slots of step s take effect for transfers and others when
// completed_step >= s.
struct Step {
  RequestHeader header;
  std::uint64_t step_seq = 0;        // rises; this step
  std::uint64_t completed_step = 0;  // all steps up to this one are finished on the device
  std::span<const StepItem> items;
  std::span<const Token> tokens;
  std::span<const SequenceId> children{};  // ids of forked sequences
};

// Hits by tier for a prompt; changes nothing.
struct Lookup {
  RequestHeader header;
  const NamespaceFields* fields = nullptr;
  std::span<const Token> tokens;
};

// Where each token of a prompt would come from, and why those that are computed are; changes
// nothing. For administrators and observers.
struct Why {
  RequestHeader header;
  const NamespaceFields* fields = nullptr;  // never null; its tenant is ignored
  std::span<const Token> tokens;
};

struct Status {
  RequestHeader header;
};
struct Tree {
  RequestHeader header;
  std::uint32_t node_limit = kTreeNodesMax;
};
// Copies what is not yet in the tier below, then drops every copy of `tier` that may go. The reply
// comes last.
struct Demote {
  RequestHeader header;
  Tier tier = Tier::device;
};
// Copies everything that can be kept to disk and makes it durable. The reply comes last and counts
// it.
struct Flush {
  RequestHeader header;
};

// What is known and cached of a namespace, or of all of them, is forgotten. With all tiers: no
// older content is hit from here on, the epoch of each namespace rises, and a sequence opened
// before goes on with its slots but publishes nothing any more; the reply comes when the disk has
// durably forgotten it too. With one tier: its copies are dropped, others stay. For admins.
struct Clear {
  RequestHeader header;
  bool all_tiers = true;
  Tier tier = Tier::device;                 // unless all_tiers
  const NamespaceFields* fields = nullptr;  // null: all namespaces; its tenant is ignored
};
// The namespace's content has changed its meaning (new weights): Clear of all its tiers, once an
// epoch. For admins.
struct SetEpoch {
  RequestHeader header;
  const NamespaceFields* fields = nullptr;  // never null; its tenant is ignored
  std::uint64_t epoch = 0;                  // 0: the next one; the current one clears nothing
};

// ---------------------------------------------------------------- reports of the shell
// A process attached (attach socket). The tenant is from its peer credentials. Refused attaches do
// not reach the core.
struct ClientAttached {
  ClientId client;
  ClientRole role = ClientRole::runner;
  std::string_view tenant;
  std::uint64_t process_id = 0;
};
// All processes of the client are dead: nothing of it can be written any more.
struct ClientGone {
  ClientId client;
};

enum class BlockOutcome : std::uint8_t { ok, corrupt, io_error, no_space, cancelled };
inline constexpr std::uint8_t kBlockOutcomeCount = 5;

// Exactly one for each StartTransfer; an unknown or repeated id changes nothing.
struct TransferDone {
  TransferId id;
  std::span<const BlockOutcome> outcomes;    // one a block of the transfer, in its order
  std::span<const std::uint32_t> checksums;  // device -> host: CRC32C of each block; else empty
};

// Entries of the disk index at open, parents before children (by depth), in chunks.
struct RecoveredEntry {
  Digest key;
  Digest parent_key;  // the namespace's digest for depth 0
  Digest namespace_digest;
  std::uint32_t depth = 0;
  GroupId group;
  SlotId slot;
  std::uint32_t generation = 0;
  std::uint32_t checksum = 0;
};
struct Recovered {
  std::span<const RecoveredEntry> entries;
  std::span<const Token> tokens;  // block_tokens for each entry
  bool last = false;              // the index is read to its end
};
// The disk holds blocks of this layout (before the first Recovered), as AttachPool would define it.
struct DiskFormat {
  const KvLayout* layout = nullptr;
};
// Answer to a SyncDisk action.
struct DiskSynced {
  std::uint64_t id = 0;
  bool ok = false;
};

// The disk cannot be used in this run: nothing is saved there, and status shows no slots of it.
// Ignored once the disk tier holds a block: then it did work, and single transfers fail.
struct DiskOff {};

// Time passes: leases, deadlines; at least every kTickTimeMax. `unheard`: no request could be heard
// for so long, because the shell or the machine stood still. Such time counts for nobody's lease.
inline constexpr Duration kTickTimeMax = std::chrono::milliseconds(100);
struct Tick {
  Duration unheard{};  // not negative
};
struct Continue {};  // as long as Actions::continue_wanted says so

using InputView =
    std::variant<Hello, Heartbeat, Bye, AttachPool, Open, Admit, Step, Lookup, Status, Tree, Demote,
                 Flush, ClientAttached, ClientGone, TransferDone, Recovered, DiskFormat, DiskSynced,
                 Tick, Continue, DiskOff, Clear, SetEpoch, Why>;

}  // namespace kv::core
