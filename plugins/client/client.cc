#include "plugins/client/client.h"

#include <algorithm>
#include <utility>

#include "plugins/client/connection.h"
#include "plugins/client/default_dir.h"

namespace kv::client {
namespace {

constexpr Error kDetached{ErrorCode::unavailable, "not attached: attach again", {}};
constexpr Error kForked{
    ErrorCode::stale, "this process forked from the one that attached: attach again", {}};
constexpr Error kForeignSlot{ErrorCode::corrupt, "the service named a slot outside the pool",
                             "slots"};

}  // namespace

Client::Client(const Options& options) : options_(options) {}
Client::~Client() { end_connection(); }

Result<std::unique_ptr<Client>> Client::connect(const Options& options) {
  std::unique_ptr<Client> made(new Client(options));
  KV_TRY_VOID(made->reattach(options.deadline));
  return made;
}

Result<void> Client::reattach(Deadline deadline) {
  end_connection();
  pending_.clear();
  groups_.clear();
  numbers_ = StepNumbers();
  KV_TRY(auto addresses, find_addresses(options_.dir, options_.endpoint));
  KV_TRY(connection_, Connection::open({.addresses = std::move(addresses),
                                        .name = options_.name,
                                        .admin = options_.role == Role::admin,
                                        .instance = options_.instance,
                                        .rank = options_.rank},
                                       deadline));
  return {};
}

Result<Connection*> Client::attached() const {
  if (connection_ == nullptr) return kDetached;
  if (!connection_->is_of_this_process()) return kForked;
  return connection_.get();
}

// A forked child cannot end what its parent's threads run: it would wait for them for ever, and say
// Bye in its parent's name. The memory stays until the child ends.
void Client::end_connection() {
  if (connection_ != nullptr && !connection_->is_of_this_process()) {
    connection_.release()->abandon();
  }
  connection_.reset();
}

Result<Pool> Client::attach_pool(const KvLayout& layout, Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  KV_TRY(auto answer, connection->ask<PoolAnswer>(PoolMessage{&layout}, deadline));
  if (answer.groups.size() != layout.groups.size()) {
    return Error{ErrorCode::corrupt, "the pool has other groups than the layout", "groups"};
  }
  KV_TRY(memory_, connection->device_pool(answer.pool_bytes, deadline));
  groups_ = answer.groups;
  return Pool{.memory = memory_.bytes(), .groups = std::move(answer.groups)};
}

Result<std::span<const std::byte>> Client::attach_arena(Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  KV_TRY(arena_, connection->host_arena(deadline));
  return std::span<const std::byte>(arena_.bytes());
}

Result<void> Client::open(SequenceId sequence, const NamespaceFields& fields,
                          std::span<const Token> tokens, const OpenOptions& options,
                          Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  OpenMessage message{.sequence = sequence, .fields = &fields, .tokens = {}, .options = options};
  do {
    const auto count = std::min(tokens.size(), connection_->limits().open_tokens());
    message.tokens = tokens.first(count);
    tokens = tokens.subspan(count);
    KV_TRY(const auto reply, connection->call(message, deadline));
    message.fields = nullptr;
  } while (!tokens.empty());
  return {};
}

Result<Admission> Client::admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  while (true) {
    Pending& pending = pending_[sequence];
    const bool fresh = !pending.request.has_value() || pending.max_new_tokens != max_new_tokens;
    if (fresh) {
      pending = Pending{.request = {}, .max_new_tokens = max_new_tokens, .answer = {}};
      connection->forget(sequence);
    }
    if (!pending.answer.has_value()) {
      auto answer = connection->ask<AdmitAnswer>(AdmitMessage{sequence, max_new_tokens}, deadline,
                                                 &pending.request);
      if (!answer) {
        if (answer.error().code != ErrorCode::deadline) pending_.erase(sequence);
        return answer.error();
      }
      pending.answer = std::move(*answer);
    }
    ErrorCode code = ErrorCode::ok;
    if (!pending.answer->ready) {
      KV_TRY(code, connection->wait_ready(sequence, deadline));
    }
    const Admission admission = std::move(pending.answer->admission);
    pending_.erase(sequence);
    if (code == ErrorCode::ok) {
      KV_TRY_VOID(check_admission(admission));
      return admission;
    }
    // busy: a load failed and the sequence is as opened; the next match knows better.
    if (code != ErrorCode::busy) return Error{code, "the cached prefix could not be loaded", {}};
  }
}

Result<StepOutcome> Client::step(const StepRequest& request, Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  KV_TRY_VOID(numbers_.begin(request.step_seq, request.completed_step));
  StepOutcome outcome;
  batch_.begin(request, connection_->limits());
  StepAnswer answer;
  while (batch_.next(answer.failures)) {
    const std::uint64_t number = numbers_.next();
    const StepMessage message{.step_seq = number,
                              .completed_step = numbers_.completed(),
                              .items = batch_.items(),
                              .tokens = batch_.tokens(),
                              .children = batch_.children()};
    KV_TRY(answer, connection->ask<StepAnswer>(message, deadline));
    KV_TRY_VOID(take_step_answer(answer, outcome));
  }
  for (const SequenceId sequence : request.free) {
    pending_.erase(sequence);
    connection->forget(sequence);
  }
  return outcome;
}

bool Client::held_its_blocks() {
  const auto connection = attached();
  return connection && (*connection)->held_its_blocks();
}

Result<void> Client::take_step_answer(const StepAnswer& answer, StepOutcome& outcome) const {
  for (const auto& failure : answer.failures) {
    if (failure.item >= batch_.items().size()) {
      return Error{ErrorCode::corrupt, "a reply names an item that was not sent", "failures"};
    }
    outcome.failures.push_back({batch_.items()[failure.item].sequence, failure.error});
  }
  for (const TableDelta& delta : answer.deltas) {
    if (delta.group.value >= groups_.size()) return kForeignSlot;
    const std::uint32_t slot_count = groups_[delta.group.value].slot_count;
    for (const SlotId slot : delta.slots) {
      if (slot.value >= slot_count) return kForeignSlot;
    }
    outcome.deltas.push_back(delta);
  }
  for (const BlockCopy& copy : answer.copies) {
    if (copy.group.value >= groups_.size()) return kForeignSlot;
    const std::uint32_t slot_count = groups_[copy.group.value].slot_count;
    if (copy.from_slot.value >= slot_count || copy.to_slot.value >= slot_count) {
      return kForeignSlot;
    }
    outcome.copies.push_back(copy);
  }
  outcome.ended.insert(outcome.ended.end(), answer.ended.begin(), answer.ended.end());
  return {};
}

// The caller writes to these slots, so they are checked against the mapping.
Result<void> Client::check_admission(const Admission& admission) const {
  if (admission.slots.size() != std::size_t{admission.block_count} * groups_.size()) {
    return kForeignSlot;
  }
  for (std::size_t i = 0; i < admission.slots.size(); ++i) {
    const std::size_t group = i / admission.block_count;
    if (admission.slots[i].value >= groups_[group].slot_count) return kForeignSlot;
  }
  return {};
}

Result<LookupHits> Client::lookup(const NamespaceFields& fields, std::span<const Token> tokens,
                                  Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  return connection->ask<LookupHits>(LookupMessage{&fields, tokens}, deadline);
}

Result<WhyAnswer> Client::why(const NamespaceFields& fields, std::span<const Token> tokens,
                              Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  return connection->ask<WhyAnswer>(WhyMessage{&fields, tokens}, deadline);
}

Result<ServiceStatus> Client::status(Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  return connection->ask<ServiceStatus>(StatusMessage{}, deadline);
}

Result<TreeView> Client::tree(std::uint32_t node_limit, Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  return connection->ask<TreeView>(TreeMessage{node_limit}, deadline);
}

Result<DemoteOutcome> Client::demote(Tier tier, Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  return connection->ask<DemoteOutcome>(DemoteMessage{tier}, deadline);
}

Result<FlushOutcome> Client::flush(Deadline deadline) {
  KV_TRY(Connection* const connection, attached());
  return connection->ask<FlushOutcome>(FlushMessage{}, deadline);
}

Result<ClearOutcome> Client::clear(std::optional<Tier> tier, const NamespaceFields* fields,
                                   Deadline deadline) {
  if (connection_ == nullptr) return kDetached;
  return connection_->ask<ClearOutcome>(ClearMessage{tier, fields}, deadline);
}

Result<ClearOutcome> Client::set_epoch(const NamespaceFields& fields, std::uint64_t epoch,
                                       Deadline deadline) {
  if (connection_ == nullptr) return kDetached;
  return connection_->ask<ClearOutcome>(SetEpochMessage{&fields, epoch}, deadline);
}

Id128 Client::boot() const { return connection_ == nullptr ? Id128() : connection_->boot(); }

}  // namespace kv::client
