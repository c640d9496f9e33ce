// LruPolicy: which evictable block of one tier goes next: the least recently used; ties deeper
// first, then the smaller id. An intrusive structure over block ids: it stores keys, never blocks.
// The caller inserts only blocks that may go (leaf in the tier, unpinned) and takes them out when
// that ends. With prefixes touched as wholes this is exactly leaf-first LRU. Owner: PrefixCache,
// one a tier and saved-state. Threads: none. Memory is sized at construction. Cost: insert with the
// newest key and remove of any: O(1); insert with an older key and pop: O(log m) in the number m of
// blocks that came in with an older key (parents left behind by their children).
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"

namespace kv {

class LruPolicy {
 public:
  explicit LruPolicy(std::uint32_t block_capacity);

  // requires: not contained. `last_use` of the engine's use counter; `depth` of the block.
  void insert(BlockId block, std::uint64_t last_use, std::uint32_t depth);
  void remove(BlockId block);  // requires: contained
  [[nodiscard]] bool contains(BlockId block) const;
  [[nodiscard]] BlockId victim() const;  // none() when empty; stays contained
  [[nodiscard]] std::uint32_t size() const;

 private:
  // Order of leaving: (last_use, deeper first, id), packed into one number and the id.
  struct Place {
    std::uint32_t previous;  // in the list; in the heap: the position
    std::uint32_t next;      // in the list, or one of the marks below
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  static constexpr std::uint32_t kInHeap = 0xFFFFFFFEU;
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFDU;

  [[nodiscard]] bool leaves_before(std::uint32_t a, std::uint32_t b) const;
  void list_insert_after(std::uint32_t previous, std::uint32_t block);
  void list_remove(std::uint32_t block);
  void heap_push(std::uint32_t block);
  void heap_remove(std::uint32_t block);
  void heap_set(std::uint32_t position, std::uint32_t block);
  void sift_up(std::uint32_t position);
  void sift_down(std::uint32_t position);

  std::vector<std::uint64_t> keys_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> heap_;
  std::uint32_t head_ = kNone;  // the list is sorted: head_ leaves first
  std::uint32_t tail_ = kNone;
  std::uint32_t size_ = 0;
};

}  // namespace kv
