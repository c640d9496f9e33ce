// Recovery: what the disk index held at open, block by block, parents first.
#include "allocator/block_key.h"
#include "cachesvc/core/engine_state.h"

namespace kv::core {

void Engine::State::on(const DiskFormat& input) {
  if (input.layout == nullptr || cache_ != nullptr) return;
  if (!define_format(*input.layout)) return;  // the budgets have no room for one block of it
  recovering_ = tier_on(Tier::disk);
}

void Engine::State::on(const Recovered& input) {
  if (cache_ == nullptr || !recovering_) return;
  const std::size_t count = input.entries.size();
  const bool whole = count <= kRecoveredEntriesMax && input.tokens.size() == count * block_tokens_;
  for (std::size_t i = 0; whole && i < count; ++i) {
    const RecoveredEntry& entry = input.entries[i];
    if (recover(entry, input.tokens.subspan(i * block_tokens_, block_tokens_))) {
      ++counters_.recovered_blocks;
    } else {
      ++counters_.orphaned_blocks;
      const bool cleared = is_being_cleared(entry.namespace_digest);
      history_->record(entry.key, {now_, 0, cleared ? MissReason::evicted : MissReason::load_failed,
                                   cleared ? MissCause::cleared : MissCause::orphaned, Tier::disk});
      actions_->erases.push_back(
          {entry.key, entry.depth, entry.group, entry.slot, entry.generation});
    }
    ++work_;
  }
  if (input.last) recovering_ = false;
}

// False: the entry hangs on nothing, or contradicts what is known.
bool Engine::State::recover(const RecoveredEntry& entry, std::span<const Token> tokens) {
  if (entry.group.value >= group_count_ ||
      entry.slot.value >= cache().pool(Tier::disk, entry.group).slot_count()) {
    return false;
  }
  if (is_being_cleared(entry.namespace_digest)) return false;
  if (next_block_key(entry.parent_key, tokens) != entry.key) return false;
  BlockId parent = BlockId::none();
  if (entry.depth == 0) {
    if (entry.parent_key != entry.namespace_digest) return false;
  } else {
    parent = cache().find_key(entry.parent_key);
    if (parent.is_none() || cache().tree().depth(parent) + 1 != entry.depth ||
        cache().records().slot(parent, entry.group, Tier::disk).is_none()) {
      return false;
    }
  }
  const auto root = open_root(entry.namespace_digest, RootFor::recovery);
  if (!root || (!parent.is_none() && cache().tree().root(parent) != *root)) return false;
  const auto block = cache().insert_pinned(*root, parent, tokens, entry.key, 0);
  if (!block) return false;
  // A host copy that came in the meantime has a checksum of its own, and it is the one kept.
  const bool other_bytes = cache().has_copy(*block, Tier::host) &&
                           cache().records().checksum(*block, entry.group) != entry.checksum;
  const bool free =
      !other_bytes && cache().records().slot(*block, entry.group, Tier::disk).is_none() &&
      cache().pool(Tier::disk, entry.group).take_exactly(entry.slot, entry.generation).has_value();
  if (free) {
    cache().add_copy(*block, entry.group, Tier::disk, entry.slot);
    cache().records().set_checksum(*block, entry.group, entry.checksum);
  }
  cache().unpin(*block);
  return free;
}

}  // namespace kv::core
