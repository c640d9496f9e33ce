// Session: what a model runner asks of the service, as one interface: implemented by Client (over
// the wire) and by the in-process driver of the tests. Value types of the client side.
//
// A sequence's life: open (tokens, in parts) -> admit (pins the cached prefix, reserves slots) ->
// steps (append, publish, ...) -> free. The runner writes KV into the slots of its block table, and
// reads cached KV from them, in the pool's memory and without a copy. Threads: one caller at a
// time. Every call ends by its deadline (error `deadline`).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "allocator/kv_layout.h"
#include "allocator/namespace.h"

namespace kv::client {

using Deadline = std::chrono::steady_clock::time_point;
[[nodiscard]] inline Deadline in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// The device pool as mapped in this process.
struct Pool {
  std::span<std::byte> memory;
  struct Group {
    std::uint64_t offset = 0;  // of slot 0
    std::uint64_t slot_bytes = 0;
    std::uint32_t slot_count = 0;
  };
  std::vector<Group> groups;
};

struct Account {
  std::uint64_t prompt_tokens = 0;
  std::array<std::uint64_t, kTierCount> hit_tokens{};  // by Tier
  std::uint64_t computed_tokens = 0;
  std::uint64_t generated_tokens = 0;
  [[nodiscard]] std::uint64_t hits() const {
    std::uint64_t sum = 0;
    for (const auto tokens : hit_tokens) sum += tokens;
    return sum;
  }
};

struct OpenOptions {
  bool skip_read = false;
  bool accept_rewrite = true;
};

struct Admission {
  Account account;  // hits() tokens of the prompt need no compute
  std::uint32_t table_version = 0;
  std::uint32_t block_count = 0;
  std::vector<SlotId> slots;  // group-major: groups x block_count
};

struct TableDelta {
  SequenceId sequence;
  GroupId group;
  std::uint32_t version = 0;
  std::uint32_t first_block = 0;
  std::vector<SlotId> slots;
};

// To be done on the device before the work of the next step: the first `token_count` tokens of a
// block go into another slot.
struct BlockCopy {
  SequenceId sequence;  // whose table names the new slot
  GroupId group;
  SlotId from_slot, to_slot;
  std::uint32_t token_count = 0;
};

struct StepRequest {
  struct Append {
    SequenceId sequence;
    std::vector<Token> tokens;
  };
  struct Publish {
    SequenceId sequence;
    std::uint32_t computed_tokens = 0;
  };
  struct Truncate {
    SequenceId sequence;
    std::uint32_t token_count = 0;
  };
  struct Acknowledge {
    SequenceId sequence;
    std::uint32_t table_version = 0;
  };
  // The KV of whole blocks is given up; what is computed from then on is not cached.
  struct Drop {
    SequenceId sequence;
    std::uint32_t first_token = 0;
    std::uint32_t token_count = 0;
  };
  // A new sequence that begins as a copy, with room for `max_new_tokens` more: its table comes as
  // a delta, and what it does not share as copies to do.
  struct Fork {
    SequenceId parent;
    SequenceId child;
    std::uint32_t max_new_tokens = 0;
  };
  std::uint64_t step_seq = 0;
  std::uint64_t completed_step = 0;
  // Applied in this order: acknowledge, append, publish, truncate, drop, fork, preempt, free.
  std::vector<Acknowledge> acknowledge;
  std::vector<Append> append;
  std::vector<Publish> publish;
  std::vector<Truncate> truncate;
  std::vector<Drop> drop;
  std::vector<Fork> fork;
  std::vector<SequenceId> preempt;  // slots go back, tokens stay: admit it again
  std::vector<SequenceId> free;
};

struct StepOutcome {
  struct Failure {
    SequenceId sequence;
    Error error;
  };
  struct Ended {
    SequenceId sequence;
    Account account;
  };
  std::vector<Failure> failures;  // items not listed succeeded
  std::vector<TableDelta> deltas;
  std::vector<Ended> ended;
  std::vector<BlockCopy> copies;
};

class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  Session(Session&&) = delete;
  Session& operator=(Session&&) = delete;
  virtual ~Session() = default;

  // Maps the device pool for this layout. fails: mismatch (the field), exhausted, deadline,
  // unavailable.
  [[nodiscard]] virtual Result<Pool> attach_pool(const KvLayout& layout, Deadline deadline) = 0;
  // Any number of tokens: split into messages here.
  [[nodiscard]] virtual Result<void> open(SequenceId sequence, const NamespaceFields& fields,
                                          std::span<const Token> tokens, const OpenOptions& options,
                                          Deadline deadline) = 0;
  // Returns when the cached prefix is in the pool; loads again where one failed. fails: exhausted
  // (nothing reserved; try again when something was freed), too_large, not_found, deadline.
  [[nodiscard]] virtual Result<Admission> admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                                Deadline deadline) = 0;
  [[nodiscard]] virtual Result<StepOutcome> step(const StepRequest& request, Deadline deadline) = 0;
  // After an error of step: whether the blocks read and written so far were this session's all the
  // time. False once the lease ran out: others may have been given them, and what was computed from
  // them is worthless.
  [[nodiscard]] virtual bool held_its_blocks() { return true; }
};

}  // namespace kv::client
