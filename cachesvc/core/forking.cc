// Fork: a sequence begins as a copy of another one. It shares the published blocks by one pin; what
// its parent owns alone (its last block as a rule) it gets as slots of its own, and as copies that
// the client does on its device. The slots at both ends of such a copy stay out of other hands
// until the step after this one is completed. The parent changes in nothing.
#include <algorithm>
#include <utility>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

constexpr std::uint32_t kTableEntriesPerWork = 64;  // they are only copied

}  // namespace

std::optional<Result<void>> Engine::State::fork(ClientState& client, StepJob& job,
                                                std::uint32_t index, const StepItem& item) {
  if (job.child == kNoIndex) {
    const auto begun = begin_fork(client, job, index, item);
    if (!begun) return begun;
  }
  // The parent is named anew: the list of sequences stays, but this is the safe way to say it.
  const SequenceState& parent = sequences_[index];
  SequenceState& child = sequences_[job.child];
  const std::uint32_t shared = blocks_of(parent.tokens.size());
  for (; child.cursor < child.block_count; ++child.cursor) {
    if (!budget_left()) return std::nullopt;
    const std::uint32_t at = child.cursor;
    if (at < shared && parent.owned[at] == 0) continue;  // shared, or dropped
    if (!take_slots(Tier::device)) {
      begin_ending(std::exchange(job.child, kNoIndex), SequencePhase::ending);
      ++counters_.exhausted;
      return kNoRoom;
    }
    for (std::uint32_t g = 0; g < group_count_; ++g) entry(child, GroupId(g), at) = slots_[g];
    child.owned[at] = 1;
  }
  conclude_fork(job, index);
  return Result<void>();
}

// Everything that a fork can fail of, but for slots that others take while it goes on.
Result<void> Engine::State::begin_fork(ClientState& client, StepJob& job, std::uint32_t index,
                                       const StepItem& item) {
  const SequenceState& parent = sequences_[index];
  const SequenceId id = job.children[item.value];
  const std::uint64_t tokens = parent.tokens.size() + std::uint64_t{item.token_count};
  const std::uint32_t blocks = blocks_of(tokens);
  if (id.is_none() || find_sequence(job.client, id) != kNoIndex) {
    return Error{ErrorCode::exists, "the child is open already", "children"};
  }
  if (tokens > options_.sequence_tokens_max || blocks > slot_count_[tier_index(Tier::device)]) {
    return Error{ErrorCode::too_large, "the child can never fit the device tier", "token_count"};
  }
  KV_TRY_VOID(check_prompt_room(client, parent.tokens.size(), parent.tokens.size()));
  if (free_sequences_.empty()) {
    ++counters_.refused_sequences;
    return Error{ErrorCode::exhausted, "too many open sequences", "children"};
  }
  const std::uint64_t told = std::uint64_t{blocks} * group_count_;
  if (!job.reply.slots.empty() && job.reply.slots.size() + told > kKeptReplySlotsMax) {
    return Error{ErrorCode::exhausted, "the reply has no room for another table", "children"};
  }
  const std::uint32_t shared = blocks_of(parent.tokens.size());
  const auto owned = static_cast<std::uint32_t>(
      std::count(parent.owned.begin(), parent.owned.begin() + std::ptrdiff_t{shared}, 1));
  work_ += 1 + shared / kTableEntriesPerWork;
  if (blocks - shared + owned >
      free_slots(Tier::device) + cache().evictable(Tier::device, GroupId(0))) {
    ++counters_.exhausted;
    return kNoRoom;
  }
  job.child = make_sequence(client, id, parent.root);
  SequenceState& child = sequences_[job.child];
  child.phase = SequencePhase::forking;
  child.namespace_digest = parent.namespace_digest;
  child.cursor = 0;
  child.prompt_tokens = parent.tokens.size();
  client.prompt_tokens += child.prompt_tokens;
  prompt_tokens_ += child.prompt_tokens;
  grow_table(child, blocks);
  return {};
}

void Engine::State::conclude_fork(StepJob& job, std::uint32_t index) {
  SequenceState& parent = sequences_[index];
  SequenceState& child = sequences_[std::exchange(job.child, kNoIndex)];
  const std::uint32_t shared = blocks_of(parent.tokens.size());
  child.tokens.reserve(std::size_t{child.block_count} * block_tokens_);
  child.tokens.assign(parent.tokens.begin(), parent.tokens.end());
  child.base_tokens = static_cast<std::uint32_t>(parent.tokens.size());
  child.skip_read = parent.skip_read;
  child.accept_rewrite = parent.accept_rewrite;
  child.outdated = parent.outdated;
  child.uncacheable_blocks = parent.uncacheable_blocks;
  child.uncacheable_key = parent.uncacheable_key;
  child.cacheable_tokens = parent.cacheable_tokens;
  child.published_blocks = parent.published_blocks;
  child.publish_requested = parent.published_blocks * block_tokens_;
  child.publish_stopped = parent.publish_stopped;
  child.deepest = parent.deepest;
  if (!child.deepest.is_none()) cache().pin(child.deepest);
  child.table_version = 1;
  child.account = {};
  child.phase = SequencePhase::admitted;
  ++counters_.forked_sequences;
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    const GroupId group(g);
    for (std::uint32_t at = 0; at < shared; ++at) {
      if (child.owned[at] == 0) {
        entry(child, group, at) = entry(parent, group, at);
        continue;
      }
      const auto filled = std::min<std::size_t>(
          block_tokens_, parent.tokens.size() - std::size_t{at} * block_tokens_);
      job.reply.copies.push_back({child.id, group, entry(parent, group, at),
                                  entry(child, group, at), static_cast<std::uint32_t>(filled)});
      parent.held_until = child.held_until = job.step_seq + 1;
    }
    const auto offset = static_cast<std::uint32_t>(job.reply.slots.size());
    const auto first = child.table.begin() + std::ptrdiff_t{g} * child.block_count;
    job.reply.slots.insert(job.reply.slots.end(), first, first + std::ptrdiff_t{child.block_count});
    job.reply.deltas.push_back(
        {child.id, group, child.table_version, 0, offset, child.block_count});
  }
}

}  // namespace kv::core
