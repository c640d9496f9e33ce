// What prepare leaves for run, and how query heads and rows make tiles. Plain host values.
// Threads: none. Cost: O(1).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/api/kv_kernel.h"

namespace kv::cuda {

// Words of kv_kernel_plan.
inline constexpr std::uint32_t kPlanSequences = 0;
inline constexpr std::uint32_t kPlanRows = 1;
inline constexpr std::uint32_t kPlanUniformRows = 2;  // rows of every sequence; 0: they differ
inline constexpr std::uint32_t kPlanSplits = 3;       // of the longest sequence
inline constexpr std::uint32_t kPlanWords = 4;

// A tile is up to `queries` queries over the same keys: heads of one group, then rows.
struct Tiling {
  std::uint32_t queries, heads, rows;
  std::uint32_t head_tiles;  // of one group
  std::uint32_t padded_dim;  // the shipped head dimension
};

// The tile is a matter of speed alone: every query's result has the same bits in each.
inline Tiling tiling_of(std::uint32_t head_dim, std::uint32_t ratio, std::uint32_t uniform_rows) {
  Tiling tiling{};
  tiling.queries = uniform_rows == 1 && ratio <= 2 ? ratio : 4;
  tiling.heads = std::min(ratio, tiling.queries);
  tiling.rows = uniform_rows == 1 ? 1 : tiling.queries / tiling.heads;
  tiling.head_tiles = (ratio + tiling.heads - 1) / tiling.heads;
  tiling.padded_dim = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  return tiling;
}

// Of the partial results of one tile, all its splits and heads.
inline std::uint64_t partial_bytes(const kv_kernel_problem& problem, const Tiling& tiling,
                                   std::uint64_t splits) {
  return splits * problem.kv_head_count * tiling.head_tiles * tiling.queries *
         (tiling.padded_dim + 2) * sizeof(float);
}

}  // namespace kv::cuda
