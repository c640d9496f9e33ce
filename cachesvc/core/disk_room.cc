// Room on the disk: what happens when a save finds none, and a disk that is off. The next victims
// go, at least as many as the blocks that found no room, and those blocks are saved once more, into
// the slots that came free (the slot freed last is taken first, and it has room in its slab file).
// When that fails too, nothing is saved until something changes: a copy leaves the disk, time
// passes, or somebody asks (Flush, Demote). Then one block at a time finds out.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

bool Engine::State::saves_may_start(Tier to) const {
  if (!tier_on(to)) return false;
  if (to != Tier::disk) return true;
  if (recovering_ || disk_room_ == DiskRoom::none) return false;
  return disk_room_ == DiskRoom::enough || moves_on(Tier::host, Tier::disk) == 0;
}

// The blocks of the save that ends are still pinned: neither they nor what they hang on are
// victims.
void Engine::State::judge_disk_room(const Move& move) {
  const auto count = [&move](BlockOutcome wanted) {
    return static_cast<std::uint64_t>(
        std::count(move.outcomes.begin(), move.outcomes.end(), wanted));
  };
  const std::uint64_t refused = count(BlockOutcome::no_space);
  counters_.no_space_blocks += refused;
  if (refused == 0) {
    if (count(BlockOutcome::ok) > 0) disk_room_ = DiskRoom::enough;
    return;
  }
  std::size_t evicted = 0;
  while (evicted < retry_.size() && evict_one(Tier::disk)) ++evicted;
  if (evicted > 0) return;
  counters_.failed_blocks[tier_index(Tier::disk)] += retry_.empty() ? 0 : refused;
  retry_.clear();
  disk_room_ = DiskRoom::none;
  disk_full_at_ = now_;
}

void Engine::State::retry_saves(std::uint64_t origin) {
  Move* move = free_move(Tier::host, Tier::disk);
  KV_CHECK(move != nullptr);  // the save that just ended had one
  move->purpose = Move::Purpose::save;
  move->is_retry = true;
  move->origin = origin;
  const auto saved = [this, move](BlockId block) {
    const auto& own = move->blocks;
    return cache().has_copy(block, Tier::disk) ||
           std::find(own.begin(), own.end(), block) != own.end();
  };
  for (const BlockId block : retry_) {
    bool taken = cache().tree().contains(block) && cache().has_copy(block, Tier::host);
    if (taken) {
      const BlockId parent = cache().tree().parent(block);
      taken = (parent.is_none() || saved(parent)) && add_save(*move, block) == SaveSlot::taken;
    }
    ++(taken ? counters_.retried_blocks : counters_.failed_blocks[tier_index(Tier::disk)]);
  }
  retry_.clear();
  if (!move->blocks.empty()) start_save(*move);
}

void Engine::State::on(const DiskOff& /*input*/) {
  if (cache_ == nullptr) {
    options_.tier_bytes[tier_index(Tier::disk)] = 0;
    return;
  }
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    const BlockPool& pool = cache().pool(Tier::disk, GroupId(g));
    if (pool.count(SlotState::free) != pool.slot_count()) return;
  }
  recovering_ = false;
  slot_count_[tier_index(Tier::disk)] = 0;
  landing_reserve_ = 0;
  while (!save_to_disk_.empty()) save_to_disk_.pop();
}

}  // namespace kv::core
