// Rules that every attention kernel here shares: which keys a query sees, which tile
// of queries a block takes, and how two partial softmax results are joined.
//
// Determinism: keys are cut into splits of kSplitTokens at absolute positions. Within a split each
// key has its lane and its place in the order of addition by its position alone. Splits are joined
// in ascending order. What a query gives does not depend on the tile, batch, slots or strides.
#pragma once

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dtype.cuh"

namespace kv::cuda {

inline constexpr unsigned kThreads = 128;
inline constexpr unsigned kWarps = kThreads / kWarpLanes;
inline constexpr unsigned kNoSlot = 0xFFFFFFFFU;

// The rows of one tile: all of one sequence.
struct Tile {
  std::uint32_t sequence, row_begin, row_end;
  std::uint32_t position;  // of row_begin
};

// Tiles are numbered so that no list of them is needed: sequence s has those from
// row_start[s] / rows_per_tile + s on (with one row a tile: from row_start[s]). Some stay empty.
__device__ inline std::uint32_t first_tile(const AttentionArguments& a, std::uint32_t sequence) {
  if (a.uniform_rows != 0) {
    return sequence * ((a.uniform_rows + a.rows_per_tile - 1) / a.rows_per_tile);
  }
  const std::uint32_t row = a.row_start[sequence];
  return a.rows_per_tile == 1 ? row : row / a.rows_per_tile + sequence;
}

__device__ inline Tile find_tile(const AttentionArguments& a, std::uint32_t tile) {
  std::uint32_t low = 0;
  if (a.uniform_rows != 0) {
    low = tile / ((a.uniform_rows + a.rows_per_tile - 1) / a.rows_per_tile);
  } else {
    std::uint32_t high = a.sequence_count;  // the last sequence whose first tile is not beyond
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      if (first_tile(a, middle) <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
  }
  const std::uint32_t begin = a.row_start[low];
  const std::uint32_t end = a.row_start[low + 1];
  Tile found;
  found.sequence = low;
  found.row_begin = begin + (tile - first_tile(a, low)) * a.rows_per_tile;
  found.row_end = found.row_begin + a.rows_per_tile < end ? found.row_begin + a.rows_per_tile : end;
  found.position = a.kv_length[low] - (end - found.row_begin);
  return found;
}

// The keys that a query at `position` sees: [0, sink_end) and [begin, end).
struct Visible {
  std::uint32_t sink_end, begin, end;
  __device__ bool has(std::uint32_t token) const {
    return token < end && (token >= begin || token < sink_end);
  }
  __device__ bool touches(std::uint32_t split) const {
    const std::uint32_t from = split * kSplitTokens;
    return from < end && (from + kSplitTokens > begin || from < sink_end);
  }
};

__device__ inline Visible visible_at(const AttentionArguments& a, std::uint32_t position) {
  Visible visible;
  visible.end = position + 1;
  visible.begin = a.window != 0 && visible.end > a.window ? visible.end - a.window : 0;
  visible.sink_end = a.sinks < visible.end ? a.sinks : visible.end;
  return visible;
}

// Which query is n of the tile.
struct Query {
  std::uint32_t row, head;
  bool exists;
};

__device__ inline Query query_of(const AttentionArguments& a, const Tile& tile, std::uint32_t group,
                                 unsigned n) {
  const std::uint32_t in_group = group % a.head_tiles * a.heads_per_tile + n % a.heads_per_tile;
  Query query;
  query.row = tile.row_begin + n / a.heads_per_tile;
  query.head = group / a.head_tiles * a.ratio + in_group;
  query.exists =
      n / a.heads_per_tile < a.rows_per_tile && query.row < tile.row_end && in_group < a.ratio;
  return query;
}

// Where the partial result of a tile's split is: N x D values, N maxima, N sums. In floats.
__device__ inline std::size_t partial_offset(const AttentionArguments& a, std::uint32_t tile,
                                             std::uint32_t group, std::uint32_t split,
                                             unsigned queries, unsigned dim) {
  const std::size_t index =
      (std::size_t{tile} * a.kv_heads * a.head_tiles + group) * a.split_count + split;
  return index * queries * (dim + 2);
}

// Of some keys: the largest score and the sum of the weights over it, in base 2.
struct Softmax {
  float max, sum;
};

// Joins what comes from the keys right after those of `into`. One channel and its softmax.
__device__ inline void join(float& into_out, Softmax& into, float later_out, Softmax later) {
  if (later.sum == 0.0F) return;  // no key of it is visible
  if (into.sum == 0.0F) {
    into_out = later_out;
    into = later;
    return;
  }
  const float max = fmaxf(into.max, later.max);
  const float into_factor = exp2_fast(into.max - max);
  const float later_factor = exp2_fast(later.max - max);
  into_out = fmaf(later_out, later_factor, into_out * into_factor);
  into.sum = fmaf(later.sum, later_factor, into.sum * into_factor);
  into.max = max;
}

constexpr float kNaturalOfBase2 = 0.693147180559945309F;

__device__ inline void write_channel(const AttentionArguments& a, std::uint32_t row,
                                     std::uint32_t head, std::uint32_t channel, float out,
                                     Softmax softmax) {
  const std::size_t row_head = std::size_t{row} * a.kv_heads * a.ratio + head;
  store_element(a.output, row_head * a.head_dim + channel, a.output_dtype, out / softmax.sum);
  if (a.lse != nullptr && channel == 0) {
    a.lse[row_head] = (softmax.max + log2f(softmax.sum)) * kNaturalOfBase2;
  }
}

}  // namespace kv::cuda
