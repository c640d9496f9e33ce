// Moves: runs of blocks between two tiers, and what must happen before a slot can be written.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

std::uint32_t Engine::State::moves_on(Tier from, Tier to) const {
  return static_cast<std::uint32_t>(std::count_if(
      moves_.begin(), moves_.end(),
      [from, to](const Move& move) { return move.active && move.from == from && move.to == to; }));
}

Move* Engine::State::free_move(Tier from, Tier to) {
  const bool disk = from == Tier::disk || to == Tier::disk;
  const std::uint32_t credits =
      disk ? options_.host_disk_transfers : options_.device_host_transfers;
  if (moves_on(from, to) >= credits) return nullptr;
  for (Move& move : moves_) {
    if (move.active) continue;
    move.from = from;
    move.to = to;
    move.sequence = kNoIndex;
    move.is_retry = false;
    move.blocks.clear();
    move.items.clear();
    move.from_slots.clear();
    move.to_slots.clear();
    return &move;
  }
  return nullptr;
}

// One pin for each transfer that names the block.
void Engine::State::pin_for(const Move& move) {
  for (const BlockId block : move.blocks) {
    for (std::uint32_t g = 0; g < group_count_; ++g) cache().pin(block);
  }
}

void Engine::State::unpin_for(const Move& move) {
  for (const BlockId block : move.blocks) {
    for (std::uint32_t g = 0; g < group_count_; ++g) unpin(block);
  }
}

void Engine::State::start(Move& move) {
  const std::size_t count = move.blocks.size();
  move.active = true;
  move.serial = ++move_serial_;
  if (!move.is_retry) move.origin = move.serial;
  move.outstanding = group_count_;
  move.reported.assign(group_count_, 0);
  move.checksums.assign(count * group_count_, 0);
  move.written.assign(count * group_count_, 0);
  move.outcomes.assign(count, BlockOutcome::ok);
  const PrefixTree& tree = cache().tree();
  const BlockRecords& records = cache().records();
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    const GroupId group(g);
    StartTransfer transfer;
    transfer.id = TransferId(move.serial * kLayerGroupsMax + g);
    transfer.from = move.from;
    transfer.to = move.to;
    transfer.group = group;
    transfer.namespace_digest = tree.namespace_digest(tree.root(move.blocks.front()));
    transfer.first_block = static_cast<std::uint32_t>(actions_->transfer_blocks.size());
    transfer.block_count = static_cast<std::uint32_t>(count);
    transfer.first_token = static_cast<std::uint32_t>(actions_->tokens.size());
    for (std::size_t i = 0; i < count; ++i) {
      const BlockId block = move.blocks[i];
      const BlockId parent = tree.parent(block);
      TransferBlock out;
      out.from_slot = move.from_slots[g * count + i];
      out.to_slot = move.to_slots[g * count + i];
      out.from_generation = cache().pool(move.from, group).generation(out.from_slot);
      out.to_generation = cache().pool(move.to, group).generation(out.to_slot);
      out.checksum = records.checksum(block, group);
      out.depth = tree.depth(block);
      out.key = records.key(block);
      out.parent_key = parent.is_none() ? transfer.namespace_digest : records.key(parent);
      actions_->transfer_blocks.push_back(out);
      if (move.to == Tier::disk) {
        const auto tokens = tree.tokens(block);
        actions_->tokens.insert(actions_->tokens.end(), tokens.begin(), tokens.end());
      }
    }
    actions_->transfers.push_back(transfer);
    ++counters_.transfers_started;
  }
}

void Engine::State::on(const TransferDone& input) {
  if (input.id.is_none()) return;
  const std::uint64_t serial = input.id.value / kLayerGroupsMax;
  const auto group = static_cast<std::uint32_t>(input.id.value % kLayerGroupsMax);
  const auto found = std::find_if(moves_.begin(), moves_.end(), [serial](const Move& move) {
    return move.active && move.serial == serial;
  });
  if (found == moves_.end() || group >= group_count_ || found->reported[group] != 0) return;
  Move& move = *found;
  const std::size_t count = move.blocks.size();
  const bool sums = move.from == Tier::device;
  const bool whole = input.outcomes.size() == count && input.checksums.size() == (sums ? count : 0);
  for (std::size_t i = 0; i < count; ++i) {
    const BlockOutcome outcome = whole ? input.outcomes[i] : BlockOutcome::io_error;
    if (move.outcomes[i] == BlockOutcome::ok) move.outcomes[i] = outcome;
    move.written[group * count + i] = outcome == BlockOutcome::ok ? 1 : 0;
    if (whole && sums) move.checksums[group * count + i] = input.checksums[i];
  }
  move.reported[group] = 1;
  ++counters_.transfers_done;
  if (--move.outstanding == 0) finish(move);
}

void Engine::State::finish(Move& move) {
  if (move.purpose == Move::Purpose::save) {
    finish_save(move);
  } else {
    finish_load(move);
  }
  const bool retired = is_retired(move);
  unpin_for(move);
  move.active = false;
  work_ += static_cast<std::uint32_t>(move.blocks.size());
  for (auto block = move.blocks.rbegin(); retired && block != move.blocks.rend(); ++block) {
    if (cache().tree().contains(*block)) give_up(*block);
  }
  if (!retry_.empty()) retry_saves(move.origin);  // in this move's place
}

void Engine::State::drop_block_copy(BlockId block, Tier tier, Loss loss) {
  const bool was_cached = cache().has_any_copy(block);
  const Digest key = cache().records().key(block);
  const std::uint32_t reuses = cache().records().reuses(block);
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    const SlotId slot = cache().records().slot(block, GroupId(g), tier);
    if (slot.is_none()) continue;
    if (tier == Tier::disk) {
      ask_disk_again();
      actions_->erases.push_back({cache().records().key(block), cache().tree().depth(block),
                                  GroupId(g), slot,
                                  cache().pool(Tier::disk, GroupId(g)).generation(slot)});
    }
    cache().drop_copy(block, GroupId(g), tier);
    ++work_;
  }
  const bool is_cached = cache().tree().contains(block) && cache().has_any_copy(block);
  if (was_cached && !is_cached) {
    history_->record(key, {now_, reuses, loss.reason, loss.cause, tier});
  }
}

bool Engine::State::evict_one(Tier tier) {
  if (give_up_for(tier)) return true;
  const BlockId block = cache().victim(tier);
  if (block.is_none()) return false;
  bool elsewhere = false;
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    elsewhere |= static_cast<Tier>(t) != tier && cache().has_copy(block, static_cast<Tier>(t));
  }
  if (!elsewhere) ++counters_.dropped_unsaved_blocks;
  ++counters_.evicted_blocks[tier_index(tier)];
  const bool has_tier_below =
      tier != Tier::disk && tier_on(static_cast<Tier>(tier_index(tier) + 1));
  drop_block_copy(block, tier,
                  {has_tier_below ? MissReason::dropped_before_writeback : MissReason::evicted,
                   MissCause::room});
  return true;
}

// Wrong or unreadable bytes: the copy goes, unless another move reads it at this moment; then that
// one, or the next, finds it again.
void Engine::State::quarantine(BlockId block, Tier tier, const Move& reader, BlockOutcome outcome) {
  for (const Move& move : moves_) {
    if (!move.active || &move == &reader || move.from != tier) continue;
    if (std::find(move.blocks.begin(), move.blocks.end(), block) != move.blocks.end()) return;
  }
  const bool is_corrupt = outcome == BlockOutcome::corrupt;
  drop_block_copy(block, tier,
                  {is_corrupt ? MissReason::corrupt : MissReason::load_failed,
                   is_corrupt ? MissCause::none : MissCause::io_error});
}

bool Engine::State::take_slots(Tier tier) {
  slots_.clear();
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    auto slot = cache().take_slot(tier, GroupId(g));
    while (!slot && evict_one(tier)) slot = cache().take_slot(tier, GroupId(g));
    if (!slot) {
      for (std::uint32_t taken = 0; taken < g; ++taken) {
        cache().release_slot(tier, GroupId(taken), slots_[taken]);
      }
      slots_.clear();
      return false;
    }
    slots_.push_back(*slot);
    ++work_;
  }
  return true;
}

}  // namespace kv::core
