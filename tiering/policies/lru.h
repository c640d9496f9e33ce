// LruPolicy: which evictable block of one tier goes next: those of the early turn before those of
// the late one; in a turn the least recently used; ties deeper first, then the smaller id. An
// intrusive structure over block ids: it stores keys, never blocks. The caller inserts only blocks
// that may go (leaf in the tier, unpinned) and takes them out when that ends. With prefixes touched
// as wholes this is exactly leaf-first LRU. Owner: PrefixCache, one a tier. Threads: none. Memory
// is sized at construction: 20 bytes a block. Cost: insert with the newest or the oldest key of a
// turn and remove of any such: O(1); insert with a key in between and its remove: O(log m) in the
// number m of blocks that came in with such a key.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "tiering/policies/eviction_policy.h"

namespace kv {

class LruPolicy {
 public:
  using Turn = EvictionTurn;

  explicit LruPolicy(std::uint32_t block_capacity);

  // requires: not contained. `last_use` of the engine's use counter, below 2^43; `depth` of the
  // block.
  void insert(BlockId block, std::uint64_t last_use, std::uint32_t depth, Turn turn = Turn::early);
  void remove(BlockId block);  // requires: contained
  [[nodiscard]] bool contains(BlockId block) const { return places_[block.value].next != kAbsent; }
  [[nodiscard]] Turn turn(BlockId block) const {  // requires: contained
    return keys_[block.value] >> kTurnShift == 0 ? Turn::early : Turn::late;
  }
  [[nodiscard]] BlockId victim() const;  // none() when empty; stays contained
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Place {
    std::uint32_t previous;  // in a list; in the heap: the position
    std::uint32_t next;      // in a list, or one of the marks below
  };
  // Sorted: head leaves first. One list a turn.
  struct List {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  static constexpr std::uint32_t kInHeap = 0xFFFFFFFEU;
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFDU;
  static constexpr std::uint32_t kTurnShift = 63;

  [[nodiscard]] bool leaves_before(std::uint32_t a, std::uint32_t b) const {
    return keys_[a] != keys_[b] ? keys_[a] < keys_[b] : a < b;
  }
  [[nodiscard]] List& list_of(std::uint32_t block) { return lists_[keys_[block] >> kTurnShift]; }
  void list_insert_after(List& list, std::uint32_t previous, std::uint32_t block);
  void list_remove(List& list, std::uint32_t block);
  void heap_push(std::uint32_t block);
  void heap_remove(std::uint32_t block);
  void heap_set(std::uint32_t position, std::uint32_t block);
  void sift_up(std::uint32_t position);
  void sift_down(std::uint32_t position);

  std::vector<std::uint64_t> keys_;  // (turn, last_use, deeper first) in one number
  std::vector<Place> places_;
  std::vector<std::uint32_t> heap_;  // of both turns
  List lists_[2];
  std::uint32_t size_ = 0;
};

}  // namespace kv
