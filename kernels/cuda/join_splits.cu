// Joins the partial results of a tile's splits in ascending order.
#include "kernels/cuda/attention.cuh"

namespace kv::cuda {
namespace {

struct JoinArguments {
  AttentionArguments attention;
  unsigned queries, dim;  // of a tile
};

// Grid: x = tile, y = as attend, times queries. A thread for each channel.
__global__ void join_splits(JoinArguments j) {
  const AttentionArguments& a = j.attention;
  const Tile tile = find_tile(a, a.tile_begin + blockIdx.x);
  if (tile.row_begin >= tile.row_end) return;
  const std::uint32_t group = blockIdx.y / j.queries;
  const unsigned n = blockIdx.y % j.queries;
  const Query query = query_of(a, tile, group, n);
  if (!query.exists) return;
  const Visible visible = visible_at(a, tile.position + (query.row - tile.row_begin));
  float out = 0.0F;
  Softmax softmax{0.0F, 0.0F};
  const std::uint32_t split_end = (visible.end - 1) / kSplitTokens + 1;
  KV_UNROLL(4)
  for (std::uint32_t split = 0; split < split_end; ++split) {
    if (!visible.touches(split)) continue;
    const float* from = a.partials + partial_offset(a, blockIdx.x, group, split, j.queries, j.dim);
    const float* max = from + std::size_t{j.queries} * j.dim + n;
    join(out, softmax, from[n * j.dim + threadIdx.x], {max[0], max[j.queries]});
  }
  if (threadIdx.x < a.head_dim) {
    write_channel(a, query.row, query.head, threadIdx.x, out, softmax);
  }
}

}  // namespace

int launch_join(const AttentionArguments& a, unsigned queries, unsigned dim, Stream stream) {
  const JoinArguments arguments{a, queries, dim};
  return launch(join_splits, dim3{a.tile_count, a.kv_heads * a.head_tiles * queries, 1}, dim,
                stream, arguments);
}

}  // namespace kv::cuda
