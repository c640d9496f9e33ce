// Publishing: full, computed blocks of a sequence enter the prefix tree.
#include <algorithm>

#include "allocator/block_key.h"
#include "cachesvc/core/engine_state.h"

namespace kv::core {

std::optional<Result<void>> Engine::State::request_publish(ClientState& client, StepJob& job,
                                                           std::uint32_t index,
                                                           std::uint32_t value) {
  SequenceState& sequence = sequences_[index];
  if (value > sequence.tokens.size() || value < sequence.publish_requested) {
    return Error{ErrorCode::invalid, "published tokens rise and are tokens of the sequence",
                 "value"};
  }
  const bool has_full_block = value / block_tokens_ > sequence.publish_requested / block_tokens_;
  sequence.publish_requested = value;
  if (client.completed_step < job.step_seq) {
    // What makes no block full need not wait: a client could repeat it without end.
    if (!has_full_block) return Result<void>();
    add_fence(client, {job.step_seq, FenceEntry::Kind::publish, GroupId::none(), SlotId::none(),
                       index, sequence.serial, value});
    return Result<void>();
  }
  if (!publish(job, sequence, value)) return std::nullopt;
  return Result<void>();
}

bool Engine::State::publish(StepJob& job, SequenceState& sequence, std::uint32_t value) {
  const std::uint32_t target = value / block_tokens_;
  if (sequence.outdated) return note_uncacheable(sequence, target, MissCause::cleared);
  const std::uint32_t before = sequence.published_blocks;
  const std::uint32_t cacheable = std::min(target, sequence.cacheable_tokens / block_tokens_);
  bool finished = true;
  while (sequence.published_blocks < cacheable && !sequence.publish_stopped) {
    if (!budget_left()) {
      finished = false;
      break;
    }
    const std::uint32_t at = sequence.published_blocks;
    const auto tokens = block_at(sequence, at);
    const Digest& previous = sequence.deepest.is_none() ? sequence.namespace_digest
                                                        : cache().records().key(sequence.deepest);
    const Digest key = next_block_key(previous, tokens);
    const std::uint32_t blocks_before = cache().tree().block_count();
    const auto block = cache().insert_pinned(sequence.root, sequence.deepest, tokens, key,
                                             sequence.block_count - at - 1);
    if (!block) {
      sequence.publish_stopped = true;  // the rest stays private
      break;
    }
    const bool known = cache().tree().block_count() == blocks_before;
    publish_block(job, sequence, *block, known);
    if (!sequence.deepest.is_none()) cache().unpin(sequence.deepest);
    sequence.deepest = *block;
    ++sequence.published_blocks;
    work_ += 2;
  }
  // Once, however many steps it took: a touch walks the whole path.
  if (finished && sequence.published_blocks > before) {
    cache().touch(sequence.deepest, PrefixCache::Use::by_the_same_request);
  }
  if (!finished) return false;
  if (sequence.publish_stopped) return note_uncacheable(sequence, target, MissCause::no_room);
  return target <= cacheable || note_uncacheable(sequence, target, MissCause::dropped);
}

// The history learns of each block that was computed and may not be cached. False: the budget
// ended.
bool Engine::State::note_uncacheable(SequenceState& sequence, std::uint32_t target,
                                     MissCause cause) {
  std::uint32_t at = std::max(sequence.published_blocks, sequence.uncacheable_blocks);
  for (; at < target; ++at) {
    if (!budget_left()) return false;
    if (at == sequence.published_blocks) {
      sequence.uncacheable_key = sequence.deepest.is_none()
                                     ? sequence.namespace_digest
                                     : cache().records().key(sequence.deepest);
    }
    sequence.uncacheable_key = next_block_key(sequence.uncacheable_key, block_at(sequence, at));
    history_->record(sequence.uncacheable_key,
                     {now_, 0, MissReason::not_cacheable, cause, Tier::device});
    sequence.uncacheable_blocks = at + 1;
    ++counters_.uncacheable_blocks;
    ++work_;
  }
  return true;
}

void Engine::State::publish_block(StepJob& job, SequenceState& sequence, BlockId block,
                                  bool known) {
  const std::uint32_t at = sequence.published_blocks;
  KV_CHECK(sequence.owned[at] != 0);
  if (cache().has_copy(block, Tier::device)) {
    // A sequence that was freed meanwhile has no reader of a new table, and its id may be in use
    // again.
    const std::uint32_t named = find_sequence(sequence.client, sequence.id);
    const bool ended = named == kNoIndex || &sequences_[named] != &sequence ||
                       sequence.phase == SequencePhase::preempting;
    if (!sequence.accept_rewrite || ended) {
      ++counters_.duplicate_blocks;
      return;
    }
    ++sequence.table_version;
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      const SlotId cached = cache().records().slot(block, GroupId(g), Tier::device);
      SlotId& own = entry(sequence, GroupId(g), at);
      sequence.replaced.push_back({sequence.table_version, GroupId(g), own});
      own = cached;
      add_delta(job, sequence, GroupId(g), at, cached);
    }
    sequence.owned[at] = 0;
    ++counters_.rewritten_blocks;
    return;
  }
  // A load is bringing it, or its parent is not on the device itself: the copy stays private, so
  // that the copies of a tier stay prefix-closed.
  const BlockId parent = cache().tree().parent(block);
  if (cache().records().arriving(block, Tier::device) ||
      (!parent.is_none() && !cache().has_copy(parent, Tier::device))) {
    ++counters_.duplicate_blocks;
    return;
  }
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    cache().add_copy(block, GroupId(g), Tier::device, entry(sequence, GroupId(g), at));
  }
  sequence.owned[at] = 0;
  if (known) ++counters_.adopted_blocks;
  ++counters_.published_blocks;
  if (options_.write_through) queue_save(Tier::device, block);
}

}  // namespace kv::core
