// Retired blocks: what a Clear left behind. Nothing matches them any more; they go as soon as
// nothing holds them, and before anything else that may go.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

void Engine::State::unpin(BlockId block) {
  cache().unpin(block);
  const PrefixTree& tree = cache().tree();
  if (tree.contains(block) && tree.is_retired(block)) retired_.add_unpinned(block);
}

bool Engine::State::is_moving(BlockId block) const {
  if (cache_->records().pins(block) == 0) return false;  // a move pins each of its blocks
  return std::any_of(moves_.begin(), moves_.end(), [block](const Move& move) {
    return move.active &&
           std::find(move.blocks.begin(), move.blocks.end(), block) != move.blocks.end();
  });
}

bool Engine::State::is_retired(const Move& move) const {
  return cache_->tree().is_retired(move.blocks.front());
}

// Running sequences read a block's device copy, and those of the blocks above; nobody reads lower
// copies of a retired block but a move, which comes here again when it ends.
void Engine::State::give_up(BlockId block) {
  ++work_;
  if (is_moving(block)) return;
  const bool is_displaced = displaced_[cache().tree().root(block).value] != 0;
  const Loss loss{MissReason::evicted, is_displaced ? MissCause::room : MissCause::cleared};
  if (!cache().is_covered(block) && !cache().tree().has_child(block)) {
    drop_block_copy(block, Tier::device, loss);
  }
  for (const Tier tier : {Tier::host, Tier::disk}) {
    if (cache().tree().contains(block)) drop_block_copy(block, tier, loss);
  }
}

bool Engine::State::give_up_for(Tier tier) {
  while (budget_left() && !retired_.empty()) {
    const BlockId block = retired_.next(cache(), retired_hops_);
    if (block.is_none()) return false;
    const std::uint32_t free = free_slots(tier);
    give_up(block);
    if (free_slots(tier) > free) return true;
  }
  return false;
}

void Engine::State::give_up_retired() {
  while (budget_left() && !retired_.empty()) {
    const BlockId block = retired_.next(cache(), retired_hops_);
    if (block.is_none()) return;
    give_up(block);
  }
}

// Disk copies of retired blocks once each had its turn: those that a load still reads.
std::uint32_t Engine::State::retired_on_disk() const {
  std::uint32_t count = 0;
  for (const Move& move : moves_) {
    if (!move.active || !is_retired(move)) continue;
    count += static_cast<std::uint32_t>(
        std::count_if(move.blocks.begin(), move.blocks.end(),
                      [this](BlockId block) { return cache_->has_copy(block, Tier::disk); }));
  }
  return count;
}

}  // namespace kv::core
