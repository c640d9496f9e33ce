// The Engine's inner state, shared by its source files only: clients, and everything together. Not
// a public header. Owner: Engine. Threads: none. Cost: see each function.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/flat_map.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/jobs.h"
#include "cachesvc/core/miss_history.h"
#include "cachesvc/core/move.h"
#include "cachesvc/core/prefix_cache.h"
#include "cachesvc/core/retired_queue.h"
#include "cachesvc/core/sequence_state.h"

namespace kv::core {

inline constexpr std::uint32_t kRetryAfterUs = 2'000;
// Slots that the kept replies of one client may name together: 1 MiB of them.
inline constexpr std::uint64_t kKeptReplySlotsMax = 262'144;
// Host slots kept free of saves, so that a load from disk can always land: a quarter, at most this.
inline constexpr std::uint32_t kLandingSlotsMax = 64;
// Records or nodes that one step looks at in passing: less than a block operation each.
inline constexpr std::uint32_t kScanRecordsMax = 16'384;
inline constexpr std::size_t kClearJobsMax = 64;
inline constexpr std::size_t kWhyJobsMax = 16;  // each holds its prompt

// What an ended sequence's slot may keep of each of its vectors: thousands may have been long once.
inline constexpr std::size_t kKeptVectorBytesMax = 65'536;

inline constexpr Error kNoRoom{
    ErrorCode::exhausted, "not enough device slots can be freed now", {}};
inline constexpr Error kBeingUndone{ErrorCode::busy, "the admission before is still being undone",
                                    "sequence"};

// Something of a client that takes effect when its step is completed on the device.
struct FenceEntry {
  enum class Kind : std::uint8_t { release, publish, end, preempt };
  std::uint64_t step = 0;
  Kind kind = Kind::release;
  GroupId group;
  SlotId slot;                        // release
  std::uint32_t sequence = kNoIndex;  // publish, end, preempt
  std::uint64_t sequence_serial = 0;
  std::uint32_t value = 0;
};

// A namespace in which a client has sequences.
struct HeldRoot {
  RootId root;
  std::uint32_t sequences = 0;
};

struct ClientState {
  ClientId id;
  ClientRole role = ClientRole::runner;
  std::string tenant;
  std::uint64_t process_id = 0;
  bool expired = false;
  bool has_pool = false;        // its layout is the pools'
  bool step_suspended = false;  // a Step of this client goes on in Continue
  TimePoint lease_end;
  std::uint64_t last_request = 0;
  std::vector<Reply> replies;  // a ring of credits_per_client
  std::uint32_t replies_next = 0;
  std::uint32_t replies_count = 0;
  std::uint64_t reply_slots = 0;
  std::vector<RequestId> in_progress;
  std::vector<Notice> notices;
  std::uint64_t notice_number = 0;
  std::vector<FenceEntry> fence;  // in step order
  // Once expired: the first ones, whose slots are still to be fenced.
  std::size_t unfenced = 0;
  std::uint32_t fenced_sequences = 0;  // once expired: those that are fencing or fenced
  std::uint64_t step_seq = 0;
  std::uint64_t completed_step = 0;
  std::uint64_t prompt_tokens = 0;  // of its sequences that have not ended
  std::vector<HeldRoot> roots;      // of the same
};

struct Engine::State {
  explicit State(const Options& given);

  // --- engine.cc: dispatch and the request window
  void step(const InputView& input);
  [[nodiscard]] ClientState* enter(const RequestHeader& header, bool from_expired);
  void reply(ClientState& client, RequestId request, ReplyBody body);
  void refuse(ClientState& client, RequestId request, const Error& error);
  void send(ClientState& client, Reply answer);
  void defer(ClientState& client, RequestId request) { client.in_progress.push_back(request); }
  [[nodiscard]] bool allowed(ClientState& client, RequestId request, bool observer_may);
  [[nodiscard]] bool is_admin(ClientState& client, RequestId request);
  void run_jobs();
  [[nodiscard]] bool budget_left() const { return work_ < kStepBlocksMax; }

  // --- clients.cc
  [[nodiscard]] ClientState* find_client(ClientId id);
  void on(const ClientAttached& input);
  void on(const ClientGone& input);
  void on(const Hello& input);
  void on(const Heartbeat& input);
  void on(const Bye& input);
  void on(const Tick& input);
  void expire(ClientState& client);
  void end_if_nothing_is_fenced(const ClientState& client);
  void end_client(ClientId id);
  void run_client_ends();
  void notify(ClientId client, NoticeKind kind, SequenceId sequence, ErrorCode code,
              const Account& account);

  // --- opening.cc: formats, sequences before admission, look-up
  [[nodiscard]] Result<void> define_format(const KvLayout& layout);
  void on(const AttachPool& input);
  void on(const Open& input);
  [[nodiscard]] Result<void> check_prompt(const ClientState& client, std::uint32_t index,
                                          std::uint64_t added);
  // Of that only what concerns the memory of all.
  [[nodiscard]] Result<void> check_prompt_room(const ClientState& client, std::uint64_t whole,
                                               std::uint64_t added);
  void on(const Lookup& input);
  void remember_namespace(RootId root, const Digest& digest, const NamespaceFields& fields,
                          const ClientState& client);
  // The root of a namespace. When there are too many, one that nothing uses gives way: an empty
  // one, else, for a sequence, the least recently used one: its blocks are retired as by a Clear.
  enum class RootFor : std::uint8_t { sequence, recovery };
  [[nodiscard]] Result<RootId> open_root(const Digest& digest, RootFor purpose);
  void find_used_roots();  // into used_roots_
  // A client may hold a quarter of the roots by its sequences.
  [[nodiscard]] Result<void> check_roots_of(const ClientState& client, const Digest& digest);
  void use_root(RootId root) { root_uses_[root.value] = ++root_use_; }
  [[nodiscard]] Digest digest_of(const NamespaceFields& fields, const ClientState& client) const;

  // --- sequences.cc
  [[nodiscard]] std::uint32_t find_sequence(ClientId client, SequenceId id) const;
  [[nodiscard]] std::uint32_t make_sequence(ClientState& client, SequenceId id, RootId root);
  void detach_sequence(std::uint32_t index);  // its id may be used again
  void begin_ending(std::uint32_t index, SequencePhase phase);
  void run_endings();
  [[nodiscard]] bool run_ending(std::uint32_t index);  // true: done
  void finish_ending(std::uint32_t index);
  void grow_table(SequenceState& sequence, std::uint32_t block_count);
  void shrink_table(SequenceState& sequence, std::uint32_t block_count);
  [[nodiscard]] SlotId& entry(SequenceState& sequence, GroupId group, std::uint32_t block) {
    return sequence.table[std::size_t{group.value} * sequence.block_count + block];
  }

  // --- admission.cc
  void on(const Admit& input);
  // Returns the number of blocks that it matched.
  std::uint32_t try_admit(std::uint32_t index);
  [[nodiscard]] bool plan_admission(const SequenceState& sequence);
  void continue_admission(std::uint32_t index);
  void conclude_admission(std::uint32_t index);
  void retry_waiting();

  // --- loads.cc
  void pump_loads();
  void pump_loads_of(std::uint32_t index);
  void check_sources(SequenceState& sequence);
  [[nodiscard]] bool start_load(std::uint32_t index, LoadPhase phase);
  void finish_load(Move& move);
  void add_arrived(std::uint32_t index);
  void become_ready(std::uint32_t index);
  void abandon_load(SequenceState& sequence, std::uint32_t item);
  void release_landing(SequenceState& sequence, std::uint32_t item, bool keep);

  // --- stepping.cc and publishing.cc
  void on(const Step& input);
  [[nodiscard]] bool run_step(StepJob& job);  // true: all items are applied
  [[nodiscard]] bool run_fence(ClientState& client, StepJob& job);
  // nullopt: the budget ended in the middle; the item goes on in Continue
  [[nodiscard]] std::optional<Result<void>> apply_item(ClientState& client, StepJob& job,
                                                       const StepItem& item);
  [[nodiscard]] std::optional<Result<void>> append(StepJob& job, SequenceState& sequence,
                                                   const StepItem& item);
  [[nodiscard]] std::optional<Result<void>> undo_append(StepJob& job, SequenceState& sequence);
  [[nodiscard]] std::optional<Result<void>> request_publish(ClientState& client, StepJob& job,
                                                            std::uint32_t index,
                                                            std::uint32_t value);
  [[nodiscard]] std::optional<Result<void>> truncate(ClientState& client, const StepJob& job,
                                                     SequenceState& sequence, std::uint32_t value);
  void free_sequence(ClientState& client, StepJob& job, std::uint32_t index);
  [[nodiscard]] Result<void> acknowledge(ClientState& client, const StepJob& job,
                                         SequenceState& sequence, std::uint32_t version);
  [[nodiscard]] bool publish(StepJob& job, SequenceState& sequence, std::uint32_t value);
  [[nodiscard]] std::span<const Token> block_at(const SequenceState& sequence,
                                                std::uint32_t block) const {
    return std::span<const Token>(sequence.tokens)
        .subspan(std::size_t{block} * block_tokens_, block_tokens_);
  }
  [[nodiscard]] bool note_uncacheable(SequenceState& sequence, std::uint32_t target,
                                      MissCause cause);
  void publish_block(StepJob& job, SequenceState& sequence, BlockId block, bool known);
  void add_delta(StepJob& job, const SequenceState& sequence, GroupId group, std::uint32_t block,
                 SlotId slot);
  void release_at(ClientState& client, std::uint64_t step, GroupId group, SlotId slot);

  // --- forking.cc and preempting.cc
  [[nodiscard]] std::optional<Result<void>> fork(ClientState& client, StepJob& job,
                                                 std::uint32_t index, const StepItem& item);
  [[nodiscard]] Result<void> begin_fork(ClientState& client, StepJob& job, std::uint32_t index,
                                        const StepItem& item);
  void conclude_fork(StepJob& job, std::uint32_t index);
  [[nodiscard]] Result<void> preempt(ClientState& client, const StepJob& job, std::uint32_t index);
  [[nodiscard]] std::optional<Result<void>> drop(ClientState& client, StepJob& job,
                                                 std::uint32_t index, const StepItem& item);
  static void add_fence(ClientState& client, const FenceEntry& entry);
  [[nodiscard]] std::uint32_t blocks_of(std::uint64_t tokens) const {
    return static_cast<std::uint32_t>((tokens + block_tokens_ - 1) / block_tokens_);
  }

  // --- moves.cc
  void on(const TransferDone& input);
  [[nodiscard]] Move* free_move(Tier from, Tier to);
  [[nodiscard]] std::uint32_t moves_on(Tier from, Tier to) const;
  void start(Move& move);
  void finish(Move& move);
  [[nodiscard]] bool evict_one(Tier tier);
  // Why a copy goes: what the history tells of a block that has none left.
  struct Loss {
    MissReason reason = MissReason::evicted;
    MissCause cause = MissCause::room;
  };
  void drop_block_copy(BlockId block, Tier tier, Loss loss);
  void pin_for(const Move& move);
  void unpin_for(const Move& move);
  void quarantine(BlockId block, Tier tier, const Move& reader, BlockOutcome outcome);
  // All groups' slots of one block, evicting from the tier as needed; false: none taken.
  [[nodiscard]] bool take_slots(Tier tier);  // into slots_

  // --- saves.cc
  enum class SaveSlot : std::uint8_t { taken, stalled, none };
  void queue_save(Tier from, BlockId block);
  void pump_saves(Tier from);
  [[nodiscard]] bool build_save(Move& move);  // false: stalled, or the budget ended
  [[nodiscard]] SaveSlot add_save(Move& move, BlockId block);
  [[nodiscard]] SaveSlot make_save_room(const Move& move);
  void start_save(Move& move);
  void finish_save(Move& move);
  void drop_other_bytes(const Move& move, std::size_t index);
  void on(const Demote& input);
  void on(const Flush& input);
  void on(const DiskSynced& input);
  void run_save_jobs();
  void count_durable();
  [[nodiscard]] bool run_save_job(SaveJob& job);  // true: the reply was sent
  void scan_saves(SaveJob& job);
  void wait_for_saves(SaveJob& job, SaveJob::Phase phase) const;
  [[nodiscard]] bool saves_done(SaveJob& job) const;

  // --- disk_room.cc
  // Whether the disk takes what it is given. Unsure: one block at a time finds out.
  enum class DiskRoom : std::uint8_t { enough, unsure, none };
  void on(const DiskOff& input);
  [[nodiscard]] bool saves_may_start(Tier to) const;
  void judge_disk_room(const Move& move);
  void retry_saves(std::uint64_t origin);
  // Something changed that may have made room.
  void ask_disk_again() {
    if (disk_room_ == DiskRoom::none) disk_room_ = DiskRoom::unsure;
  }

  // --- clearing.cc
  void on(const Clear& input);
  void on(const SetEpoch& input);
  void begin_clear(ClientState& client, ClearJob job);
  void retire(RootId root);
  void outdate(std::uint32_t index);
  [[nodiscard]] StatusReply::NamespaceEpoch& epoch_of(const Digest& digest);
  // A Clear that waits for the end of recovery covers the namespace.
  [[nodiscard]] bool is_being_cleared(const Digest& digest) const;
  void leave_clear_jobs(ClientId client);
  void run_clear_jobs();
  [[nodiscard]] bool run_clear_job(ClearJob& job);  // true: the reply was sent
  void scan_clear(ClearJob& job);
  void drop_upward(ClearJob& job);
  [[nodiscard]] bool concerns(const ClearJob& job, BlockId block) const;
  [[nodiscard]] bool conclude_clear(ClearJob& job);
  [[nodiscard]] bool end_clear_sync(const DiskSynced& input);

  // --- retiring.cc: blocks that a Clear left behind
  void unpin(BlockId block);
  void give_up(BlockId block);
  [[nodiscard]] bool give_up_for(Tier tier);  // until one gave up its copies there
  void give_up_retired();
  [[nodiscard]] bool is_moving(BlockId block) const;  // a move reads or fills a copy of it
  [[nodiscard]] bool is_retired(const Move& move) const;
  [[nodiscard]] std::uint32_t retired_on_disk() const;

  // --- why.cc
  void on(const Why& input);
  void begin_why(WhyJob& job);
  void run_why_jobs();
  [[nodiscard]] bool run_why_job(WhyJob& job);    // true: the reply was sent
  [[nodiscard]] bool walk_siblings(WhyJob& job);  // true: done; so are the next three
  [[nodiscard]] bool ask_namespaces(WhyJob& job);
  [[nodiscard]] bool ask_sequences(WhyJob& job);
  [[nodiscard]] bool explain_blocks(WhyJob& job);
  void explain_stop(WhyJob& job);
  [[nodiscard]] WhyReply::Span explain_block(const WhyJob& job) const;
  [[nodiscard]] WhyReply::Span span_of_fact(const MissHistory::Fact& fact) const;

  // --- recovery.cc
  void on(const DiskFormat& input);
  void on(const Recovered& input);
  [[nodiscard]] bool recover(const RecoveredEntry& entry, std::span<const Token> tokens);

  // --- status.cc
  void on(const Status& input);
  void on(const Tree& input);
  void on(const Continue&) {}
  [[nodiscard]] StatusReply status() const;

  [[nodiscard]] PrefixCache& cache() { return *cache_; }
  [[nodiscard]] std::uint32_t group_count() const { return group_count_; }
  [[nodiscard]] bool tier_on(Tier tier) const { return slot_count_[tier_index(tier)] > 0; }
  [[nodiscard]] std::uint32_t free_slots(Tier tier) const {
    return cache_->pool(tier, GroupId(0)).count(SlotState::free);
  }

  Options options_;
  TimePoint now_{};
  Actions* actions_ = nullptr;  // of the step that runs
  std::uint32_t work_ = 0;      // block operations of this step

  std::unique_ptr<PrefixCache> cache_;  // once a format is defined
  KvLayout layout_;
  std::uint32_t group_count_ = 0;
  std::uint32_t block_tokens_ = 0;
  std::array<std::uint32_t, BlockRecords::kSlotTiers> slot_count_{};
  std::uint32_t landing_reserve_ = 0;

  std::vector<ClientState> clients_;  // by rising id
  std::vector<SequenceState> sequences_;
  std::vector<std::uint32_t> free_sequences_;
  FlatMap sequence_index_;
  std::uint64_t sequence_serial_ = 0;
  std::uint32_t sequences_used_ = 0;
  std::uint64_t prompt_tokens_ = 0;  // of all sequences that have not ended

  std::vector<std::uint32_t> waiting_;    // sequences in phase waiting, first come first served
  std::vector<std::uint32_t> retrying_;   // of them: still to be tried in this round, last first
  std::vector<std::uint32_t> admitting_;  // phase admitting
  std::vector<std::uint32_t> loading_;    // phase loading, in order of admission
  std::vector<std::uint32_t> endings_;    // phases unwinding, fencing, ending
  std::vector<ClientId> fencing_;         // expired clients with slots still to be fenced
  std::vector<ClientId> harmless_;        // expired, nothing of them is fenced: they end now
  std::vector<GroupSlot> freeing_;        // held or fenced device slots of nobody, to become free
  std::vector<std::unique_ptr<StepJob>> step_jobs_;
  StepJob step_job_;  // the one that runs when none is suspended
  std::vector<SaveJob> save_jobs_;
  std::uint64_t sync_id_ = 0;
  std::vector<ClearJob> clear_jobs_;
  std::vector<WhyJob> why_jobs_;
  std::unique_ptr<MissHistory> history_;  // with the cache
  // By RootId, what is known of its namespace: nothing of one that only the disk knew.
  struct NamespaceRecord {
    Digest digest;
    NamespaceTraits traits;
  };
  std::vector<NamespaceRecord> namespaces_;
  RetiredQueue retired_;
  std::uint32_t retired_hops_ = 0;  // of this step, left
  std::vector<StatusReply::NamespaceEpoch> epochs_;
  std::vector<std::uint64_t> root_uses_;  // by root: when a sequence last began or ended in it
  std::vector<std::uint8_t> displaced_;   // by root: retired for another one, not by a Clear
  std::uint64_t root_use_ = 0;
  std::vector<std::uint8_t> used_roots_;  // scratch of open_root
  bool waiting_changed_ = false;
  bool pump_again_ = false;

  std::vector<Move> moves_;
  std::uint64_t move_serial_ = 0;
  SaveQueue save_to_host_;
  SaveQueue save_to_disk_;
  bool disk_refuses_ = false;  // the last save to disk that ended failed
  DiskRoom disk_room_ = DiskRoom::enough;
  TimePoint disk_full_at_{};    // when it became none
  std::vector<BlockId> retry_;  // of the save that ends: blocks to be saved again, parents first
  std::vector<BlockId> chain_;  // scratch of saves
  std::vector<SlotId> slots_;   // scratch of take_slots
  std::vector<BlockId> path_;   // scratch of match
  mutable std::vector<SlotId> view_slots_;

  bool recovering_ = false;
  Counters counters_;
};

}  // namespace kv::core
