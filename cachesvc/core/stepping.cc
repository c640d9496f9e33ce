// Steps: the batched request of a scheduler step, item by item.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

Result<void> check_step(const Step& step, const ClientState& client) {
  if (step.step_seq <= client.step_seq) {
    return Error{ErrorCode::invalid, "step_seq must rise with every step", "step_seq"};
  }
  if (step.step_seq == ~std::uint64_t{0}) {
    return Error{ErrorCode::invalid, "no step can follow this one", "step_seq"};
  }
  if (step.completed_step > step.step_seq) {
    return Error{ErrorCode::invalid, "a step cannot be completed before it is sent",
                 "completed_step"};
  }
  if (step.items.size() > kStepItemsMax || step.tokens.size() > kTokensPerMessageMax) {
    return Error{ErrorCode::too_large, "too many items or tokens in a step", "items"};
  }
  if (step.children.size() > kStepItemsMax) {
    return Error{ErrorCode::too_large, "too many children in a step", "children"};
  }
  for (const StepItem& item : step.items) {
    const bool outside = item.op == StepOp::append &&
                         std::uint64_t{item.token_offset} + item.token_count > step.tokens.size();
    if (outside) {
      return Error{ErrorCode::invalid, "an item names tokens outside the step's", "token_offset"};
    }
    if (item.op == StepOp::fork && item.value >= step.children.size()) {
      return Error{ErrorCode::invalid, "an item names a child outside the step's", "value"};
    }
  }
  return {};
}

}  // namespace

void Engine::State::on(const Step& input) {
  const ClientState* known = find_client(input.header.client);
  if (known != nullptr && known->step_suspended &&
      input.header.request.value > known->last_request) {
    // Not remembered: the same id may be sent again once the step before is done.
    ++counters_.refused_requests;
    actions_->replies.push_back({input.header.client,
                                 input.header.request,
                                 {ErrorCode::busy, "the step before goes on", {}},
                                 kRetryAfterUs,
                                 {}});
    return;
  }
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !allowed(*client, input.header.request, false)) return;
  if (const auto checked = check_step(input, *client); !checked) {
    refuse(*client, input.header.request, checked.error());
    return;
  }
  client->step_seq = input.step_seq;
  client->completed_step = std::max(client->completed_step, input.completed_step);

  StepJob& job = step_job_;
  job.client = input.header.client;
  job.request = input.header.request;
  job.step_seq = input.step_seq;
  job.items = input.items;
  job.tokens = input.tokens;
  job.children = input.children;
  job.next_item = 0;
  job.child = kNoIndex;
  job.reply = {};
  if (run_step(job)) {
    reply(*client, job.request, std::move(job.reply));
    return;
  }
  auto suspended = std::make_unique<StepJob>(std::move(job));
  suspended->own_items.assign(input.items.begin(), input.items.end());
  suspended->own_tokens.assign(input.tokens.begin(), input.tokens.end());
  suspended->own_children.assign(input.children.begin(), input.children.end());
  suspended->items = suspended->own_items;
  suspended->tokens = suspended->own_tokens;
  suspended->children = suspended->own_children;
  step_jobs_.push_back(std::move(suspended));
  client->step_suspended = true;
  defer(*client, input.header.request);
  job = {};
}

bool Engine::State::run_step(StepJob& job) {
  ClientState* client = find_client(job.client);
  if (client == nullptr) return true;
  if (!run_fence(*client, job)) return false;
  for (; job.next_item < job.items.size(); ++job.next_item) {
    if (!budget_left()) return false;
    const auto result = apply_item(*client, job, job.items[job.next_item]);
    if (!result.has_value()) return false;
    if (!result->has_value()) {
      job.reply.failures.push_back({job.next_item, result->error()});
    }
  }
  return true;
}

// What waited for steps that are completed now, in the order in which it was asked for.
bool Engine::State::run_fence(ClientState& client, StepJob& job) {
  std::size_t done = 0;
  bool finished = true;
  for (; done < client.fence.size(); ++done) {
    const FenceEntry& entry = client.fence[done];
    if (entry.step > client.completed_step) break;
    if (!budget_left()) {
      finished = false;
      break;
    }
    if (entry.kind == FenceEntry::Kind::release) {
      cache().release_slot(Tier::device, entry.group, entry.slot);
      ++work_;
      continue;
    }
    SequenceState& sequence = sequences_[entry.sequence];
    const bool preempting = sequence.phase == SequencePhase::preempting;
    if (sequence.serial != entry.sequence_serial ||
        (sequence.phase != SequencePhase::admitted && !preempting)) {
      continue;
    }
    if (entry.kind == FenceEntry::Kind::end) {
      begin_ending(entry.sequence, SequencePhase::ending);
    } else if (entry.kind == FenceEntry::Kind::preempt) {
      if (preempting) begin_ending(entry.sequence, SequencePhase::unwinding);
    } else if (!publish(job, sequence, entry.value)) {
      finished = false;
      break;
    }
  }
  client.fence.erase(client.fence.begin(),
                     client.fence.begin() + static_cast<std::ptrdiff_t>(done));
  return finished;
}

std::optional<Result<void>> Engine::State::apply_item(ClientState& client, StepJob& job,
                                                      const StepItem& item) {
  const std::uint32_t index = find_sequence(job.client, item.sequence);
  if (index == kNoIndex) {
    return Error{ErrorCode::not_found, "no such sequence is open", "sequence"};
  }
  SequenceState& sequence = sequences_[index];
  if (item.op == StepOp::free) {
    free_sequence(client, job, index);
    return Result<void>();
  }
  if (sequence.phase != SequencePhase::admitted) {
    return Error{ErrorCode::invalid, "the sequence is not admitted and ready", "sequence"};
  }
  switch (item.op) {
    case StepOp::append:
      return append(job, sequence, item);
    case StepOp::publish:
      return request_publish(client, job, index, item.value);
    case StepOp::truncate:
      return truncate(client, job, sequence, item.value);
    case StepOp::acknowledge:
      return acknowledge(client, job, sequence, item.value);
    case StepOp::fork:
      return fork(client, job, index, item);
    case StepOp::preempt:
      return preempt(client, job, index);
    case StepOp::drop:
      return drop(client, job, index, item);
    case StepOp::free:
      break;
  }
  return Error{ErrorCode::invalid, "unknown operation", "op"};
}

std::optional<Result<void>> Engine::State::append(StepJob& job, SequenceState& sequence,
                                                  const StepItem& item) {
  if (job.append_undone) return undo_append(job, sequence);
  const std::uint64_t tokens = sequence.tokens.size() + std::uint64_t{item.token_count};
  if (tokens > options_.sequence_tokens_max) {
    return Error{ErrorCode::too_large, "too many tokens in a sequence", "token_count"};
  }
  const auto wanted = static_cast<std::uint32_t>((tokens + block_tokens_ - 1) / block_tokens_);
  if (wanted > sequence.block_count) {
    if (wanted > slot_count_[tier_index(Tier::device)]) {
      return Error{ErrorCode::too_large, "the sequence can never fit the device tier",
                   "token_count"};
    }
    if (job.append_from == kNoIndex) {
      job.append_from = sequence.block_count;
      job.append_version = sequence.table_version;
      job.append_slots = job.reply.slots.size();
    }
    if (wanted - sequence.block_count >
        free_slots(Tier::device) + cache().evictable(Tier::device, GroupId(0))) {
      return undo_append(job, sequence);
    }
    while (sequence.block_count < wanted) {
      if (!budget_left()) return std::nullopt;
      if (!take_slots(Tier::device)) return undo_append(job, sequence);
      const std::uint32_t block = sequence.block_count;
      grow_table(sequence, block + 1);
      sequence.owned[block] = 1;
      ++sequence.table_version;
      for (std::uint32_t g = 0; g < group_count_; ++g) {
        entry(sequence, GroupId(g), block) = slots_[g];
        add_delta(job, sequence, GroupId(g), block, slots_[g]);
      }
    }
  }
  job.append_from = kNoIndex;
  const auto added = job.tokens.subspan(item.token_offset, item.token_count);
  sequence.tokens.insert(sequence.tokens.end(), added.begin(), added.end());
  sequence.account.generated_tokens += item.token_count;
  counters_.generated_tokens += item.token_count;
  return Result<void>();
}

// All or nothing: what the steps before were granted goes back, as many steps as that takes, and
// the client hears nothing of it.
std::optional<Result<void>> Engine::State::undo_append(StepJob& job, SequenceState& sequence) {
  job.append_undone = true;
  std::uint32_t left = sequence.block_count;
  for (; left > job.append_from && budget_left(); --left) {
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      release_at(*find_client(job.client), 0, GroupId(g), entry(sequence, GroupId(g), left - 1));
    }
  }
  shrink_table(sequence, left);
  if (left > job.append_from) return std::nullopt;
  job.append_undone = false;
  sequence.table_version = job.append_version;
  std::vector<TableDelta>& deltas = job.reply.deltas;
  while (!deltas.empty() && deltas.back().slot_offset >= job.append_slots) deltas.pop_back();
  if (!deltas.empty()) {  // a run that went on from the item before
    TableDelta& last = deltas.back();
    const auto kept = static_cast<std::uint32_t>(job.append_slots - last.slot_offset);
    if (last.slot_count > kept) {
      last.slot_count = kept;
      last.version = job.append_version;
    }
  }
  job.reply.slots.resize(job.append_slots);
  job.append_from = kNoIndex;
  ++counters_.exhausted;
  return kNoRoom;
}

std::optional<Result<void>> Engine::State::truncate(ClientState& client, const StepJob& job,
                                                    SequenceState& sequence, std::uint32_t value) {
  if (value < sequence.publish_requested || value > sequence.tokens.size()) {
    return Error{ErrorCode::invalid, "only unpublished tokens can be taken back", "value"};
  }
  // What follows would go into a block that has no slot.
  if (value % block_tokens_ != 0 && entry(sequence, GroupId(0), value / block_tokens_).is_none()) {
    return Error{ErrorCode::invalid, "the last token kept is in a block that was dropped", "value"};
  }
  sequence.account.generated_tokens = value - std::min(value, sequence.base_tokens);
  sequence.tokens.resize(value);
  const std::uint32_t wanted =
      std::max(sequence.published_blocks, (value + block_tokens_ - 1) / block_tokens_);
  std::uint32_t kept = sequence.block_count;
  const std::uint64_t step = std::max(job.step_seq, sequence.held_until);
  for (; kept > wanted && budget_left(); --kept) {
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      const SlotId slot = entry(sequence, GroupId(g), kept - 1);
      if (!slot.is_none()) release_at(client, step, GroupId(g), slot);
    }
  }
  shrink_table(sequence, kept);
  if (kept > wanted) return std::nullopt;
  return Result<void>();
}

// The account goes out at once; the slots follow when the step is completed.
void Engine::State::free_sequence(ClientState& client, StepJob& job, std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  job.reply.ended.push_back({sequence.id, sequence.account});
  // A preemption that waits for its step becomes an end that does.
  if (sequence.phase == SequencePhase::preempting) sequence.phase = SequencePhase::admitted;
  const bool admitted = sequence.phase == SequencePhase::admitted;
  if (!admitted &&
      (sequence.phase == SequencePhase::waiting || sequence.phase == SequencePhase::admitting)) {
    refuse(client, sequence.admit_request,
           {ErrorCode::not_found, "the sequence was freed before its admission", "sequence"});
  }
  if (admitted && !sequence.deepest.is_none()) {
    cache().touch(sequence.deepest, PrefixCache::Use::by_the_same_request);
  }
  const std::uint64_t step = std::max(job.step_seq, sequence.held_until);
  if (!admitted || client.completed_step >= step) {
    begin_ending(index, SequencePhase::ending);
    return;
  }
  detach_sequence(index);
  add_fence(client, {step, FenceEntry::Kind::end, GroupId::none(), SlotId::none(), index,
                     sequence.serial, 0});
}

Result<void> Engine::State::acknowledge(ClientState& client, const StepJob& job,
                                        SequenceState& sequence, std::uint32_t version) {
  if (version > sequence.table_version) {
    return Error{ErrorCode::invalid, "no such version of the table was sent", "value"};
  }
  std::erase_if(sequence.replaced, [&](const ReplacedSlot& replaced) {
    if (replaced.version > version) return false;
    release_at(client, std::max(job.step_seq, sequence.held_until), replaced.group, replaced.slot);
    return true;
  });
  return {};
}

void Engine::State::release_at(ClientState& client, std::uint64_t step, GroupId group,
                               SlotId slot) {
  ++work_;
  if (client.completed_step >= step) {
    if (budget_left()) {
      cache().release_slot(Tier::device, group, slot);
    } else {
      freeing_.push_back({group, slot});
    }
    return;
  }
  add_fence(client, {step, FenceEntry::Kind::release, group, slot, kNoIndex, 0, 0});
}

void Engine::State::add_delta(StepJob& job, const SequenceState& sequence, GroupId group,
                              std::uint32_t block, SlotId slot) {
  std::vector<TableDelta>& deltas = job.reply.deltas;
  const auto offset = static_cast<std::uint32_t>(job.reply.slots.size());
  // With one group, entries that follow each other become one run.
  if (group_count_ == 1 && !deltas.empty()) {
    TableDelta& last = deltas.back();
    if (last.sequence == sequence.id && last.first_block + last.slot_count == block &&
        last.slot_offset + last.slot_count == offset) {
      last.version = sequence.table_version;
      ++last.slot_count;
      job.reply.slots.push_back(slot);
      return;
    }
  }
  deltas.push_back({sequence.id, group, sequence.table_version, block, offset, 1});
  job.reply.slots.push_back(slot);
}

}  // namespace kv::core
