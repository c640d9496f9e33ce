// Admission: match, plan by counts, then pin and reserve, all or nothing.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

void Engine::State::on(const Admit& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !allowed(*client, input.header.request, false)) return;
  const RequestId request = input.header.request;
  const std::uint32_t index = find_sequence(input.header.client, input.sequence);
  if (index == kNoIndex) {
    refuse(*client, request, {ErrorCode::not_found, "no such sequence is open", "sequence"});
    return;
  }
  SequenceState& sequence = sequences_[index];
  if (sequence.phase == SequencePhase::unwinding || sequence.phase == SequencePhase::preempting) {
    refuse(*client, request, kBeingUndone);
    return;
  }
  if (sequence.phase != SequencePhase::opened || sequence.tokens.empty()) {
    const bool empty = sequence.phase == SequencePhase::opened;
    refuse(*client, request,
           {ErrorCode::invalid, empty ? "the prompt is empty" : "the sequence is admitted already",
            "sequence"});
    return;
  }
  const std::uint64_t tokens = sequence.tokens.size() + std::uint64_t{input.max_new_tokens};
  const std::uint64_t blocks = (tokens + block_tokens_ - 1) / block_tokens_;
  const std::uint64_t slots = slot_count_[tier_index(Tier::device)];
  if (tokens > options_.sequence_tokens_max || blocks > slots) {
    const bool is_prompt = sequence.tokens.size() > slots * block_tokens_;
    const bool is_tier = blocks > slots;
    refuse(
        *client, request,
        {ErrorCode::too_large,
         is_tier ? "the sequence can never fit the device tier" : "too many tokens in a sequence",
         is_prompt ? "tokens" : "max_new_tokens"});
    return;
  }
  sequence.admit_request = request;
  sequence.max_new_tokens = input.max_new_tokens;
  sequence.blocks_wanted = static_cast<std::uint32_t>(blocks);
  defer(*client, request);
  try_admit(index);
  // Behind those whose turn in this round is still to come.
  if (!retrying_.empty() && sequence.phase == SequencePhase::waiting) {
    waiting_.pop_back();
    retrying_.insert(retrying_.begin(), index);
  }
}

std::uint32_t Engine::State::try_admit(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  sequence.path.clear();
  sequence.hit_blocks = 0;
  std::uint32_t matched = 0;
  // What an admission that goes on will load is not known yet, so the next one begins after it.
  bool waits = !admitting_.empty();
  if (!waits && !sequence.skip_read && !sequence.outdated) {
    const auto match = cache().match(sequence.root, sequence.tokens, sequence.path);
    matched = match.known_blocks;
    sequence.hit_blocks = match.hit_blocks;
    sequence.path.resize(sequence.hit_blocks);
    // Another sequence loads a part of it: one load serves both.
    waits = std::any_of(sequence.path.begin(), sequence.path.end(), [this](BlockId block) {
      return cache().records().arriving(block, Tier::device);
    });
  }
  if (waits) {
    sequence.phase = SequencePhase::waiting;
    waiting_.push_back(index);
    return matched;
  }
  if (!plan_admission(sequence)) {
    sequence.phase = SequencePhase::opened;
    refuse(*find_client(sequence.client), sequence.admit_request, kNoRoom);
    return matched;
  }
  if (sequence.hit_blocks > 0) {
    sequence.deepest = sequence.path.back();
    cache().pin(sequence.deepest);
  }
  sequence.phase = SequencePhase::admitting;
  sequence.cursor = 0;
  sequence.admission = {};
  sequence.admission.prompt_tokens = sequence.tokens.size();
  sequence.loads.clear();
  sequence.landing.clear();
  sequence.loads_added = 0;
  sequence.load_failed = false;
  grow_table(sequence, sequence.blocks_wanted);
  // Decode steps within the reservation take no memory.
  sequence.tokens.reserve(std::size_t{sequence.blocks_wanted} * block_tokens_);
  admitting_.push_back(index);
  continue_admission(index);
  return matched;
}

// Counts only. What is evictable now but lies on the path is covered once pinned, so it does not
// count.
bool Engine::State::plan_admission(const SequenceState& sequence) {
  std::uint32_t on_device = 0;
  std::uint32_t uncovered = 0;
  for (const BlockId block : sequence.path) {
    if (!cache().has_copy(block, Tier::device)) continue;
    ++on_device;
    if (!cache().is_covered(block)) ++uncovered;
  }
  const std::uint32_t wanted = sequence.blocks_wanted - on_device;
  const std::uint32_t evictable = cache().evictable(Tier::device, GroupId(0));
  return wanted <= free_slots(Tier::device) + evictable - uncovered;
}

void Engine::State::continue_admission(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  for (; sequence.cursor < sequence.blocks_wanted; ++sequence.cursor) {
    if (!budget_left()) return;
    const std::uint32_t at = sequence.cursor;
    const bool hit = at < sequence.hit_blocks;
    if (hit && cache().has_copy(sequence.path[at], Tier::device)) {
      for (std::uint32_t g = 0; g < group_count_; ++g) {
        entry(sequence, GroupId(g), at) =
            cache().records().slot(sequence.path[at], GroupId(g), Tier::device);
      }
      sequence.admission.hit_tokens[tier_index(Tier::device)] += block_tokens_;
      ++work_;
      continue;
    }
    if (!take_slots(Tier::device)) {
      // Possible only when the admission took several steps and others were served in between.
      refuse(*find_client(sequence.client), sequence.admit_request, kNoRoom);
      begin_ending(index, SequencePhase::unwinding);
      return;
    }
    for (std::uint32_t g = 0; g < group_count_; ++g) entry(sequence, GroupId(g), at) = slots_[g];
    if (!hit) {
      sequence.owned[at] = 1;
      continue;
    }
    const BlockId block = sequence.path[at];
    const bool in_host = cache().has_copy(block, Tier::host);
    sequence.loads.push_back({at, in_host ? LoadPhase::in_host : LoadPhase::on_disk, false});
    sequence.landing.resize(sequence.landing.size() + group_count_, SlotId::none());
    cache().records().set_arriving(block, Tier::device, true);
    const Tier tier = in_host ? Tier::host : Tier::disk;
    sequence.admission.hit_tokens[tier_index(tier)] += block_tokens_;
  }
  admitting_.erase(std::remove(admitting_.begin(), admitting_.end(), index), admitting_.end());
  if (!waiting_.empty()) waiting_changed_ = true;
  conclude_admission(index);
}

void Engine::State::conclude_admission(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  const std::uint64_t hits = std::uint64_t{sequence.hit_blocks} * block_tokens_;
  sequence.admission.computed_tokens = sequence.admission.prompt_tokens - hits;
  if (!sequence.is_resumed) {
    sequence.account = sequence.admission;
    sequence.base_tokens = static_cast<std::uint32_t>(sequence.tokens.size());
  }
  sequence.cacheable_tokens = kNoIndex;  // all of it is computed anew, or cached
  sequence.uncacheable_blocks = 0;
  sequence.published_blocks = sequence.hit_blocks;
  sequence.publish_requested = static_cast<std::uint32_t>(hits);
  sequence.publish_stopped = false;
  sequence.table_version = 1;

  AdmitReply answer;
  answer.ready = sequence.loads.empty();
  answer.account = sequence.admission;
  answer.table_version = sequence.table_version;
  answer.block_count = sequence.block_count;
  answer.slots = sequence.table;
  reply(*find_client(sequence.client), sequence.admit_request, std::move(answer));
  if (sequence.loads.empty()) {
    become_ready(index);
  } else {
    sequence.phase = SequencePhase::loading;
    loading_.push_back(index);
  }
}

// A round tries each one that waits once, in their order, over several steps when their prompts are
// long: what one matches counts as block operations.
void Engine::State::retry_waiting() {
  if (retrying_.empty()) {
    waiting_changed_ = false;
    retrying_.assign(waiting_.rbegin(), waiting_.rend());
    waiting_.clear();
  }
  while (!retrying_.empty() && budget_left()) {
    const std::uint32_t index = retrying_.back();
    retrying_.pop_back();
    sequences_[index].phase = SequencePhase::opened;
    work_ += try_admit(index);
  }
}

}  // namespace kv::core
