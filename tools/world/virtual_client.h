// VirtualClient: a runner that computes nothing but fingerprints. It keeps its own view of its
// sequences from what it is told, finishes its device work later than it sends it, and compares
// every hit block and every block that it reads with what a cold run would have written (invariants
// 10, 11, 12).
//
// Owner: the test; the world outlives it. Threads: none. Cost: O(tokens of a sequence) a call.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/inputs.h"
#include "tools/world/fingerprint.h"
#include "tools/world/virtual_world.h"

namespace kv::world {

class VirtualClient {
 public:
  struct Sequence {
    SequenceId id;
    std::string weights;                      // which namespace
    Fingerprint start = 0;                    // of the namespace
    std::vector<Token> tokens;                // as the service confirmed them
    std::vector<std::vector<SlotId>> tables;  // by group
    bool admitting = false, admitted = false, loading = false, ready = false;
    bool skip_read = false;
    std::uint32_t version = 0;
    std::vector<std::uint32_t> unacknowledged;  // versions with rewritten entries
    std::uint32_t prompt_tokens = 0;
    std::uint32_t base_tokens = 0;  // that it began with: the prompt, or its parent's
    std::uint32_t hit_tokens = 0;
    std::uint32_t computed = 0;   // positions whose work was sent
    std::uint32_t published = 0;  // positions told to be computed
    bool was_cut = false;         // its last block still has the bytes of what was truncated
    std::uint64_t generated = 0;
    core::Account account;    // of the first admission
    core::Account admission;  // of the last one
    bool is_resumed = false;  // it was preempted
  };
  // One item of a step, with what the client expects of it.
  struct Item {
    SequenceId sequence;
    core::StepOp op = core::StepOp::append;
    std::vector<Token> tokens;
    std::uint32_t value = 0;  // of a drop: the block; of a fork: room for new tokens
    bool must_fail = false;
    SequenceId child{};  // of a fork
  };

  VirtualClient(VirtualWorld& world, std::string tenant, core::ClientRole role);

  [[nodiscard]] ClientId id() const { return id_; }
  [[nodiscard]] core::ClientRole role() const { return role_; }
  [[nodiscard]] bool gone() const { return gone_; }
  [[nodiscard]] bool expired() const { return expired_; }
  [[nodiscard]] bool step_waits() const { return step_waits_; }
  [[nodiscard]] std::size_t outstanding() const { return pending_.size(); }
  [[nodiscard]] std::map<SequenceId, Sequence>& sequences() { return sequences_; }
  [[nodiscard]] const std::map<SequenceId, Sequence>& sequences() const { return sequences_; }
  [[nodiscard]] std::uint64_t unfinished_steps() const { return step_ - completed_; }

  // Takes replies and notices from the world. To be called after everything that happens.
  void poll();

  // --- requests; each sends one and polls
  void attach_pool();
  void open(SequenceId sequence, const std::string& weights, std::span<const Token> tokens,
            std::size_t parts, bool skip_read, bool accept_rewrite);
  void admit(SequenceId sequence, std::uint32_t max_new_tokens);
  void lookup(const std::string& weights, std::span<const Token> tokens);
  // As an administrator or an observer; from others it must be refused.
  void why(const std::string& weights, std::span<const Token> tokens);
  // As an administrator; from others it must be refused. Of all namespaces and tiers: nullopt.
  void clear(const std::optional<std::string>& weights, const std::optional<Tier>& tier);
  void set_epoch(const std::string& weights, std::uint64_t epoch);
  // Adds work of the next step: computes up to `count` further positions of a ready sequence.
  std::uint32_t compute(Sequence& sequence, std::uint32_t count);
  void send_step(std::vector<Item> items);
  // Heartbeat, Status, Tree, Demote, Flush: only that it is answered, and how, is checked.
  void ask(const core::InputView& request) { send(request, Expect::success); }
  // A request that must be refused.
  void ask_refused(const core::InputView& request) { send(request, Expect::refusal); }
  // One that may be refused, such as what goes beyond the credits.
  void ask_anything(const core::InputView& request) { send(request, Expect::anything); }
  // The n-th last request once more, byte for byte.
  void repeat(std::size_t n);

  // --- the device and the process
  void complete_steps(std::uint64_t count);  // the oldest unfinished ones
  void bye();                                // finishes its work first
  void die(std::uint64_t writes_done_max);   // some of the work was done, in order

 private:
  enum class Expect : std::uint8_t { success, refusal, anything };
  enum class Kind : std::uint8_t { other, open, admit, step, lookup, why, bye };
  struct Access {
    GroupId group;
    SlotId slot;
    Fingerprint fingerprint = 0;
  };
  struct Copy {
    GroupId group;
    SlotId from, to;
    std::optional<Fingerprint> fingerprint;  // that the source must hold; none: not computed yet
  };
  struct Work {
    std::uint64_t step = 0;
    std::vector<Copy> copies;  // come first
    std::vector<Access> reads, writes;
  };
  struct Pending {
    Kind kind = Kind::other;
    Expect expect = Expect::success;
    std::string name;
    SequenceId sequence;
    std::vector<Token> tokens;  // open: those it adds
    std::string weights;        // why
    Sequence opened;            // open, first part
    bool first = false;
    std::uint32_t block_count = 0;  // admit: what is needed
    std::uint64_t token_count = 0;
    std::vector<Item> items;         // step
    std::uint64_t hit_expected = 0;  // lookup, admit: by the world's own account
    std::uint64_t sent_at = 0;       // the world's step
  };

  void send(core::InputView request, Expect expect);
  void send(core::InputView request, Expect expect, Pending pending);
  [[nodiscard]] NamespaceFields fields_of(const std::string& weights) const;
  [[nodiscard]] std::uint64_t expected_hit(Fingerprint start, std::span<const Token> tokens) const;
  [[nodiscard]] std::uint32_t block_tokens() const { return world_->layout().block_tokens; }
  void problem(const std::string& text);

  void on_reply(const Pending& pending, const core::Reply& reply);
  void on_error(const Pending& pending, const core::Reply& reply);
  void on_open(const Pending& pending);
  void on_admit(const Pending& pending, const core::AdmitReply& reply);
  void on_step(const Pending& pending, const core::StepReply& reply);
  void on_item_done(const Item& item);
  void on_fork(const Item& item);
  void on_copy(const core::BlockCopy& copy);
  void on_delta(const core::TableDelta& delta, std::span<const SlotId> slots);
  void on_bye();
  void on_ended(const core::StepReply::Ended& ended);
  void on_lookup(const Pending& pending, const core::LookupReply& reply);
  void on_why(const Pending& pending, const core::WhyReply& reply);
  void check_reason(const Pending& pending, const core::WhyReply::Span& span, const Digest& key,
                    std::uint64_t token);
  // Of the whole blocks of a prompt.
  [[nodiscard]] std::vector<Digest> keys_of(const std::string& weights,
                                            std::span<const Token> tokens) const;
  void on_notice(const core::Notice& notice);
  void on_ready(Sequence& sequence, const core::Account& account);
  void expire();
  void check_account(const core::Account& account, const std::string& name);
  // Of the first `count` tokens of the sequence.
  [[nodiscard]] static Fingerprint prefix(const Sequence& sequence, std::uint32_t count);
  void execute(const Work& work, std::uint64_t& writes_left);

  VirtualWorld* world_;
  ClientId id_;
  std::string tenant_;
  core::ClientRole role_;
  bool expired_ = false, gone_ = false, step_waits_ = false;
  std::uint64_t last_request_ = 0;
  std::uint64_t last_notice_ = 0;
  std::uint64_t step_ = 0;
  std::uint64_t completed_ = 0;
  std::map<SequenceId, Sequence> sequences_;
  std::map<RequestId, Pending> pending_;
  std::deque<std::vector<std::byte>> sent_;  // the latest requests, as trace records
  Work next_work_;
  std::deque<Work> work_;  // sent, unfinished
};

}  // namespace kv::world
