// The Engine: the one state machine of cachesvc (README.md). Input in, actions out. The
// service, an in-process user, the simulator and the tests drive the same function; a trace is the
// list of (now, input), and replaying it gives identical actions.
//
// Owner: one; the caller carries out the actions. Threads: none; one caller at a time. No IO, clock
// or randomness in it. Memory is sized at construction and at the first AttachPool or DiskFormat.
// Cost: a step does at most kStepBlocksMax block operations; what is longer goes on in Continue.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "allocator/base/time_point.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/inputs.h"

namespace kv::core {

class PrefixCache;

inline constexpr std::uint32_t kStepBlocksMax = 2'048;

class Engine {
 public:
  struct Options {
    // Bytes of each tier; 0 turns a tier off. Slots are bytes / block bytes (disk: rounded up to 4
    // KiB).
    std::array<std::uint64_t, kTierCount> tier_bytes{};
    std::uint32_t client_capacity = 1'024;
    std::uint32_t sequence_capacity = 4'096;
    std::uint32_t root_capacity = 256;
    std::uint32_t credits_per_client = 64;    // open requests, and replies kept for repetition
    std::uint32_t notices_per_client = 256;   // unacknowledged ones kept
    std::uint32_t device_host_transfers = 4;  // in flight, each direction
    std::uint32_t host_disk_transfers = 4;
    std::uint32_t sequence_tokens_max = 1'048'576;
    // Prompt tokens of sequences that have not ended, admitted or not: of all, and of one client.
    std::uint64_t prompt_tokens_max = std::uint64_t{64} << 20U;
    std::uint64_t client_prompt_tokens_max = std::uint64_t{32} << 20U;
    // What is known of blocks, at most: a format of which more would fit the tiers is too_large.
    std::uint64_t index_bytes_max = std::uint64_t{1} << 30U;
    std::uint32_t message_bytes_max = 1U << 20U;  // told to clients; the shell refuses longer ones
    Duration lease = std::chrono::seconds(10);
    std::uint64_t hash_seed = 0;
    // Blocks whose end is remembered, for Why: 64 bytes each.
    std::uint32_t history_capacity = 65'536;
    bool write_through = true;  // copy published blocks down at once, as credits allow
  };

  explicit Engine(const Options& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;

  // Appends to `actions` (which the caller has cleared). requires: now never goes back.
  void step(TimePoint now, const InputView& input, Actions& actions);

  // Notices of a client not yet acknowledged, oldest first: the shell sends them with each reply.
  [[nodiscard]] std::span<const Notice> unacknowledged(ClientId client) const;

  // --- for checkers, status pages and tests: reading only
  [[nodiscard]] const Options& options() const;
  [[nodiscard]] const PrefixCache* cache() const;  // null before a format is defined
  [[nodiscard]] StatusReply status() const;

  // What checkers need to know of one live sequence.
  struct SequenceView {
    ClientId client;
    SequenceId id;
    std::uint32_t group_count = 0;
    std::span<const Token> tokens;
    std::span<const SlotId> table;  // group-major, block_count entries a group
    std::uint32_t block_count = 0;
    std::uint32_t published_blocks = 0;  // of the sequence: matched or published
    BlockId deepest;                     // pinned block, or none()
    bool admitted = false, loading = false;
    // entries of `table` that the sequence owns alone (private, held slots), one a block
    std::span<const std::uint8_t> owned;
  };
  [[nodiscard]] std::uint32_t sequence_count() const;
  [[nodiscard]] SequenceView sequence(std::uint32_t index) const;  // index < sequence_count()
  struct TransferView {
    TransferId id;
    Tier from, to;
    GroupId group;
    std::span<const BlockId> blocks;
    std::span<const SlotId> from_slots, to_slots;
  };
  [[nodiscard]] std::uint32_t transfer_count() const;
  [[nodiscard]] TransferView transfer(std::uint32_t index) const;
  // Held slots that belong to no sequence and no transfer: freed, waiting for a step to complete,
  // or reserved by an admission that goes on.
  [[nodiscard]] std::span<const SlotId> waiting_slots(Tier tier, GroupId group) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kv::core
