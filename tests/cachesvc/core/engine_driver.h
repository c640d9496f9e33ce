// EngineDriver: one Engine with a manual clock, clients that number their requests, gathered
// replies and notices, and transfers under the control of the test. After every step it checks the
// facts that hold always: who holds each slot, counts that add up, copies that are prefix-closed,
// and, when nothing is under way, the pins.
// Owner: a test. Threads: none. Cost: O(slots + blocks) a step for the checks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/block_records.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/prefix_cache.h"
#include "tests/cachesvc/core/scripted_transfers.h"
#include "tests/cachesvc/core/step_script.h"

namespace kv::core {

// One group of 32 bytes a token: with 4 tokens a block has 128 bytes.
[[nodiscard]] KvLayout one_group_layout(std::uint32_t block_tokens = 4);
// Options with exactly these slots for blocks of `one_group_layout(block_tokens)`.
[[nodiscard]] Engine::Options options_with_slots(std::uint32_t device, std::uint32_t host,
                                                 std::uint32_t disk,
                                                 std::uint32_t block_tokens = 4);
// first, first + 1, ...
[[nodiscard]] std::vector<Token> numbered_tokens(Token first, std::uint32_t count);

class EngineDriver {
 public:
  explicit EngineDriver(const Engine::Options& options);

  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] ScriptedTransfers& transfers() { return transfers_; }
  [[nodiscard]] StatusReply status() const { return engine_.status(); }
  [[nodiscard]] const TierStatus& tier(Tier tier);  // of now; valid until the next call

  // --- time
  void advance(Duration duration) { now_ += duration; }
  void tick(Duration unheard = {}) { input(Tick{.unheard = unheard}); }

  // --- what goes on by itself in settle()
  void hold_transfers(bool hold) { hold_transfers_ = hold; }
  void hold_syncs(bool hold) { hold_syncs_ = hold; }
  // From now on copies need not be prefix-closed: the test quarantines some.
  void allow_quarantine() { closed_ = false; }
  // The facts that hold always are looked at after each n-th step only: for long runs.
  void check_every(std::uint64_t n) { check_every_ = n; }

  // --- clients
  ClientId attach(ClientRole role = ClientRole::runner, std::string_view tenant = "tenant");
  // With a pool of one_group_layout.
  ClientId attach_with_pool(std::uint32_t block_tokens = 4, std::string_view tenant = "tenant");
  void acknowledge_notices(ClientId client);  // with every request from now on

  // --- requests
  // With the next request id of the client; only this step.
  template <class Request>
  RequestId send(ClientId client, Request request) {
    Client& sender = clients_[client];
    sender.last = RequestId(sender.last.is_none() ? 1 : sender.last.value + 1);
    return send_as(client, sender.last, std::move(request));
  }
  // With a chosen request id.
  template <class Request>
  RequestId send_as(ClientId client, RequestId id, Request request) {
    Client& sender = clients_[client];
    sender.last = sender.last.is_none() ? id : std::max(sender.last, id);
    request.header = {.client = client, .request = id, .notices_acknowledged = sender.acknowledged};
    input(request);
    return id;
  }
  // Sends, settles, and answers with the reply.
  template <class Request>
  Reply call(ClientId client, Request request) {
    const RequestId id = send(client, std::move(request));
    settle();
    return reply(client, id);
  }
  // Open (all tokens, in parts where needed) and Admit. Fails the test when Open is refused.
  Reply admit(ClientId client, SequenceId sequence, std::span<const Token> tokens,
              std::uint32_t max_new_tokens = 0, const NamespaceFields& fields = {});
  Reply open(ClientId client, SequenceId sequence, std::span<const Token> tokens,
             const NamespaceFields& fields = {});
  LookupReply lookup(ClientId client, std::span<const Token> tokens,
                     const NamespaceFields& fields = {});
  // One step that is completed at once.
  Reply step(ClientId client, const StepScript& script);
  // Admits cold, publishes everything and frees: `tokens` are cached after that.
  void cache_prompt(ClientId client, std::span<const Token> tokens);

  // --- steps
  void input(const InputView& input);
  void settle();  // Continue while wanted; then transfers and syncs, unless held
  [[nodiscard]] bool continue_wanted() const { return continue_wanted_; }
  [[nodiscard]] std::uint64_t continue_count() const { return continue_count_; }
  void finish_transfer(std::size_t index, std::span<const BlockOutcome> outcomes = {});
  void finish_sync(bool ok);
  [[nodiscard]] const std::vector<SyncDisk>& pending_syncs() const { return syncs_; }

  // --- what came
  [[nodiscard]] std::size_t reply_count(ClientId client, RequestId request) const;
  [[nodiscard]] Reply reply(ClientId client, RequestId request) const;  // the last one
  [[nodiscard]] const std::vector<Notice>& notices(ClientId client);
  [[nodiscard]] const Actions& last_actions() const { return actions_; }
  [[nodiscard]] std::optional<Engine::SequenceView> view(ClientId client, SequenceId sequence);
  // The same of one that must be there: fails the test when it is not.
  [[nodiscard]] Engine::SequenceView live(ClientId client, SequenceId sequence);
  [[nodiscard]] std::uint32_t format_count() const { return format_count_; }

 private:
  struct Client {
    RequestId last;
    std::uint64_t acknowledged = 0;
    std::uint64_t step_seq = 0;
    std::vector<Notice> notices;
  };
  void gather();
  void check_counts();
  void check_owners();
  void check_closed();
  void check_pins();

  Engine engine_;
  Actions actions_;
  ScriptedTransfers transfers_;
  TimePoint now_{};
  std::uint64_t client_count_ = 0;
  std::map<ClientId, Client> clients_;
  std::map<std::pair<ClientId, RequestId>, std::vector<Reply>> replies_;
  std::vector<SyncDisk> syncs_;
  TierStatus tier_;
  std::uint64_t continue_count_ = 0;
  std::uint32_t format_count_ = 0;
  bool continue_wanted_ = false;
  bool hold_transfers_ = false;
  bool hold_syncs_ = false;
  bool closed_ = true;
  std::uint64_t check_every_ = 1;
  std::uint64_t step_count_ = 0;
};

}  // namespace kv::core
