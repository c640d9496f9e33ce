// Saves: copies of blocks into the tier below, in the order in which they were published, and the
// two requests that wait for them: Demote and Flush. Within a tier copies stay prefix-closed, so a
// block goes down together with the ancestors that are not there yet.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

constexpr Tier below(Tier tier) { return tier == Tier::device ? Tier::host : Tier::disk; }

}  // namespace

void Engine::State::queue_save(Tier from, BlockId block) {
  if (!tier_on(below(from))) return;
  SaveQueue& queue = from == Tier::device ? save_to_host_ : save_to_disk_;
  (void)queue.push(block);  // full: a flush finds it
}

void Engine::State::pump_saves(Tier from) {
  const Tier to = below(from);
  SaveQueue& queue = from == Tier::device ? save_to_host_ : save_to_disk_;
  while (saves_may_start(to) && !queue.empty()) {
    if (!budget_left()) {
      pump_again_ = true;
      return;
    }
    Move* move = free_move(from, to);
    if (move == nullptr) return;
    move->purpose = Move::Purpose::save;
    const bool more = build_save(*move);
    if (!move->blocks.empty()) start_save(*move);
    if (!more) return;
  }
}

void Engine::State::start_save(Move& move) {
  const std::size_t count = move.blocks.size();
  std::vector<SlotId> by_block;
  by_block.swap(move.to_slots);  // gathered block by block; wanted group by group
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    for (std::size_t i = 0; i < count; ++i) {
      move.from_slots.push_back(cache().records().slot(move.blocks[i], GroupId(g), move.from));
      move.to_slots.push_back(by_block[i * group_count_ + g]);
    }
  }
  start(move);
}

bool Engine::State::build_save(Move& move) {
  SaveQueue& queue = move.from == Tier::device ? save_to_host_ : save_to_disk_;
  const PrefixTree& tree = cache().tree();
  const bool careful = move.to == Tier::disk && disk_room_ != DiskRoom::enough;
  const std::size_t blocks_max = careful ? 1 : kTransferBlocksMax;
  while (!queue.empty() && move.blocks.size() < blocks_max) {
    if (!budget_left()) {
      pump_again_ = true;
      return false;
    }
    ++work_;
    const BlockId wanted = queue.front();
    chain_.clear();
    bool possible = tree.contains(wanted) && !tree.is_retired(wanted);
    for (BlockId block = wanted; possible && !block.is_none() && !cache().has_copy(block, move.to);
         block = tree.parent(block)) {
      if (cache().records().arriving(block, move.to)) {
        const auto& own = move.blocks;
        if (std::find(own.begin(), own.end(), block) != own.end()) break;
        if (block != wanted) return false;  // its ancestor's move must end first
        possible = false;                   // another move saves it already
        break;
      }
      possible = cache().has_copy(block, move.from) && chain_.size() < kStepBlocksMax;
      chain_.push_back(block);
    }
    // Each block is tried once then, not with every block below it; a flush finds what is missing.
    if (move.to == Tier::disk && disk_refuses_ && chain_.size() > 1) possible = false;
    if (!possible || chain_.empty()) {
      queue.pop();
      continue;
    }
    // One namespace a move, since the move names it once.
    if (!move.blocks.empty() && tree.root(move.blocks.front()) != tree.root(wanted)) return true;
    SaveSlot result = SaveSlot::taken;
    while (result == SaveSlot::taken && !chain_.empty() && move.blocks.size() < blocks_max) {
      result = add_save(move, chain_.back());
      if (result == SaveSlot::taken) chain_.pop_back();
    }
    if (result == SaveSlot::stalled) return false;
    if (result == SaveSlot::none || chain_.empty()) queue.pop();
  }
  return true;
}

Engine::State::SaveSlot Engine::State::add_save(Move& move, BlockId block) {
  // Pinned first: making room must take neither the block nor what it hangs on.
  for (std::uint32_t g = 0; g < group_count_; ++g) cache().pin(block);
  // What a restart found of only some groups is no copy: the block is saved whole.
  drop_block_copy(block, move.to, {});
  const SaveSlot result = make_save_room(move);
  if (result != SaveSlot::taken || !take_slots(move.to)) {
    for (std::uint32_t g = 0; g < group_count_; ++g) cache().unpin(block);
    return result == SaveSlot::taken ? SaveSlot::none : result;
  }
  cache().records().set_arriving(block, move.to, true);
  move.blocks.push_back(block);
  move.to_slots.insert(move.to_slots.end(), slots_.begin(), slots_.end());
  return SaveSlot::taken;
}

// Makes one free slot that a save may take. Loads from disk keep their landing slots. A host copy
// that the disk has not seen is not given up for another one while the way to the disk is busy.
Engine::State::SaveSlot Engine::State::make_save_room(const Move& move) {
  const Tier to = move.to;
  const std::uint32_t reserve = to == Tier::host ? landing_reserve_ : 0;
  while (free_slots(to) <= reserve) {
    if (give_up_for(to)) continue;
    const BlockId victim = cache().victim(to);
    if (victim.is_none()) {
      // What a save under way holds may go when it has ended.
      const bool held = !move.blocks.empty() ||
                        std::any_of(moves_.begin(), moves_.end(), [to](const Move& other) {
                          return other.active && other.purpose == Move::Purpose::save &&
                                 (other.from == to || other.to == to);
                        });
      return held ? SaveSlot::stalled : SaveSlot::none;
    }
    if (to == Tier::host && tier_on(Tier::disk) && !cache().has_lower_copy(victim, Tier::host) &&
        ((disk_room_ != DiskRoom::none && !save_to_disk_.empty()) ||
         moves_on(Tier::host, Tier::disk) > 0)) {
      return SaveSlot::stalled;
    }
    (void)evict_one(to);
  }
  return SaveSlot::taken;
}

// The block was computed anew while the disk kept an older copy of it. One checksum is kept a block
// and group: an older copy with other bytes could not be told from a damaged one.
void Engine::State::drop_other_bytes(const Move& move, std::size_t index) {
  const BlockId block = move.blocks[index];
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    if (cache().records().slot(block, GroupId(g), Tier::disk).is_none()) continue;
    const std::uint32_t now = move.checksums[g * move.blocks.size() + index];
    if (cache().records().checksum(block, GroupId(g)) == now) continue;
    quarantine(block, Tier::disk, move, BlockOutcome::corrupt);
    return;
  }
}

void Engine::State::finish_save(Move& move) {
  const std::size_t count = move.blocks.size();
  const bool to_disk = move.to == Tier::disk;
  const bool may_retry =
      to_disk && !move.is_retry && disk_room_ == DiskRoom::enough && !is_retired(move);
  for (std::size_t i = 0; i < count; ++i) {
    const BlockId block = move.blocks[i];
    const BlockId parent = cache().tree().parent(block);
    const bool closed = (parent.is_none() || cache().has_copy(parent, move.to)) &&
                        !cache().tree().is_retired(block);  // a Clear: it comes too late
    const bool written = move.outcomes[i] == BlockOutcome::ok;
    const bool no_space = to_disk && move.outcomes[i] == BlockOutcome::no_space;
    // What hangs on a block that is saved again is saved again with it.
    const bool lost_parent =
        written && !closed && std::find(retry_.begin(), retry_.end(), parent) != retry_.end();
    if (may_retry && (no_space || lost_parent)) retry_.push_back(block);
    cache().records().set_arriving(block, move.to, false);
    if (written && closed && move.from == Tier::device) drop_other_bytes(move, i);
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      const SlotId slot = move.to_slots[g * count + i];
      if (written && closed) {
        if (move.from == Tier::device) {
          cache().records().set_checksum(block, GroupId(g), move.checksums[g * count + i]);
        }
        cache().add_copy(block, GroupId(g), move.to, slot);
        continue;
      }
      // Another group's part, or the parent's copy, is missing: what the disk has of it goes again.
      if (move.written[g * count + i] != 0 && move.to == Tier::disk) {
        actions_->erases.push_back({cache().records().key(block), cache().tree().depth(block),
                                    GroupId(g), slot,
                                    cache().pool(Tier::disk, GroupId(g)).generation(slot)});
      }
      cache().release_slot(move.to, GroupId(g), slot);
    }
    if (written && to_disk) disk_refuses_ = false;
    if (written && closed) {
      ++counters_.saved_blocks[tier_index(move.to)];
      // A flush goes on to the disk at once: a small host gives the block up for the next one.
      const bool flushing = std::any_of(save_jobs_.begin(), save_jobs_.end(),
                                        [](const SaveJob& job) { return job.flush; });
      if (move.to == Tier::host && (options_.write_through || flushing)) {
        queue_save(Tier::host, block);
      }
    } else if (move.outcomes[i] == BlockOutcome::corrupt && move.from == Tier::host) {
      // Nothing is verified on the way out of the device: there the word would mean an io error.
      ++counters_.corrupt_blocks[tier_index(move.from)];
      quarantine(block, move.from, move, move.outcomes[i]);
    } else if (!written && move.outcomes[i] != BlockOutcome::cancelled &&
               !(no_space && may_retry)) {
      ++counters_.failed_blocks[tier_index(move.to)];
      if (to_disk && !no_space) disk_refuses_ = true;
    }
  }
  if (to_disk) judge_disk_room(move);
}

// ---------------------------------------------------------------- Demote and Flush

void Engine::State::on(const Demote& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !allowed(*client, input.header.request, false)) return;
  if (input.tier != Tier::device && input.tier != Tier::host) {
    refuse(*client, input.header.request,
           {ErrorCode::unsupported, "only the device and the host tier can be demoted", "tier"});
    return;
  }
  if (cache_ == nullptr) {
    reply(*client, input.header.request, DemoteReply{});
    return;
  }
  SaveJob job;
  job.client = input.header.client;
  job.request = input.header.request;
  job.tier = input.tier;
  if (input.tier == Tier::host) ask_disk_again();
  job.saved_at_start = counters_.saved_blocks[tier_index(below(input.tier))];
  save_jobs_.push_back(job);
  defer(*client, input.header.request);
}

void Engine::State::on(const Flush& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !allowed(*client, input.header.request, false)) return;
  if (cache_ == nullptr) {
    reply(*client, input.header.request, FlushReply{});
    return;
  }
  SaveJob job;
  job.client = input.header.client;
  job.request = input.header.request;
  job.flush = true;
  ask_disk_again();
  save_jobs_.push_back(job);
  defer(*client, input.header.request);
}

void Engine::State::on(const DiskSynced& input) {
  if (end_clear_sync(input)) return;
  for (SaveJob& job : save_jobs_) {
    if (job.phase != SaveJob::Phase::sync || job.sync_id != input.id) continue;
    if (input.ok) {
      const PrefixTree& tree = cache().tree();
      const std::uint64_t gone = std::uint64_t{cache().hole_count()} + tree.retired_block_count();
      const std::uint64_t durable = job.durable.value_or(0);
      const std::uint64_t kept = tree.block_count() > gone ? tree.block_count() - gone : 0;
      reply(*find_client(job.client), job.request,
            FlushReply{durable, kept > durable ? kept - durable : 0});
    } else {
      refuse(*find_client(job.client), job.request,
             {ErrorCode::unavailable, "the disk could not make its blocks durable", "disk"});
    }
    std::erase_if(save_jobs_, [&input](const SaveJob& other) {
      return other.phase == SaveJob::Phase::sync && other.sync_id == input.id;
    });
    return;
  }
}

void Engine::State::run_save_jobs() {
  for (std::size_t i = 0; i < save_jobs_.size();) {
    if (run_save_job(save_jobs_[i])) {
      save_jobs_.erase(save_jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// What other jobs evicted in the step that asks for the sync is not durable with it.
void Engine::State::count_durable() {
  for (SaveJob& job : save_jobs_) {
    if (job.phase != SaveJob::Phase::sync || job.durable) continue;
    job.durable = tier_on(Tier::disk) ? cache().copy_count(Tier::disk) - retired_on_disk() : 0;
  }
}

// Looks for blocks that are not yet where the job wants them.
void Engine::State::scan_saves(SaveJob& job) {
  const std::uint32_t end = cache().records().block_capacity();
  const std::uint32_t stop = std::min(end, job.cursor + kScanRecordsMax);
  for (; job.cursor < stop; ++job.cursor) {
    const BlockId block(job.cursor);
    if (!cache().tree().contains(block) || cache().tree().is_retired(block)) continue;
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (!job.flush && tier != job.tier) continue;
      if (!cache().has_copy(block, tier) || cache().has_lower_copy(block, tier)) continue;
      queue_save(tier, block);
      job.missing += tier == Tier::device ? 2 : 1;  // links that its copies have to pass
    }
  }
  if (job.cursor < end) return;
  wait_for_saves(job, SaveJob::Phase::save);
}

void Engine::State::wait_for_saves(SaveJob& job, SaveJob::Phase phase) const {
  job.pushed_to_host = save_to_host_.pushed();
  job.pushed_to_disk = save_to_disk_.pushed();
  job.last_move = 0;
  job.phase = phase;
}

// Everything queued when the wait began had its turn, and the moves that took it have ended.
bool Engine::State::saves_done(SaveJob& job) const {
  const bool to_host = tier_on(Tier::host);
  const bool to_disk = tier_on(Tier::disk);
  if (to_host && save_to_host_.popped() < job.pushed_to_host) return false;
  const bool disk_takes = to_disk && disk_room_ != DiskRoom::none;
  if (disk_takes && save_to_disk_.popped() < job.pushed_to_disk) return false;
  if (!retired_.empty()) return false;  // no copy of theirs is to be counted
  if (job.last_move == 0) job.last_move = move_serial_;
  return std::none_of(moves_.begin(), moves_.end(), [&job](const Move& move) {
    return move.active && move.purpose == Move::Purpose::save && move.origin <= job.last_move;
  });
}

bool Engine::State::run_save_job(SaveJob& job) {
  if (job.phase == SaveJob::Phase::scan) {
    scan_saves(job);
    if (job.phase == SaveJob::Phase::scan) return false;
    pump_saves(Tier::host);
    pump_saves(Tier::device);
  }
  if (job.phase == SaveJob::Phase::save) {
    if (!saves_done(job)) return false;
    // Rounds go on while fewer copies are missing each time: a tier too small for them all would
    // give up one for another for ever.
    if (job.flush && job.missing > 0 && job.missing < job.missing_before) {
      job.missing_before = job.missing;
      job.missing = 0;
      job.cursor = 0;
      job.phase = SaveJob::Phase::scan;
      return false;
    }
    if (job.flush) {
      job.phase = SaveJob::Phase::sync;
      job.sync_id = ++sync_id_;
      actions_->syncs.push_back({job.sync_id});
    } else {
      // Write-through carries the saved blocks on to the disk, and pins them as long as it reads.
      wait_for_saves(job, SaveJob::Phase::settle);
    }
  }
  if (job.phase == SaveJob::Phase::settle && saves_done(job)) job.phase = SaveJob::Phase::drop;
  if (job.phase != SaveJob::Phase::drop) return false;
  while (true) {
    const BlockId victim = cache().victim(job.tier);
    if (victim.is_none() || !cache().has_lower_copy(victim, job.tier)) break;
    if (!budget_left()) return false;
    (void)evict_one(job.tier);
    ++job.dropped;
  }
  const std::uint64_t saved =
      counters_.saved_blocks[tier_index(below(job.tier))] - job.saved_at_start;
  const std::uint64_t kept = cache().pool(job.tier, GroupId(0)).count(SlotState::cached);
  reply(*find_client(job.client), job.request, DemoteReply{saved, job.dropped, kept});
  return true;
}

}  // namespace kv::core
