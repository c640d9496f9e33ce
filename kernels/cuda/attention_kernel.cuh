// The kernel of attention on CUDA cores: a tile of queries over one split or over all. Instantiated
// in attention_{f32,f16,bf16}.cu.
#pragma once

#include "kernels/cuda/attention_split.cuh"

namespace kv::cuda {

template <unsigned D, unsigned N>
__device__ void load_queries(const AttentionArguments& a, const Tile& tile, std::uint32_t group,
                             float* to) {
  for (unsigned element = threadIdx.x; element < N * D; element += kThreads) {
    const Query query = query_of(a, tile, group, element / D);
    const unsigned channel = element % D;
    const std::size_t row_head = std::size_t{query.row} * a.kv_heads * a.ratio + query.head;
    to[element] = query.exists && channel < a.head_dim
                      ? load_element(a.query, row_head * a.head_dim + channel, a.query_dtype)
                      : 0.0F;
  }
}

__device__ inline void load_slots(const AttentionArguments& a, std::uint32_t sequence,
                                  std::uint32_t base, const Range& range, std::uint32_t* slots) {
  const std::uint32_t* table = a.table + std::size_t{sequence} * a.table_stride;
  for (unsigned i = threadIdx.x; (i << a.block_shift) < kSplitTokens; i += kThreads) {
    // A block larger than a split: all of the split is in one.
    const std::uint32_t token = i << a.block_shift;
    const bool wanted = token < range.end;
    const std::uint32_t block = (base + token) >> a.block_shift;
    const std::uint32_t slot = wanted && block < a.table_stride ? table[block] : kNoSlot;
    slots[i] = slot < a.slot_count ? slot : kNoSlot;
  }
}

template <unsigned D, unsigned N>
__device__ void write_partial(const AttentionArguments& a, const SplitMemory<D, N>& memory,
                              std::size_t offset) {
  float* to = a.partials + offset;
  for (unsigned element = threadIdx.x; element < N * D; element += kThreads) {
    to[element] = value_of<D, N>(memory, element);
  }
  if (threadIdx.x < N) {
    const Softmax softmax = softmax_of<D, N>(memory, threadIdx.x);
    to[N * D + threadIdx.x] = softmax.max;
    to[N * D + N + threadIdx.x] = softmax.sum;
  }
}

// Grid: x = tile (and split, where a block takes one), y = key-value head and tile of its heads.
template <class T, unsigned D, unsigned N>
__global__ void __launch_bounds__(kThreads) attend(AttentionArguments a) {
  KV_SHARED(std::uint32_t, slots, kSplitTokens);
  KV_SHARED(float, weights, kSplitTokens* N);
  KV_SHARED(float, queries, N* D);
  KV_SHARED(float, warps, kWarps* N* D);
  KV_SHARED(float, reduced, 2 * kWarps * N);
  const SplitMemory<D, N> memory{slots, weights, queries, warps, reduced};
  const std::uint32_t splits_here = a.partials == nullptr ? 1 : a.split_count;
  const std::uint32_t local = blockIdx.x / splits_here;
  const Tile tile = find_tile(a, a.tile_begin + local);
  if (tile.row_begin >= tile.row_end) return;
  const std::uint32_t group = blockIdx.y;
  const std::uint32_t last = tile.position + (tile.row_end - tile.row_begin) - 1;
  const Visible first_sees = visible_at(a, tile.position);
  const Visible last_sees = visible_at(a, last);
  // The lane that writes a query's scores says what the query sees.
  const Query mine = query_of(a, tile, group, threadIdx.x % Lanes<T, D>::kKeyLanes);
  Visible visible = visible_at(a, tile.position + (mine.row - tile.row_begin));
  if (!mine.exists) visible.end = 0;
  std::uint32_t split = a.partials == nullptr ? 0 : blockIdx.x % splits_here;
  const std::uint32_t split_end = a.partials == nullptr ? last / kSplitTokens + 1 : split + 1;
  constexpr unsigned kElements = (N * D + kThreads - 1) / kThreads;
  float out[kElements] = {};
  Softmax softmax[kElements] = {};
  load_queries<D, N>(a, tile, group, queries);
  for (; split < split_end; ++split) {
    const std::uint32_t base = split * kSplitTokens;
    const Visible all{last_sees.sink_end, first_sees.begin, last_sees.end};
    if (!all.touches(split)) continue;  // the same for the whole block
    const auto within = [base](std::uint32_t token) {
      return token < base ? 0U : token - base < kSplitTokens ? token - base : kSplitTokens;
    };
    const Range range{within(all.sink_end), within(all.begin), within(all.end)};
    __syncthreads();  // the split before is read no more
    load_slots(a, tile.sequence, base, range, slots);
    __syncthreads();
    score_keys<T, D, N>(a, memory, group / a.head_tiles, range, base, visible);
    __syncthreads();
    weigh<D, N>(memory, range.end);
    sum_values<T, D, N>(a, memory, group / a.head_tiles, range, base);
    if (a.partials != nullptr) {
      write_partial<D, N>(a, memory, partial_offset(a, local, group, split, N, D));
      return;
    }
    for (unsigned i = 0; i < kElements; ++i) {
      const unsigned element = i * kThreads + threadIdx.x;
      if (element < N * D) {
        join(out[i], softmax[i], value_of<D, N>(memory, element),
             softmax_of<D, N>(memory, element / D));
      }
    }
  }
  if (a.partials != nullptr) return;
  for (unsigned i = 0; i < kElements; ++i) {
    const unsigned element = i * kThreads + threadIdx.x;
    if (element >= N * D || element % D >= a.head_dim) continue;
    const Query query = query_of(a, tile, group, element / D);
    if (query.exists) write_channel(a, query.row, query.head, element % D, out[i], softmax[i]);
  }
}

template <class T, unsigned D, unsigned N>
int launch_attention(const AttentionArguments& a, Stream stream) {
  const std::uint32_t groups = a.kv_heads * a.head_tiles;
  const std::uint32_t splits = a.partials == nullptr ? 1 : a.split_count;
  const int error =
      launch(attend<T, D, N>, dim3{a.tile_count * splits, groups, 1}, kThreads, stream, a);
  if (error != 0 || a.partials == nullptr) return error;
  return launch_join(a, N, D, stream);
}

template <class T, unsigned D>
int launch_for_tile(const AttentionArguments& a, std::uint32_t queries, Stream stream) {
  switch (queries) {
    case 1:
      return launch_attention<T, D, 1>(a, stream);
    case 2:
      return launch_attention<T, D, 2>(a, stream);
    default:
      return launch_attention<T, D, 4>(a, stream);
  }
}

// The smallest of the shipped head dimensions that holds the problem's.
template <class T>
int launch_for_shape(const AttentionArguments& a, std::uint32_t queries, Stream stream) {
  if (a.head_dim <= 64) return launch_for_tile<T, 64>(a, queries, stream);
  if (a.head_dim <= 128) return launch_for_tile<T, 128>(a, queries, stream);
  return launch_for_tile<T, 256>(a, queries, stream);
}

}  // namespace kv::cuda
