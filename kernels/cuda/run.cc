// From the C ABI to the launches of attention, append, checksum and merge.
#include <bit>

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/plan.h"

namespace kv::cuda {
namespace {

// From so many blocks on the device is full without splitting keys over blocks.
constexpr std::uint64_t kFullGrid = 4096;
constexpr float kBase2OfNatural = 1.44269504088896341F;

bool aligned(std::int64_t value) { return value % kAlignment == 0; }

Plane plane_of(const kv_kernel_plane& plane, std::uint32_t layer) {
  char* base = plane.layer_bases == nullptr
                   ? static_cast<char*>(plane.base) + layer * plane.layer_stride
                   : static_cast<char*>(plane.layer_bases[layer]);
  return {base, plane.block_stride, plane.head_stride, plane.token_stride};
}

bool usable(const Plane& plane) {
  return aligned(reinterpret_cast<std::intptr_t>(plane.base)) && aligned(plane.block_stride) &&
         aligned(plane.head_stride) && aligned(plane.token_stride);
}

std::uint32_t shift_of(const kv_kernel_problem& problem) {
  return static_cast<std::uint32_t>(std::countr_zero(problem.block_tokens));
}

int launch_dtype(const AttentionArguments& a, std::uint32_t dtype, std::uint32_t queries,
                 void* stream) {
  switch (dtype) {
    case KV_KERNEL_DTYPE_F32:
      return launch_attention_f32(a, queries, stream);
    case KV_KERNEL_DTYPE_F16:
      return launch_attention_f16(a, queries, stream);
    default:
      return launch_attention_bf16(a, queries, stream);
  }
}

AttentionArguments arguments_of(const kv_kernel_problem& problem, const kv_kernel_plan& plan,
                                const kv_kernel_pool& pool, const kv_kernel_batch& batch,
                                const kv_kernel_tensors& tensors, const Tiling& tiling) {
  AttentionArguments a{};
  a.k = plane_of(pool.k, tensors.layer);
  a.v = plane_of(pool.v, tensors.layer);
  a.query = tensors.query;
  a.output = tensors.output;
  a.lse = tensors.lse;
  a.row_start = batch.row_start;
  a.kv_length = batch.kv_length;
  a.table = batch.table;
  a.sequence_count = batch.sequence_count;
  a.row_count = batch.row_count;
  a.table_stride = batch.table_stride;
  a.slot_count = pool.slot_count;
  a.kv_heads = problem.kv_head_count;
  a.ratio = problem.query_head_count / problem.kv_head_count;
  a.head_dim = problem.head_dim_qk;
  a.block_shift = shift_of(problem);
  a.window = (problem.features & KV_KERNEL_FEATURE_WINDOW) != 0 ? problem.window_tokens : 0;
  a.sinks = (problem.features & KV_KERNEL_FEATURE_SINK_TOKENS) != 0 ? problem.sink_tokens : 0;
  a.query_dtype = problem.query_dtype;
  a.output_dtype = problem.output_dtype;
  a.scale = problem.scale * kBase2OfNatural;
  a.uniform_rows = static_cast<std::uint32_t>(plan.words[kPlanUniformRows]);
  a.heads_per_tile = tiling.heads;
  a.rows_per_tile = tiling.rows;
  a.head_tiles = tiling.head_tiles;
  a.split_count = static_cast<std::uint32_t>(plan.words[kPlanSplits]);
  return a;
}

std::uint32_t tiles_of(const AttentionArguments& a) {
  if (a.uniform_rows != 0) {
    return a.sequence_count * ((a.uniform_rows + a.rows_per_tile - 1) / a.rows_per_tile);
  }
  return a.rows_per_tile == 1 ? a.row_count : a.row_count / a.rows_per_tile + a.sequence_count;
}

}  // namespace

std::int32_t run(const kv_kernel_problem* problem, const kv_kernel_plan* plan,
                 const kv_kernel_pool* pool, const kv_kernel_batch* batch,
                 const kv_kernel_tensors* tensors, void* device_workspace, void* stream) {
  const bool planned = plan->word_count == kPlanWords &&
                       plan->words[kPlanSequences] == batch->sequence_count &&
                       plan->words[kPlanRows] == batch->row_count;
  if (!planned || tensors->layer >= problem->layer_count) return KV_KERNEL_INVALID;
  if (batch->row_count == 0) return KV_KERNEL_OK;
  const std::uint32_t ratio = problem->query_head_count / problem->kv_head_count;
  const Tiling tiling = tiling_of(problem->head_dim_qk, ratio,
                                  static_cast<std::uint32_t>(plan->words[kPlanUniformRows]));
  AttentionArguments a = arguments_of(*problem, *plan, *pool, *batch, *tensors, tiling);
  if (!usable(a.k) || !usable(a.v)) return KV_KERNEL_INVALID;
  const std::uint32_t tiles = tiles_of(a);
  const std::uint64_t bytes = partial_bytes(*problem, tiling, a.split_count);
  const std::uint64_t blocks = std::uint64_t{tiles} * a.kv_heads * a.head_tiles;
  const bool split = a.split_count > 1 && blocks < kFullGrid && bytes <= kPartialBytesMax &&
                     device_workspace != nullptr;
  std::uint64_t at_once = tiles;
  if (split) {
    a.partials = static_cast<float*>(device_workspace);
    at_once = std::min<std::uint64_t>(tiles, kPartialBytesMax / bytes);
  }
  for (std::uint64_t done = 0; done < tiles; done += at_once) {
    a.tile_begin = static_cast<std::uint32_t>(done);
    a.tile_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(at_once, tiles - done));
    const int error = launch_dtype(a, problem->k_dtype, tiling.queries, stream);
    if (error != 0) return result_of(error, "attention");
  }
  return KV_KERNEL_OK;
}

std::int32_t append_kv(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                       const kv_kernel_append* append, void* stream) {
  if (append->layer >= problem->layer_count) return KV_KERNEL_INVALID;
  if (problem->query_dtype != problem->k_dtype && problem->query_dtype != KV_KERNEL_DTYPE_F32) {
    return KV_KERNEL_INVALID;
  }
  const Plane k = plane_of(pool->k, append->layer);
  const Plane v = plane_of(pool->v, append->layer);
  if (!usable(k) || !usable(v)) return KV_KERNEL_INVALID;
  AppendRows rows{append->k,
                  append->row_position,
                  append->row_count,
                  problem->kv_head_count,
                  problem->head_dim_qk,
                  shift_of(*problem),
                  pool->slot_count,
                  problem->query_dtype,
                  problem->k_dtype};
  int error = launch_append(k, rows, stream);
  if (error != 0) return result_of(error, "append_kv");
  rows.rows = append->v;
  rows.head_dim = problem->head_dim_vo;
  rows.pool_dtype = problem->v_dtype;
  error = launch_append(v, rows, stream);
  return result_of(error, "append_kv");
}

std::int32_t checksum(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                      const kv_kernel_checksum* checksum, void* stream) {
  if (checksum->block_count == 0) return KV_KERNEL_OK;
  ChecksumArguments a{};
  a.slots = checksum->slots;
  a.sums = checksum->sums;
  a.block_count = checksum->block_count;
  a.slot_count = pool->slot_count;
  a.heads = problem->kv_head_count;
  a.block_tokens = problem->block_tokens;
  int error = launch_clear_sums(a, stream);
  for (a.plane = 0; a.plane < 2 && error == 0; ++a.plane) {
    const kv_kernel_plane& plane = a.plane == 0 ? pool->k : pool->v;
    const std::uint32_t dim = a.plane == 0 ? problem->head_dim_qk : problem->head_dim_vo;
    const std::uint32_t dtype = a.plane == 0 ? problem->k_dtype : problem->v_dtype;
    const std::uint32_t row_bytes = dim * bytes_of_dtype(dtype);
    a.row_vectors = row_bytes / kAlignment;
    a.layer_stride = plane.layer_stride;
    const bool own_bases = plane.layer_bases != nullptr;
    a.layers = own_bases ? 1 : problem->layer_count;
    for (a.layer_begin = 0; a.layer_begin < problem->layer_count && error == 0;
         a.layer_begin += a.layers) {
      const Plane layer = plane_of(plane, a.layer_begin);
      if (!usable(layer) || row_bytes % kAlignment != 0) return KV_KERNEL_INVALID;
      a.base = layer.base;
      a.block_stride = layer.block_stride;
      a.head_stride = layer.head_stride;
      a.token_stride = layer.token_stride;
      error = launch_checksum(a, stream);
    }
  }
  return result_of(error, "checksum");
}

std::int32_t merge(const kv_kernel_problem* problem, const kv_kernel_merge* merge, void* stream) {
  const MergeArguments a{merge->output,
                         merge->lse,
                         merge->other_output,
                         merge->other_lse,
                         std::uint64_t{merge->row_count} * problem->query_head_count,
                         problem->head_dim_vo,
                         problem->output_dtype};
  return result_of(launch_merge(a, stream), "merge");
}

}  // namespace kv::cuda
