// The operations of the CPU plug-in, fp32, and the plain double-precision reference of attention.
// Each is behind the C ABI of the same name; see there for arguments and units.
// Owner: the caller owns all memory; nothing is allocated. Threads: any number, on different
// outputs; an append or a copy must not run beside a reader of the same slots. Cost: named at each.
//
// Determinism: keys are cut into splits of kSplitTokens at absolute positions, whatever the batch.
// Within a split the order is fixed; splits are merged in ascending order. A query row sees exactly
// the same operations in an extend of any size as in a decode, in any slots.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api/kv_kernel.h"

namespace kv::kernels {

inline constexpr std::uint32_t kSplitTokens = 256;
inline constexpr std::uint32_t kHeadDimMax = 256;
inline constexpr std::uint32_t kHeadDimStep = 8;
inline constexpr std::uint32_t kGroupRatioMax = 64;
inline constexpr std::uint32_t kBlockTokensMax = 1024;

// --- describe.cc: O(1), but for prepare: O(sequences)
std::int32_t score(const kv_kernel_device* device);
std::int32_t caps(const kv_kernel_device* device, kv_kernel_caps* out);
std::int32_t supports(const kv_kernel_problem* problem, char* reason, std::size_t reason_bytes);
std::int32_t workspace(const kv_kernel_problem* problem, const kv_kernel_bounds* bounds,
                       kv_kernel_workspace_bytes* bytes);
std::int32_t prepare(const kv_kernel_problem* problem, const kv_kernel_batch* batch,
                     kv_kernel_plan* plan);

// --- attention.cc: O(rows x query heads x kv_length x head dimension)
// The host may be null: then rows are computed one after another.
std::int32_t attention(const kv_kernel_problem& problem, const kv_kernel_plan& plan,
                       const kv_kernel_pool& pool, const kv_kernel_batch& batch,
                       const kv_kernel_tensors& tensors, const kv_kernel_host* host);
// The oracle: textbook softmax in double over the same pool, in no split. output and lse are
// [row][query_head][head_dim_vo] and [row][query_head].
void attention_reference(const kv_kernel_problem& problem, const kv_kernel_pool& pool,
                         const kv_kernel_batch& batch, std::uint32_t layer, const float* query,
                         double* output, double* lse);

// --- append_kv.cc: O(rows x heads x head dimension)
std::int32_t append_kv(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                       const kv_kernel_append* append, void* stream);

// --- copy_blocks.cc: O(bytes copied)
std::int32_t copy_blocks(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                         const kv_kernel_copy* copy, void* stream);

}  // namespace kv::kernels
