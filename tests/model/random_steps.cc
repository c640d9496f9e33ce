#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "tests/model/random_run.h"

namespace kv::model {

// Prefixes meet often: prompts are all alike, but for at most one token somewhere.
std::vector<Token> RandomRun::random_tokens(std::uint64_t count_max) {
  std::vector<Token> tokens(1 + prng_.below(count_max), 7);
  if (prng_.chance(1, 3)) tokens[prng_.below(tokens.size())] = 8;
  return tokens;
}

void RandomRun::open(Client& client) {
  if (sequence_count() >= sequences_max_) return;
  const auto tokens = random_tokens(prompt_tokens_max());
  const std::size_t parts = 1 + prng_.below(std::min<std::uint64_t>(3, tokens.size()));
  const SequenceId sequence{prng_.chance(1, 10) ? 1 : next_sequence_++};
  if (client.sequences().contains(sequence)) return;
  note("client " + std::to_string(client.id().value) + " opens " + std::to_string(sequence.value));
  const std::string weights = random_weights();
  const bool skip_read = prng_.chance(1, 10);
  client.open(sequence, weights, tokens, parts, skip_read, prng_.chance(4, 5));
}

bool RandomRun::admit(Client& client) {
  for (auto& [id, sequence] : client.sequences()) {
    if (sequence.admitted || sequence.admitting || prng_.chance(1, 3)) continue;
    note("client " + std::to_string(client.id().value) + " admits " + std::to_string(id.value));
    const std::uint64_t new_tokens_max = prng_.chance(1, 10) ? 40 : 4;
    client.admit(id, static_cast<std::uint32_t>(prng_.below(new_tokens_max)));
    return true;
  }
  return false;
}

// What was cached leaves the device, and is asked for again.
void RandomRun::recall(Client& client) {
  if (client.expired() || client.role() == core::ClientRole::observer || !has_credit(client))
    return;
  note("client " + std::to_string(client.id().value) + " recalls");
  client.ask_anything(core::Demote{});
  for (int i = 0; i < 20 && client.outstanding() > 0; ++i) {
    world_.run_next();
    poll();
  }
  const std::vector<Token> tokens(prompt_tokens_max(), 7);
  if (has_credit(client)) open_and_admit(client, "w0", tokens);
}

void RandomRun::open_and_admit(Client& client, const std::string& weights,
                               std::span<const Token> tokens) {
  if (client.expired()) return;
  const SequenceId sequence{next_sequence_++};
  client.open(sequence, weights, tokens, 1, false, true);
  if (client.sequences().contains(sequence) && has_credit(client)) client.admit(sequence, 1);
}

void RandomRun::lookup(Client& client) {
  if (client.role() != core::ClientRole::runner && prng_.chance(2, 3)) {
    note("why");
    client.why(random_weights(), random_tokens(30));
    return;
  }
  note("lookup");
  const std::string weights = random_weights();
  client.lookup(weights, random_tokens(30));
}

void RandomRun::plan_sequence(Client& client, Client::Sequence& sequence,
                              std::vector<Client::Item>& items) {
  const SequenceId id = sequence.id;
  if (!sequence.ready) {
    // Opened; or its admission waits for another's load; or it loads.
    if (!prng_.chance(1, sequence.admitting || sequence.loading ? 6 : 20)) return;
    events_.freed_waiting += sequence.admitting ? 1 : 0;
    events_.freed_loading += sequence.loading ? 1 : 0;
    items.push_back({id, core::StepOp::free, {}, 0, false});
    return;
  }
  if (!sequence.unacknowledged.empty() && prng_.chance(1, 2)) {
    items.push_back({id, core::StepOp::acknowledge, {}, sequence.version, false});
  }
  const bool whole = sequence.computed == sequence.tokens.size();
  if (prng_.chance(1, whole ? 2 : 30)) {
    items.push_back({id, core::StepOp::free, {}, 0, false});
    return;
  }
  if (prng_.chance(1, 25)) {
    const auto size = static_cast<std::uint32_t>(sequence.tokens.size());
    const std::uint32_t least = std::max(1U, sequence.published);
    const auto value = static_cast<std::uint32_t>(least + prng_.below(size - least + 1));
    items.push_back({id, core::StepOp::truncate, {}, value, false});
    return;
  }
  if (prng_.chance(1, 20)) {
    plan_branch(sequence, items);
    return;
  }
  client.compute(sequence, static_cast<std::uint32_t>(prng_.below(20)));
  if (sequence.tokens.size() < 40 && prng_.chance(1, 5)) {
    items.push_back({id, core::StepOp::append, random_tokens(3), 0, false});
  }
  if (sequence.computed > sequence.published && prng_.chance(2, 3)) {
    items.push_back({id, core::StepOp::publish, {}, sequence.computed, false});
  }
}

void RandomRun::plan_branch(const Client::Sequence& sequence, std::vector<Client::Item>& items) {
  const std::uint32_t blocks = sequence.computed / world_.layout().block_tokens;
  switch (prng_.below(3)) {
    case 0:
      items.push_back({sequence.id, core::StepOp::preempt, {}, 0, false, {}});
      return;
    case 1:
      if (blocks == 0) return;
      items.push_back({sequence.id,
                       core::StepOp::drop,
                       {},
                       static_cast<std::uint32_t>(prng_.below(blocks)),
                       false,
                       {}});
      return;
    default:
      if (sequence_count() >= sequences_max_ + 2) return;
      next_sequence_ = std::max<std::uint64_t>(next_sequence_, 2);  // any client may have opened 1
      items.push_back({sequence.id,
                       core::StepOp::fork,
                       {},
                       static_cast<std::uint32_t>(prng_.below(6)),
                       false,
                       SequenceId{next_sequence_++}});
      return;
  }
}

void RandomRun::plan_bad_item(Client& client, std::vector<Client::Item>& items) {
  const SequenceId unknown{999'999};
  switch (prng_.below(4)) {
    case 0:
      items.push_back({unknown, core::StepOp::append, {1, 2}, 0, true});
      return;
    case 1:
      items.push_back({unknown, core::StepOp::free, {}, 0, true});
      return;
    default:
      break;
  }
  for (const auto& [id, sequence] : client.sequences()) {
    if (!sequence.ready) {
      if (!sequence.admitted && !sequence.admitting)
        items.push_back({id, core::StepOp::append, {1, 2}, 0, true});
      return;
    }
    const auto size = static_cast<std::uint32_t>(sequence.tokens.size());
    const auto op = prng_.chance(1, 2) ? core::StepOp::publish : core::StepOp::truncate;
    items.push_back({id, op, {}, size + 100, true});
    return;
  }
}

void RandomRun::step(Client& client) {
  if (client.step_waits()) return;
  const bool has_work = std::ranges::any_of(
      client.sequences(), [](const auto& one) { return one.second.ready || one.second.admitting; });
  if (!has_work && prng_.chance(3, 4)) {
    if (!admit(client)) open(client);
    return;
  }
  std::vector<Client::Item> items;
  for (auto& [id, sequence] : client.sequences()) {
    if (prng_.chance(4, 5)) plan_sequence(client, sequence, items);
  }
  if (prng_.chance(1, 20)) plan_bad_item(client, items);
  if (client.unfinished_steps() > 4) client.complete_steps(2);
  note("client " + std::to_string(client.id().value) + " steps, " + std::to_string(items.size()) +
       " items");
  client.send_step(std::move(items));
}

void RandomRun::ask_admin(Client& client) {
  note("admin request");
  core::Demote demote;
  switch (prng_.below(8)) {
    case 0:
      client.ask(core::Status{});
      return;
    case 1:
      client.ask(core::Tree{});
      return;
    case 2:
      ask_to_clear(client);
      return;
    case 3:
    case 4:
    case 5:
      demote.tier = prng_.chance(3, 4) ? Tier::device : Tier::host;
      client.ask_anything(demote);
      return;
    case 6:
      client.ask_anything(core::Flush{});
      return;
    default:
      client.ask(core::Heartbeat{});
      return;
  }
}

// In one tier or in all, of one namespace or of all; new epochs as they come, and some again.
void RandomRun::ask_to_clear(Client& client) {
  note("clear or new epoch");
  if (prng_.chance(1, 3)) {
    const std::string weights = random_weights();
    client.set_epoch(weights, prng_.below(4));
    return;
  }
  std::optional<std::string> weights;
  std::optional<Tier> tier;
  if (prng_.chance(1, 2)) weights = random_weights();
  if (prng_.chance(1, 2)) tier = static_cast<Tier>(prng_.below(4));
  client.clear(weights, tier);
}

void RandomRun::ask_as_observer(Client& client) {
  note("an observer asks");
  core::Admit admit;
  admit.sequence = SequenceId{1};
  switch (prng_.below(4)) {
    case 0:
      client.ask(core::Status{});
      return;
    case 1:
      client.ask(core::Tree{});
      return;
    case 2:
      client.ask_refused(prng_.chance(1, 2) ? core::InputView(admit)
                                            : core::InputView(core::Flush{}));
      return;
    default:
      lookup(client);
      return;
  }
}

// Requests that mean nothing: refused, and nothing changes.
void RandomRun::ask_nonsense(Client& client) {
  note("nonsense");
  KvLayout other = world_.layout();
  other.groups[0].head_dim_k *= 2;
  core::AttachPool attach;
  attach.layout = &other;
  core::Admit admit;
  admit.sequence = SequenceId{999'999};
  core::Open open;
  open.sequence = SequenceId{999'999};
  open.first = false;
  const std::vector<Token> tokens = {1, 2, 3};
  open.tokens = tokens;
  core::Step step;
  step.step_seq = 1;
  step.completed_step = 2;
  core::Demote demote;
  demote.tier = Tier::disk;
  switch (prng_.below(5)) {
    case 0:
      client.ask_refused(admit);
      return;
    case 1:
      client.ask_refused(open);
      return;
    case 2:
      client.ask_refused(step);
      return;
    case 3:
      client.ask_refused(demote);
      return;
    default:
      if (world_.engine().cache() != nullptr) client.ask_refused(attach);
      return;
  }
}

}  // namespace kv::model
