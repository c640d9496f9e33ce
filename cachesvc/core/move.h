// Move: a run of blocks between two tiers; SaveQueue: blocks that wait for one. Private to the
// sources of the Engine. Owner: Engine. Threads: none. Cost: O(1) a block.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "cachesvc/core/inputs.h"
#include "cachesvc/core/sequence_state.h"

namespace kv::core {

// One run of blocks on its way between two tiers: one transfer for each layer group.
struct Move {
  enum class Purpose : std::uint8_t { save, land, load };
  bool active = false;
  std::uint64_t serial = 0;
  std::uint64_t origin = 0;  // of a retry: the serial of the first try; else its own
  bool is_retry = false;     // of blocks that found no room on the disk
  Tier from = Tier::device;
  Tier to = Tier::host;
  Purpose purpose = Purpose::save;
  std::uint32_t sequence = kNoIndex;   // land, load
  std::uint32_t outstanding = 0;       // transfers not yet reported
  std::vector<std::uint8_t> reported;  // by group
  std::vector<BlockId> blocks;
  std::vector<std::uint32_t> items;      // land, load: index in the sequence's loads
  std::vector<SlotId> from_slots;        // group x block
  std::vector<SlotId> to_slots;          // group x block
  std::vector<std::uint32_t> checksums;  // group x block
  std::vector<std::uint8_t> written;     // group x block
  std::vector<BlockOutcome> outcomes;    // by block: the worst of its groups
};

// Blocks to be copied down one link, first in first out. Entries are checked when their turn comes.
class SaveQueue {
 public:
  explicit SaveQueue(std::uint32_t capacity) : entries_(capacity) {}
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] BlockId front() const { return entries_[head_]; }
  void pop() {
    ++popped_;
    head_ = (head_ + 1) % capacity();
    --count_;
  }
  // False when full: the block stays unsaved until a flush looks for it.
  bool push(BlockId block) {
    if (count_ == capacity()) return false;
    entries_[(head_ + count_) % capacity()] = block;
    ++count_;
    ++pushed_;
    return true;
  }
  // Of all time: when popped() reaches what pushed() was, everything from before had its turn.
  [[nodiscard]] std::uint64_t pushed() const { return pushed_; }
  [[nodiscard]] std::uint64_t popped() const { return popped_; }

 private:
  [[nodiscard]] std::uint32_t capacity() const {
    return static_cast<std::uint32_t>(entries_.size());
  }
  std::vector<BlockId> entries_;
  std::uint32_t head_ = 0;
  std::uint32_t count_ = 0;
  std::uint64_t pushed_ = 0;
  std::uint64_t popped_ = 0;
};

}  // namespace kv::core
