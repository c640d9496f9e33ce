// Clear and SetEpoch. Of all tiers: the namespace's tree is detached at once (retiring.cc gives it
// up), and the reply waits until the disk has forgotten it for good. Of one tier: its copies are
// dropped where they lie.
#include <algorithm>
#include <utility>

#include "cachesvc/core/engine_state.h"

namespace kv::core {
namespace {

// Of an epoch that is asked for: the next ones, which only count, never begin again at 0.
constexpr std::uint64_t kEpochMax = (std::uint64_t{1} << 63U) - 1;

}  // namespace

void Engine::State::on(const Clear& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !is_admin(*client, input.header.request)) return;
  const bool no_such_tier = !input.all_tiers && tier_index(input.tier) >= BlockRecords::kSlotTiers;
  if (no_such_tier) {
    refuse(*client, input.header.request,
           {ErrorCode::unsupported, "only the device, host and disk tier can be cleared", "tier"});
    return;
  }
  if (cache_ == nullptr) {
    reply(*client, input.header.request, ClearReply{});
    return;
  }
  ClearJob job;
  job.request = input.header.request;
  job.all_tiers = input.all_tiers;
  job.tier = input.tier;
  job.all_namespaces = input.fields == nullptr;
  if (input.fields != nullptr) job.namespace_digest = digest_of(*input.fields, *client);
  begin_clear(*client, job);
}

void Engine::State::on(const SetEpoch& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !is_admin(*client, input.header.request)) return;
  if (input.fields == nullptr) {
    refuse(*client, input.header.request,
           {ErrorCode::invalid, "an epoch is that of one namespace", "fields"});
    return;
  }
  if (input.epoch > kEpochMax) {
    refuse(*client, input.header.request, {ErrorCode::invalid, "an epoch is below 2^63", "epoch"});
    return;
  }
  if (cache_ == nullptr) {
    refuse(*client, input.header.request, {ErrorCode::unavailable, "no pool is attached yet", {}});
    return;
  }
  ClearJob job;
  job.request = input.header.request;
  job.all_namespaces = false;
  job.namespace_digest = digest_of(*input.fields, *client);
  job.answer.epoch = input.epoch;
  begin_clear(*client, job);
}

// job.answer.epoch: the one that is asked for, or 0.
void Engine::State::begin_clear(ClientState& client, ClearJob job) {
  const auto current = std::find_if(epochs_.begin(), epochs_.end(), [&job](const auto& known) {
    return known.namespace_digest == job.namespace_digest;
  });
  const std::uint64_t epoch = job.all_namespaces || current == epochs_.end() ? 0 : current->epoch;
  if (job.answer.epoch > 0 && job.answer.epoch < epoch) {
    refuse(client, job.request,
           {ErrorCode::stale, "the namespace has a newer epoch already", "epoch"});
    return;
  }
  if (clear_jobs_.size() >= kClearJobsMax) {
    refuse(client, job.request, {ErrorCode::busy, "too much is being cleared already", {}});
    return;
  }
  job.client = client.id;
  defer(client, job.request);
  if (!job.all_tiers) {
    job.phase = ClearJob::Phase::recover;
    clear_jobs_.push_back(job);
    return;
  }
  // Asked for once more, the same epoch clears nothing, but is told no earlier.
  const bool again = job.answer.epoch > 0 && job.answer.epoch == epoch;
  const PrefixTree& tree = cache().tree();
  for (std::uint32_t r = 0; !again && r < tree.root_count(); ++r) {
    const RootId root(r);
    if (tree.is_retired(root)) continue;
    if (!job.all_namespaces && tree.namespace_digest(root) != job.namespace_digest) continue;
    job.answer.cleared_blocks += tree.block_count(root);
    if (job.all_namespaces) ++epoch_of(tree.namespace_digest(root)).epoch;
    retire(root);
  }
  if (!job.all_namespaces) {
    if (job.answer.epoch == 0) job.answer.epoch = epoch + 1;
    epoch_of(job.namespace_digest).epoch = job.answer.epoch;
  }
  for (std::uint32_t i = 0; !again && i < sequences_.size(); ++i) outdate(i);
  counters_.cleared_blocks += job.answer.cleared_blocks;
  job.roots = retired_.added();
  job.last_move = move_serial_;
  clear_jobs_.push_back(job);
}

void Engine::State::retire(RootId root) {
  cache().retire_root(root);
  displaced_[root.value] = 0;
  retired_.add(root);
}

// Of a sequence in a namespace that was cleared: what runs goes on, what reads cached blocks does
// not.
void Engine::State::outdate(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  if (sequence.phase == SequencePhase::unused || sequence.outdated ||
      !cache().tree().is_retired(sequence.root)) {
    return;
  }
  sequence.outdated = true;
  if (sequence.phase == SequencePhase::admitting) {
    refuse(*find_client(sequence.client), sequence.admit_request,
           {ErrorCode::busy, "the namespace was cleared meanwhile: admit again", "sequence"});
    begin_ending(index, SequencePhase::unwinding);
  } else if (sequence.phase == SequencePhase::loading) {
    sequence.load_failed = true;
    begin_ending(index, SequencePhase::unwinding);
  }
}

// Made on first sight; the oldest gives way when there are too many.
StatusReply::NamespaceEpoch& Engine::State::epoch_of(const Digest& digest) {
  const auto found = std::find_if(epochs_.begin(), epochs_.end(), [&digest](const auto& known) {
    return known.namespace_digest == digest;
  });
  if (found != epochs_.end()) return *found;
  if (epochs_.size() >= options_.root_capacity) epochs_.erase(epochs_.begin());
  epochs_.push_back({digest, 0});
  return epochs_.back();
}

bool Engine::State::is_being_cleared(const Digest& digest) const {
  return std::any_of(clear_jobs_.begin(), clear_jobs_.end(), [&digest](const ClearJob& job) {
    return job.all_tiers && (job.all_namespaces || job.namespace_digest == digest);
  });
}

// What was begun goes on: half a Clear would be worth nothing.
void Engine::State::leave_clear_jobs(ClientId client) {
  for (ClearJob& job : clear_jobs_) {
    if (job.client == client) job.client = ClientId::none();
  }
}

// ---------------------------------------------------------------- jobs

void Engine::State::run_clear_jobs() {
  std::erase_if(clear_jobs_, [this](ClearJob& job) { return run_clear_job(job); });
}

bool Engine::State::run_clear_job(ClearJob& job) {
  using Phase = ClearJob::Phase;
  if (job.phase == Phase::recover) {
    if (job.tier == Tier::disk && recovering_) return false;
    job.phase = Phase::drop;
  }
  if (job.phase == Phase::drop || job.phase == Phase::count) scan_clear(job);
  if (job.phase == Phase::give_up) {
    if (retired_.finished() < job.roots || recovering_) return false;
    job.phase = Phase::settle;
  }
  if (job.phase != Phase::settle) return false;
  const bool moving = std::any_of(moves_.begin(), moves_.end(), [&](const Move& move) {
    return move.active && job.all_tiers && move.serial <= job.last_move && is_retired(move);
  });
  return !moving && conclude_clear(job);
}

// One scan drops: a block that is not yet a leaf of the tier goes with its last child. A second one
// counts what is left.
void Engine::State::scan_clear(ClearJob& job) {
  const PrefixTree& tree = cache().tree();
  const std::uint32_t end = cache().records().block_capacity();
  const std::uint32_t stop = std::min(end, job.cursor + kScanRecordsMax);
  for (drop_upward(job); job.cursor < stop; ++job.cursor) {
    if (!budget_left()) return;
    const BlockId block(job.cursor);
    if (job.phase == ClearJob::Phase::drop) {
      job.path = block;
      drop_upward(job);
    } else if (tree.contains(block) && concerns(job, block)) {
      job.answer.kept_blocks += cache().has_copy(block, job.tier) ? 1 : 0;
    }
  }
  if (!job.path.is_none()) return;
  if (job.cursor < end) return;
  job.cursor = 0;
  job.phase = job.phase == ClearJob::Phase::drop ? ClearJob::Phase::count : ClearJob::Phase::settle;
}

bool Engine::State::concerns(const ClearJob& job, BlockId block) const {
  const PrefixTree& tree = cache_->tree();
  if (tree.is_retired(block)) return false;
  return job.all_namespaces || tree.namespace_digest(tree.root(block)) == job.namespace_digest;
}

// Running sequences read device copies of what they pin; nobody but moves reads lower ones.
void Engine::State::drop_upward(ClearJob& job) {
  const PrefixTree& tree = cache().tree();
  while (!job.path.is_none() && budget_left()) {
    const BlockId block = std::exchange(job.path, BlockId::none());
    if (!tree.contains(block) || !concerns(job, block)) return;
    if (!cache().is_leaf_in(block, job.tier) || is_moving(block)) return;
    if (job.tier == Tier::device && cache().is_covered(block)) return;
    job.path = tree.parent(block);
    drop_block_copy(block, job.tier, {MissReason::evicted, MissCause::cleared});
    ++counters_.cleared_blocks;
    ++job.answer.cleared_blocks;
  }
}

// True when the reply went out; else it waits for the disk.
bool Engine::State::conclude_clear(ClearJob& job) {
  // Also while it is off: a disk that could not be opened may hold what this is to clear.
  const bool has_disk = options_.tier_bytes[tier_index(Tier::disk)] > 0;
  if (has_disk && (job.all_tiers || job.tier == Tier::disk)) {
    job.phase = ClearJob::Phase::sync;
    job.sync_id = ++sync_id_;
    actions_->syncs.push_back({job.sync_id});
    return false;
  }
  if (job.all_tiers) job.answer.kept_blocks = cache().tree().retired_block_count();
  if (!job.client.is_none()) reply(*find_client(job.client), job.request, job.answer);
  return true;
}

bool Engine::State::end_clear_sync(const DiskSynced& input) {
  const auto found = std::find_if(clear_jobs_.begin(), clear_jobs_.end(), [&](const ClearJob& job) {
    return job.phase == ClearJob::Phase::sync && job.sync_id == input.id;
  });
  if (found == clear_jobs_.end()) return false;
  ClearJob job = *found;
  clear_jobs_.erase(found);
  if (job.all_tiers) job.answer.kept_blocks = cache().tree().retired_block_count();
  if (job.client.is_none()) return true;
  ClientState& client = *find_client(job.client);
  if (input.ok) {
    reply(client, job.request, job.answer);
  } else {
    refuse(client, job.request,
           {ErrorCode::unavailable,
            "cleared, but the disk may bring it back with a restart: clear again", "disk"});
  }
  return true;
}

}  // namespace kv::core
