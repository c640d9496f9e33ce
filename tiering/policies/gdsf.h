// GdsfPolicy: greedy dual, by size and frequency; recompute cost aware. The block with the smallest
// H = L + uses * cost goes; L is the largest H of a block that went, so that what is not used any
// more ages. cost is that of computing the block again: deep blocks cost more, because attention
// reads what lies in front. All blocks of a tier have one size. Uses count while the block is in
// the tier. Ties: least recently used, then deeper first, then by id.
// Owner: EvictionOrder. Threads: none. Memory: 48 bytes a block. Cost: O(log n) for each call that
// concerns an evictable block, else O(1); once O(n) when L passes 2^61, which with costs of 2^20 is
// 10^12 evictions away.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tiering/policies/block_heap.h"
#include "tiering/policies/eviction_policy.h"

namespace kv {

class GdsfPolicy : public EvictionPolicy {
 public:
  GdsfPolicy(std::uint32_t block_capacity, RecomputeCost cost);

  void insert(BlockId block, const BlockUse& use) override;
  void touch(BlockId block, std::uint64_t last_use, bool counted) override;
  void set_evictable(BlockId block, std::optional<EvictionTurn> turn) override;
  void remove(BlockId block, bool evicted) override;
  [[nodiscard]] bool contains(BlockId block) const override {
    return records_[block.value].uses > 0;
  }
  [[nodiscard]] std::optional<EvictionTurn> evictable(BlockId block) const override;
  [[nodiscard]] BlockId victim() const override { return heap_.front(); }
  [[nodiscard]] std::uint64_t bytes() const override;

 private:
  struct Record {
    std::uint64_t priority = 0;  // H
    std::uint64_t last_use = 0;
    std::uint32_t uses = 0;  // 0: not in the tier
    std::uint32_t depth = 0;
  };
  void set_priority(Record& record);
  void push(BlockId block, EvictionTurn turn);
  void start_over();

  RecomputeCost cost_;
  std::vector<Record> records_;
  BlockHeap heap_;
  std::uint64_t age_ = 0;  // L
};

}  // namespace kv
