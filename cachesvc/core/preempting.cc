// Giving slots back while a sequence lives on: all of them (preempt), or those of some blocks
// (drop), after which what it computes is not what a cold run would compute.
#include <algorithm>
#include <iterator>

#include "cachesvc/core/engine_state.h"

namespace kv::core {
namespace {

constexpr std::uint32_t kScannedPerWork = 64;  // entries looked at, for a block operation

}  // namespace

// Its tokens stay, and count as a prompt's from here on: they take memory that no slot bounds.
Result<void> Engine::State::preempt(ClientState& client, const StepJob& job, std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  const std::uint64_t counted =
      std::min<std::uint64_t>(sequence.prompt_tokens, sequence.tokens.size());
  const std::uint64_t more = sequence.tokens.size() - counted;
  KV_TRY_VOID(check_prompt_room(client, sequence.tokens.size(), more));
  sequence.prompt_tokens += more;
  client.prompt_tokens += more;
  prompt_tokens_ += more;
  sequence.is_resumed = true;
  ++counters_.preempted_sequences;
  if (!sequence.deepest.is_none()) {
    cache().touch(sequence.deepest, PrefixCache::Use::by_the_same_request);
  }
  const std::uint64_t step = std::max(job.step_seq, sequence.held_until);
  if (client.completed_step >= step) {
    begin_ending(index, SequencePhase::unwinding);
  } else {
    sequence.phase = SequencePhase::preempting;
    add_fence(client, {step, FenceEntry::Kind::preempt, GroupId::none(), SlotId::none(), index,
                       sequence.serial, 0});
  }
  return {};
}

std::optional<Result<void>> Engine::State::drop(ClientState& client, StepJob& job,
                                                std::uint32_t index, const StepItem& item) {
  SequenceState& sequence = sequences_[index];
  const std::uint64_t end = std::uint64_t{item.token_offset} + item.token_count;
  if (item.token_count == 0 || item.token_offset % block_tokens_ != 0 ||
      item.token_count % block_tokens_ != 0 || end > sequence.tokens.size()) {
    return Error{ErrorCode::invalid, "what is dropped are whole blocks of the sequence",
                 "token_offset"};
  }
  const std::uint32_t first = item.token_offset / block_tokens_;
  const auto last = static_cast<std::uint32_t>(end / block_tokens_);
  // Once an item: what waits may be more than a step can look at, each time that the item goes on.
  if (job.drop_next == kNoIndex) {
    const bool is_waiting =
        std::any_of(client.fence.begin(), client.fence.end(), [&](const FenceEntry& entry) {
          return entry.kind == FenceEntry::Kind::publish && entry.sequence == index &&
                 entry.sequence_serial == sequence.serial;
        });
    work_ += static_cast<std::uint32_t>(client.fence.size() / kScannedPerWork);
    if (is_waiting) {
      return Error{ErrorCode::busy, "what was published waits for its step", "sequence"};
    }
    // Computed before: what was told to be, and of that no block behind one that is gone.
    std::uint32_t cacheable = std::min(sequence.cacheable_tokens, sequence.publish_requested);
    if (last > sequence.published_blocks) {
      cacheable = std::min(cacheable, std::max(first, sequence.published_blocks) * block_tokens_);
    }
    sequence.cacheable_tokens = cacheable;
    job.drop_next = first;
  }
  const std::uint64_t step = std::max(job.step_seq, sequence.held_until);
  std::uint32_t passed = 0;  // that were dropped before
  for (; job.drop_next < last; ++job.drop_next) {
    const std::uint32_t block = job.drop_next;
    if (entry(sequence, GroupId(0), block).is_none()) {
      ++passed;
      continue;
    }
    if (!budget_left()) return std::nullopt;
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      SlotId& slot = entry(sequence, GroupId(g), block);
      if (sequence.owned[block] != 0) release_at(client, step, GroupId(g), slot);
      slot = SlotId::none();
    }
    sequence.owned[block] = 0;
    ++counters_.dropped_blocks;
    ++work_;
  }
  job.drop_next = kNoIndex;
  work_ += passed / kScannedPerWork;
  return Result<void>();
}

// In step order, and within a step in the order of what was asked for.
void Engine::State::add_fence(ClientState& client, const FenceEntry& entry) {
  auto at = client.fence.end();
  while (at != client.fence.begin() && std::prev(at)->step > entry.step) --at;
  client.fence.insert(at, entry);
}

}  // namespace kv::core
