// Loads: the cached prefix of an admitted sequence on its way to the device. Disk blocks land in
// host slots of the load's own first. Copies appear on the device in prefix order, whatever order
// the moves end in. When one block fails, the whole admission is unwound and the client admits
// again.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

void Engine::State::pump_loads() {
  for (std::size_t i = 0; i < loading_.size();) {
    const std::uint32_t index = loading_[i];
    pump_loads_of(index);
    if (i < loading_.size() && loading_[i] == index) ++i;  // else it left the list
  }
}

void Engine::State::pump_loads_of(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  if (!sequence.load_failed) check_sources(sequence);
  if (!sequence.load_failed) {
    while (start_load(index, LoadPhase::in_host)) {
    }
    while (start_load(index, LoadPhase::on_disk)) {
    }
  }
  if (sequence.load_failed && sequence.loads_in_flight == 0) {
    begin_ending(index, SequencePhase::unwinding);
  }
}

// A copy that a load was to read may have been quarantined by another reader in the meantime.
void Engine::State::check_sources(SequenceState& sequence) {
  for (LoadItem& item : sequence.loads) {
    const BlockId block = sequence.path[item.path_index];
    if (item.phase == LoadPhase::in_host && !item.landed && !cache().has_copy(block, Tier::host)) {
      item.phase = LoadPhase::on_disk;
    }
    if (item.phase == LoadPhase::on_disk && !cache().has_copy(block, Tier::disk)) {
      sequence.load_failed = true;
    }
  }
}

bool Engine::State::start_load(std::uint32_t index, LoadPhase phase) {
  SequenceState& sequence = sequences_[index];
  const bool land = phase == LoadPhase::on_disk;
  std::uint32_t next = sequence.loads_added;
  const auto skip = [&] {
    while (next < sequence.loads.size() && sequence.loads[next].phase != phase) ++next;
    return next < sequence.loads.size();
  };
  if (!skip()) return false;
  if (!budget_left()) {
    pump_again_ = true;
    return false;
  }
  Move* move = land ? free_move(Tier::disk, Tier::host) : free_move(Tier::host, Tier::device);
  if (move == nullptr) return false;
  move->purpose = land ? Move::Purpose::land : Move::Purpose::load;
  move->sequence = index;
  for (; move->blocks.size() < kTransferBlocksMax && skip(); ++next) {
    LoadItem& item = sequence.loads[next];
    if (land) {
      if (!take_slots(Tier::host)) break;
      for (std::uint32_t g = 0; g < group_count_; ++g) {
        sequence.landing[std::size_t{next} * group_count_ + g] = slots_[g];
      }
    }
    item.phase = land ? LoadPhase::from_disk : LoadPhase::to_device;
    move->blocks.push_back(sequence.path[item.path_index]);
    move->items.push_back(next);
  }
  if (move->blocks.empty()) return false;
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    for (std::size_t i = 0; i < move->blocks.size(); ++i) {
      const LoadItem& item = sequence.loads[move->items[i]];
      const SlotId landing = sequence.landing[std::size_t{move->items[i]} * group_count_ + g];
      const BlockRecords& records = cache().records();
      if (land) {
        move->from_slots.push_back(records.slot(move->blocks[i], GroupId(g), Tier::disk));
        move->to_slots.push_back(landing);
      } else {
        move->from_slots.push_back(
            item.landed ? landing : records.slot(move->blocks[i], GroupId(g), Tier::host));
        move->to_slots.push_back(entry(sequence, GroupId(g), item.path_index));
      }
    }
  }
  sequence.loads_in_flight += static_cast<std::uint32_t>(move->blocks.size());
  pin_for(*move);
  start(*move);
  return true;
}

void Engine::State::finish_load(Move& move) {
  SequenceState& sequence = sequences_[move.sequence];
  const bool ended = sequence.phase != SequencePhase::loading;
  for (std::size_t i = 0; i < move.blocks.size(); ++i) {
    LoadItem& item = sequence.loads[move.items[i]];
    const bool ok = move.outcomes[i] == BlockOutcome::ok;
    const bool own_bytes = item.landed;
    if (move.purpose == Move::Purpose::land) {
      item.phase = ok ? LoadPhase::in_host : LoadPhase::on_disk;
      item.landed = ok;
    } else {
      item.phase = ok ? LoadPhase::arrived : LoadPhase::in_host;
    }
    if (ok) {
      if (!own_bytes) ++counters_.loaded_blocks[tier_index(move.from)];
    } else {
      sequence.load_failed = true;
      auto& counts = move.outcomes[i] == BlockOutcome::corrupt ? counters_.corrupt_blocks
                                                               : counters_.failed_blocks;
      ++counts[tier_index(move.from)];
      if (!own_bytes && move.outcomes[i] != BlockOutcome::cancelled) {
        quarantine(move.blocks[i], move.from, move, move.outcomes[i]);
      }
    }
    if (ended) abandon_load(sequence, move.items[i]);
  }
  sequence.loads_in_flight -= static_cast<std::uint32_t>(move.blocks.size());
  if (ended) return;
  add_arrived(move.sequence);
  if (sequence.load_failed && sequence.loads_in_flight == 0 &&
      sequence.phase == SequencePhase::loading) {
    begin_ending(move.sequence, SequencePhase::unwinding);
  }
}

void Engine::State::add_arrived(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  while (sequence.loads_added < sequence.loads.size()) {
    LoadItem& item = sequence.loads[sequence.loads_added];
    if (item.phase != LoadPhase::arrived) return;
    const BlockId block = sequence.path[item.path_index];
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      cache().add_copy(block, GroupId(g), Tier::device,
                       entry(sequence, GroupId(g), item.path_index));
      ++work_;
    }
    cache().records().set_arriving(block, Tier::device, false);
    release_landing(sequence, sequence.loads_added, true);
    item.phase = LoadPhase::added;
    ++sequence.loads_added;
  }
  become_ready(index);
}

void Engine::State::become_ready(std::uint32_t index) {
  SequenceState& sequence = sequences_[index];
  const bool loaded = sequence.phase == SequencePhase::loading;
  sequence.phase = SequencePhase::admitted;
  loading_.erase(std::remove(loading_.begin(), loading_.end(), index), loading_.end());
  sequence.loads.clear();
  sequence.landing.clear();
  sequence.path.clear();
  if (!sequence.deepest.is_none()) cache().touch(sequence.deepest);
  ++counters_.admissions;
  const Account& account = sequence.admission;
  if (sequence.is_resumed) {  // no request more, and no hits of one
    counters_.resumed_tokens += account.prompt_tokens;
    counters_.resumed_hit_tokens += account.prompt_tokens - account.computed_tokens;
  } else {
    counters_.prompt_tokens += account.prompt_tokens;
    counters_.computed_tokens += account.computed_tokens;
    for (std::size_t t = 0; t < kTierCount; ++t) counters_.hit_tokens[t] += account.hit_tokens[t];
  }
  if (!loaded) return;
  waiting_changed_ = true;
  notify(sequence.client, NoticeKind::sequence_ready, sequence.id, ErrorCode::ok, account);
}

// A load that will not become a copy: its device slot is the sequence's own, its landing slot is
// free.
void Engine::State::abandon_load(SequenceState& sequence, std::uint32_t item) {
  LoadItem& load = sequence.loads[item];
  if (load.phase == LoadPhase::added) return;
  release_landing(sequence, item, false);
  cache().records().set_arriving(sequence.path[load.path_index], Tier::device, false);
  sequence.owned[load.path_index] = 1;
  load.phase = LoadPhase::added;
}

// `keep`: the landed bytes may stay as the block's host copy, when that leaves room for other
// loads.
void Engine::State::release_landing(SequenceState& sequence, std::uint32_t item, bool keep) {
  const std::size_t first = std::size_t{item} * group_count_;
  if (sequence.landing[first].is_none()) return;
  const BlockId block = sequence.path[sequence.loads[item].path_index];
  const BlockId parent = cache().tree().parent(block);
  const bool adopt = keep && !cache().has_copy(block, Tier::host) &&
                     !cache().records().arriving(block, Tier::host) &&
                     (parent.is_none() || cache().has_copy(parent, Tier::host)) &&
                     free_slots(Tier::host) >= landing_reserve_;
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    const SlotId slot = sequence.landing[first + g];
    if (adopt) {
      cache().add_copy(block, GroupId(g), Tier::host, slot);
    } else {
      cache().release_slot(Tier::host, GroupId(g), slot);
    }
    sequence.landing[first + g] = SlotId::none();
    ++work_;
  }
}

}  // namespace kv::core
