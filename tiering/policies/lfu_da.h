// LfuDaPolicy: least frequently used, with dynamic aging: GDSF in which every block costs the same.
// H = L + uses; the smallest goes; L is the largest H of what went. Plain LFU keeps for ever what
// was used often once; L lets it go.
// Owner: EvictionOrder. Threads: none. Memory and cost: as GdsfPolicy.
#pragma once

#include <cstdint>

#include "tiering/policies/gdsf.h"

namespace kv {

class LfuDaPolicy final : public GdsfPolicy {
 public:
  explicit LfuDaPolicy(std::uint32_t block_capacity)
      : GdsfPolicy(block_capacity, RecomputeCost{.block = 1, .depth = 0}) {}
};

}  // namespace kv
