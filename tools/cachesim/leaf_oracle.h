// Oracles that evict leaves only: of the blocks without a cached child that the request at hand
// does not use, the one with the smallest key goes; ties least recently used (but fifo), then
// deeper first, then by block. Independent
// of the service's code: the eviction order is a heap with entries that may be out of date. Owner:
// the command. Threads: none. Memory: 40 bytes a unique block. Cost: O(blocks of a request), and
// O(log n) an eviction.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "tools/cachesim/cache_model.h"

namespace kv::cachesim {

enum class LeafRule : std::uint8_t {
  lru,             // the last use
  fifo,            // the request that brought it
  lfu,             // (uses while cached, last use)
  lfu_persistent,  // the same, and uses are not forgotten when the block goes
  lfu_da,          // L + uses while cached; L: the largest key of what went
  gdsf_flop,       // L + uses while cached x cost of computing it
  deepest_first,   // the deepest
};

class LeafOracle final : public CacheModel {
 public:
  LeafOracle(const Trace& trace, std::uint32_t capacity, LeafRule rule);

  std::uint32_t take(std::span<const std::uint32_t> blocks) override;

 private:
  struct Block {
    double key = 0;
    std::uint32_t uses = 0;
    std::uint32_t last_use = 0;
    std::uint32_t children = 0;  // cached ones
    std::uint32_t version = 0;   // entries of the heap with another one are out of date
    bool cached = false;
  };
  struct Entry {
    double key;
    std::uint32_t last_use;  // 0 under fifo
    std::uint32_t depth;
    std::uint32_t block;
    std::uint32_t version;
    bool operator<(const Entry& other) const;  // the top of the heap goes first
  };
  void use(std::uint32_t block);
  void push_if_leaf(std::uint32_t block);
  bool evict();
  [[nodiscard]] double cost(double depth) const;

  const Trace& trace_;
  std::uint32_t capacity_;
  LeafRule rule_;
  std::vector<Block> blocks_;
  std::priority_queue<Entry> leaves_;
  std::uint32_t size_ = 0;
  std::uint32_t now_ = 0;  // the request, from 1
  double age_ = 0;         // L
};

}  // namespace kv::cachesim
