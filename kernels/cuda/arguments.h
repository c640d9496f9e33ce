// What the kernels take, one plain struct by value each, and their launchers. A launcher returns 0
// or CUDA's error, and does not wait. Owner: the caller owns all memory, on the device, until the
// stream has passed. Threads: any number, on different outputs. Cost: the bytes named, at the
// memory's speed; attention also O(rows x query heads x kv_length x head dimension).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api/kv_kernel.h"

namespace kv::cuda {

// A cudaStream_t, without its header.
using Stream = void*;

inline constexpr std::uint32_t kSplitTokens = 256;
inline constexpr std::uint32_t kHeadDimMax = 256;
inline constexpr std::uint32_t kHeadDimStep = 8;
inline constexpr std::uint32_t kGroupRatioMax = 64;
inline constexpr std::uint32_t kBlockTokensMax = 1024;
inline constexpr std::uint32_t kAlignment = 16;
inline constexpr std::uint32_t kGridRows = 65535;  // what y and z of a grid may be
// Partial results of one launch at most: more rows are taken in several launches.
inline constexpr std::uint64_t kPartialBytesMax = std::uint64_t{256} << 20U;

constexpr std::uint32_t bytes_of_dtype(std::uint32_t dtype) {
  return dtype == KV_KERNEL_DTYPE_F32                                    ? 4
         : dtype == KV_KERNEL_DTYPE_F16 || dtype == KV_KERNEL_DTYPE_BF16 ? 2
                                                                         : 1;
}

// Keys or values of one layer. Strides are in bytes.
struct Plane {
  char* base;
  std::int64_t block_stride, head_stride, token_stride;
};

struct AttentionArguments {
  Plane k, v;
  const void* query;
  void* output;
  float* lse;       // null: not wanted
  float* partials;  // null: a block takes all splits of its tile, one after another
  const std::uint32_t* row_start;
  const std::uint32_t* kv_length;
  const std::uint32_t* table;
  std::uint32_t sequence_count, row_count, table_stride, slot_count;
  std::uint32_t kv_heads, ratio;
  std::uint32_t head_dim, block_shift;
  std::uint32_t window, sinks;  // window 0: everything
  std::uint32_t query_dtype, output_dtype;
  float scale;                 // of the scores, times log2(e)
  std::uint32_t uniform_rows;  // rows of every sequence; 0: they differ
  std::uint32_t heads_per_tile, rows_per_tile, head_tiles;
  std::uint32_t tile_begin, tile_count;  // of this launch
  std::uint32_t split_count;             // the largest of any row
};

// --- attention_{f32,f16,bf16}.cu: `queries` in a tile, 1, 2 or 4
int launch_attention_f32(const AttentionArguments& arguments, std::uint32_t queries, Stream stream);
int launch_attention_f16(const AttentionArguments& arguments, std::uint32_t queries, Stream stream);
int launch_attention_bf16(const AttentionArguments& arguments, std::uint32_t queries,
                          Stream stream);

// --- join_splits.cu: the partial results of attention, in ascending order of splits
int launch_join(const AttentionArguments& arguments, unsigned queries, unsigned dim, Stream stream);

// --- append_kv.cu: rows of one plane and layer
struct AppendRows {
  const void* rows;  // [row][head][head_dim] of row_dtype
  const std::int64_t* row_position;
  std::uint32_t row_count, heads, head_dim, block_shift, slot_count;
  std::uint32_t row_dtype, pool_dtype;
};
int launch_append(const Plane& plane, const AppendRows& rows, Stream stream);

// --- copy_blocks.cu: one region of each block
inline constexpr unsigned kCopyDims = 3;
struct CopyDim {
  std::uint32_t count;
  std::int64_t from_stride, to_stride;
  bool tokens;  // limited by token_count
};
struct CopyArguments {
  const char* from;
  char* to;
  std::int64_t from_block_stride, to_block_stride;
  const std::uint32_t* from_slots;
  const std::uint32_t* to_slots;
  const std::uint32_t* token_count;  // null: whole blocks
  std::uint32_t from_slot_count, to_slot_count, block_tokens;
  std::uint32_t vectors, run_vectors;  // 16 bytes each: of a region, of a run in it
  std::uint32_t token_vectors;         // from token to token in a run; beyond it: not in the run
  CopyDim dims[kCopyDims];             // innermost first; count 1: unused
};
int launch_copy(const CopyArguments& arguments, std::uint32_t pairs, Stream stream);

// --- checksum.cu: one plane of `layers` layers from layer_begin on, added to sums
struct ChecksumArguments {
  const char* base;
  std::int64_t block_stride, layer_stride, head_stride, token_stride;
  const std::uint32_t* slots;
  std::uint64_t* sums;
  std::uint32_t block_count, slot_count;
  std::uint32_t layer_begin, layers, heads, block_tokens, row_vectors;
  std::uint32_t plane;  // 0: keys, 1: values
};
int launch_clear_sums(const ChecksumArguments& arguments, Stream stream);
int launch_checksum(const ChecksumArguments& arguments, Stream stream);

// --- merge.cu
struct MergeArguments {
  void* output;
  float* lse;
  const void* other_output;
  const float* other_lse;
  std::uint64_t row_heads;
  std::uint32_t head_dim, dtype;
};
int launch_merge(const MergeArguments& arguments, Stream stream);

}  // namespace kv::cuda
