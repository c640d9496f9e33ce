// What the CUDA plug-in can do, and the checks and plans made before anything runs.
#include <array>
#include <bit>
#include <cstdio>

#include "kernels/cuda/arguments.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/plan.h"

namespace kv::cuda {
namespace {

constexpr std::uint32_t kOperations =
    KV_KERNEL_OP_DECODE | KV_KERNEL_OP_EXTEND | KV_KERNEL_OP_APPEND | KV_KERNEL_OP_COPY |
    KV_KERNEL_OP_CHECKSUM | KV_KERNEL_OP_MERGE | KV_KERNEL_OP_TRANSCODE;
constexpr std::uint64_t kFeatures =
    KV_KERNEL_FEATURE_LSE | KV_KERNEL_FEATURE_WINDOW | KV_KERNEL_FEATURE_SINK_TOKENS;
// "Any up to head_dim_max, in steps of head_dim_step", keys and values alike.
constexpr std::array<kv_kernel_head_dims, 1> kHeadDims = {{{0, 0}}};
constexpr std::array<kv_kernel_dtypes, 3> kDtypes = {
    {{KV_KERNEL_DTYPE_F32, KV_KERNEL_DTYPE_F32},
     {KV_KERNEL_DTYPE_F16, KV_KERNEL_DTYPE_F16},
     {KV_KERNEL_DTYPE_BF16, KV_KERNEL_DTYPE_BF16}}};

bool is_float(std::uint32_t dtype) {
  return dtype == KV_KERNEL_DTYPE_F32 || dtype == KV_KERNEL_DTYPE_F16 ||
         dtype == KV_KERNEL_DTYPE_BF16;
}

// Collects reasons in the caller's buffer, cut where it ends.
class Reasons {
 public:
  Reasons(char* text, std::size_t bytes) : text_(text), bytes_(text == nullptr ? 0 : bytes) {
    if (bytes_ > 0) text_[0] = '\0';
  }
  void require(bool holds, const char* reason) {
    if (holds) return;
    if (used_ < bytes_) {
      const int length =
          std::snprintf(text_ + used_, bytes_ - used_, "%s%s", failed_ ? "; " : "", reason);
      used_ += static_cast<std::size_t>(length);  // beyond the end: nothing more is added
    }
    failed_ = true;
  }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  char* text_;
  std::size_t bytes_;
  std::size_t used_ = 0;
  bool failed_ = false;
};

bool group_fits(const kv_kernel_problem& p) {
  return p.kv_head_count > 0 && p.query_head_count > 0 &&
         p.query_head_count % p.kv_head_count == 0 &&
         p.query_head_count / p.kv_head_count <= kGroupRatioMax;
}

}  // namespace

std::int32_t caps(const kv_kernel_device* device, kv_kernel_caps* out) {
  if (device->kind != KV_KERNEL_DEVICE_CUDA) return KV_KERNEL_UNSUPPORTED;
  // An older host's struct is shorter: it would be written beyond its end.
  if (out->struct_size < sizeof(kv_kernel_caps)) return KV_KERNEL_INVALID;
  *out = kv_kernel_caps{.struct_size = sizeof(kv_kernel_caps),
                        .operations = kOperations,
                        .features = kFeatures,
                        .head_dims = kHeadDims.data(),
                        .kv_dtypes = kDtypes.data(),
                        .head_dim_count = kHeadDims.size(),
                        .kv_dtype_count = kDtypes.size(),
                        .head_dim_max = kHeadDimMax,
                        .head_dim_step = kHeadDimStep,
                        .group_ratio_max = kGroupRatioMax,
                        .block_tokens_min = 1,
                        .block_tokens_max = kBlockTokensMax,
                        .query_dtype = KV_KERNEL_DTYPE_F32,
                        .output_dtype = KV_KERNEL_DTYPE_F32,
                        .lse_base = KV_KERNEL_LSE_NATURAL,
                        .determinism = KV_KERNEL_DETERMINISM_CHUNK_INVARIANT,
                        .split_tokens = kSplitTokens,
                        .alignment_bytes = kAlignment};
  return KV_KERNEL_OK;
}

std::int32_t supports(const kv_kernel_problem* problem, char* reason, std::size_t reason_bytes) {
  Reasons reasons(reason, reason_bytes);
  const kv_kernel_problem& p = *problem;
  reasons.require(p.struct_size >= sizeof(kv_kernel_problem), "the problem is from an older host");
  if (reasons.failed()) return KV_KERNEL_INVALID;
  reasons.require(std::has_single_bit(p.operation) && (p.operation & kOperations) != 0,
                  "operation: only decode, extend, append, copy, checksum, merge and transcode");
  reasons.require((p.features & ~kFeatures) == 0,
                  "features: only the log-sum-exp, windows and sink tokens");
  reasons.require(is_float(p.k_dtype) && p.k_dtype == p.v_dtype,
                  "k_dtype and v_dtype: only f32, f16 or bf16, both the same");
  reasons.require(is_float(p.query_dtype) && is_float(p.output_dtype),
                  "query_dtype and output_dtype: only f32, f16 and bf16");
  reasons.require(p.operation != KV_KERNEL_OP_APPEND || p.query_dtype == p.k_dtype ||
                      p.query_dtype == KV_KERNEL_DTYPE_F32,
                  "query_dtype: appended rows are f32 or of the pool's dtype");
  reasons.require(p.head_dim_qk == p.head_dim_vo && p.head_dim_qk > 0 &&
                      p.head_dim_qk <= kHeadDimMax && p.head_dim_qk % kHeadDimStep == 0,
                  "head_dim: only multiples of 8 up to 256, keys and values alike");
  reasons.require(std::has_single_bit(p.block_tokens) && p.block_tokens <= kBlockTokensMax,
                  "block_tokens: only powers of two up to 1024");
  reasons.require(p.layer_count > 0, "layer_count: zero");
  reasons.require(group_fits(p), "query_head_count: only 1 to 64 times kv_head_count");
  reasons.require(p.softcap == 0.0F, "softcap: not offered");
  return reasons.failed() ? KV_KERNEL_UNSUPPORTED : KV_KERNEL_OK;
}

std::int32_t workspace(const kv_kernel_problem* problem, const kv_kernel_bounds* bounds,
                       kv_kernel_workspace_bytes* bytes) {
  const std::uint32_t ratio = problem->query_head_count / problem->kv_head_count;
  const std::uint64_t splits = (bounds->kv_length + kSplitTokens - 1) / kSplitTokens;
  const std::uint64_t tiles = std::uint64_t{bounds->row_count} + bounds->sequence_count;
  // Tiles of four queries take the most.
  const Tiling tiling = tiling_of(problem->head_dim_qk, ratio, 0);
  const std::uint64_t wanted = tiles * partial_bytes(*problem, tiling, splits);
  bytes->device = wanted < kPartialBytesMax ? wanted : kPartialBytesMax;
  bytes->pinned = 0;
  bytes->host = 0;
  return KV_KERNEL_OK;
}

std::int32_t prepare(const kv_kernel_problem* problem, const kv_kernel_batch* batch,
                     kv_kernel_plan* plan) {
  if (plan->struct_size < sizeof(kv_kernel_plan)) return KV_KERNEL_INVALID;
  if (batch->row_start[0] != 0 || batch->row_start[batch->sequence_count] != batch->row_count) {
    return KV_KERNEL_INVALID;
  }
  std::uint32_t longest = 0;
  std::uint32_t uniform = batch->sequence_count == 0 ? 0 : batch->row_start[1];
  for (std::uint32_t s = 0; s < batch->sequence_count; ++s) {
    const std::uint32_t begin = batch->row_start[s];
    const std::uint32_t end = batch->row_start[s + 1];
    if (begin > end || end - begin > batch->kv_length[s]) return KV_KERNEL_INVALID;
    const std::uint64_t capacity = std::uint64_t{batch->table_stride} * problem->block_tokens;
    if (batch->kv_length[s] > capacity) return KV_KERNEL_INVALID;
    if (end - begin != uniform) uniform = 0;
    if (longest < batch->kv_length[s]) longest = batch->kv_length[s];
  }
  plan->word_count = kPlanWords;
  plan->words[kPlanSequences] = batch->sequence_count;
  plan->words[kPlanRows] = batch->row_count;
  plan->words[kPlanUniformRows] = uniform;
  plan->words[kPlanSplits] = (longest + kSplitTokens - 1) / kSplitTokens;
  return KV_KERNEL_OK;
}

}  // namespace kv::cuda
