// BlockHeap: block ids ordered by turn, then by a number, then least recently used, then
// deeper first, then by id; with look-up by id. What policies with a priority keep their evictable
// blocks in. Owner: a policy. Threads: none. Memory is sized at construction: 24 bytes a block.
// Cost: push, remove O(log n); front O(1).
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "tiering/policies/eviction_policy.h"

namespace kv {

class BlockHeap {
 public:
  static constexpr std::uint64_t kValueMax = (std::uint64_t{1} << 63U) - 1;

  explicit BlockHeap(std::uint32_t block_capacity);

  // requires: not contained; value <= kValueMax; last_use < 2^43.
  void push(BlockId block, EvictionTurn turn, std::uint64_t value, std::uint64_t last_use,
            std::uint32_t depth);
  void remove(BlockId block);  // requires: contained
  // Subtracts from the value of every block that is in the heap, down to 0 at least.
  void subtract(std::uint64_t amount);
  [[nodiscard]] bool contains(BlockId block) const { return places_[block.value] != kAbsent; }
  [[nodiscard]] EvictionTurn turn(BlockId block) const {  // requires: contained
    return keys_[block.value].word > kValueMax ? EvictionTurn::late : EvictionTurn::early;
  }
  [[nodiscard]] BlockId front() const;  // none() when empty
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(heap_.size()); }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Key {
    std::uint64_t word = 0;  // the turn in the highest bit, then the value
    std::uint64_t tie = 0;   // last use and depth in one number
  };
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFFU;

  [[nodiscard]] bool goes_before(std::uint32_t a, std::uint32_t b) const;
  void place(std::uint32_t position, std::uint32_t block);
  void sift_up(std::uint32_t position);
  void sift_down(std::uint32_t position);

  std::vector<Key> keys_;
  std::vector<std::uint32_t> places_;  // position in the heap, or kAbsent
  std::vector<std::uint32_t> heap_;
};

}  // namespace kv
