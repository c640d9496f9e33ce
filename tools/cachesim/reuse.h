// Reuse distances of a trace: how many blocks an LRU cache that is touched tail to head must hold
// so that an access is a hit. One pass gives the hits of such a cache of every size at once (each
// size holds what the smaller one holds). Whole stretches of a prompt were last used by one request
// and so have distances in a row: the cost is that of reading the trace.
// Owner: the command. Threads: none. Memory: 16 bytes a unique block. Cost: O(accesses + stretches
// log requests).
#pragma once

#include <cstdint>
#include <vector>

#include "tools/cachesim/trace.h"

namespace kv::cachesim {

class ReuseDistances {
 public:
  explicit ReuseDistances(const Trace& trace);

  // Hits of an LRU cache of `capacity` blocks.
  [[nodiscard]] std::uint64_t block_hits(std::uint32_t capacity) const;
  [[nodiscard]] std::uint64_t reused() const { return hits_.back(); }  // accesses that are no first
  // The smallest capacity at which `share` of the reused accesses are hits; 0 when none is.
  [[nodiscard]] std::uint32_t distance_at(double share) const;

 private:
  std::vector<std::uint64_t> hits_;  // by capacity
};

// Hits when nothing is ever evicted: the ceiling of every cache.
struct Ceiling {
  std::uint64_t block_hits = 0;
  std::uint64_t token_hits = 0;
  std::uint32_t roots = 0;
};
[[nodiscard]] Ceiling ceiling_of(const Trace& trace);

}  // namespace kv::cachesim
