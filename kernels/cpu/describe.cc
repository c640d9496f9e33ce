// What the CPU plug-in can do, and the checks and plans made before anything runs.
#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "kernels/cpu/operations.h"

namespace kv::kernels {
namespace {

constexpr std::uint32_t kOperations =
    KV_KERNEL_OP_DECODE | KV_KERNEL_OP_EXTEND | KV_KERNEL_OP_APPEND | KV_KERNEL_OP_COPY;
constexpr std::uint64_t kFeatures = KV_KERNEL_FEATURE_LSE;
// "Any up to head_dim_max, in steps of head_dim_step."
constexpr std::array<kv_kernel_head_dims, 1> kHeadDims = {{{0, 0}}};
constexpr std::array<kv_kernel_dtypes, 1> kDtypes = {{{KV_KERNEL_DTYPE_F32, KV_KERNEL_DTYPE_F32}}};

// Collects reasons in the caller's buffer, cut where it ends.
class Reasons {
 public:
  Reasons(char* text, std::size_t bytes) : text_(text), bytes_(text == nullptr ? 0 : bytes) {
    if (bytes_ > 0) text_[0] = '\0';
  }
  void require(bool holds, std::string_view reason) {
    if (holds) return;
    if (failed_) add("; ");
    add(reason);
    failed_ = true;
  }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  void add(std::string_view part) {
    if (used_ + 1 >= bytes_) return;
    const std::size_t count = std::min(part.size(), bytes_ - used_ - 1);
    std::copy_n(part.begin(), count, text_ + used_);
    used_ += count;
    text_[used_] = '\0';
  }
  char* text_;
  std::size_t bytes_;
  std::size_t used_ = 0;
  bool failed_ = false;
};

bool head_dim_fits(std::uint32_t dim) {
  return dim > 0 && dim <= kHeadDimMax && dim % kHeadDimStep == 0;
}

}  // namespace

std::int32_t score(const kv_kernel_device* device) {
  return device->kind == KV_KERNEL_DEVICE_CPU ? 10 : 0;
}

std::int32_t caps(const kv_kernel_device* device, kv_kernel_caps* out) {
  if (device->kind != KV_KERNEL_DEVICE_CPU) return KV_KERNEL_UNSUPPORTED;
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
                        .alignment_bytes = alignof(float)};
  return KV_KERNEL_OK;
}

std::int32_t supports(const kv_kernel_problem* problem, char* reason, std::size_t reason_bytes) {
  Reasons reasons(reason, reason_bytes);
  const kv_kernel_problem& p = *problem;
  reasons.require(p.struct_size >= sizeof(kv_kernel_problem), "the problem is from an older host");
  if (reasons.failed()) return KV_KERNEL_INVALID;
  reasons.require(std::has_single_bit(p.operation) && (p.operation & kOperations) != 0,
                  "operation: only decode, extend, append and copy");
  reasons.require((p.features & ~kFeatures) == 0, "features: only the log-sum-exp");
  reasons.require(p.k_dtype == KV_KERNEL_DTYPE_F32 && p.v_dtype == KV_KERNEL_DTYPE_F32,
                  "k_dtype and v_dtype: only f32");
  reasons.require(p.query_dtype == KV_KERNEL_DTYPE_F32 && p.output_dtype == KV_KERNEL_DTYPE_F32,
                  "query_dtype and output_dtype: only f32");
  reasons.require(head_dim_fits(p.head_dim_qk) && head_dim_fits(p.head_dim_vo),
                  "head_dim: only multiples of 8 up to 256");
  reasons.require(std::has_single_bit(p.block_tokens) && p.block_tokens <= kBlockTokensMax,
                  "block_tokens: only powers of two up to 1024");
  reasons.require(p.layer_count > 0, "layer_count: zero");
  reasons.require(p.kv_head_count > 0 && p.query_head_count > 0 &&
                      p.query_head_count % p.kv_head_count == 0 &&
                      p.query_head_count / p.kv_head_count <= kGroupRatioMax,
                  "query_head_count: only 1 to 64 times kv_head_count");
  return reasons.failed() ? KV_KERNEL_UNSUPPORTED : KV_KERNEL_OK;
}

std::int32_t workspace(const kv_kernel_problem* /*problem*/, const kv_kernel_bounds* /*bounds*/,
                       kv_kernel_workspace_bytes* bytes) {
  bytes->device = 0;
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
  for (std::uint32_t s = 0; s < batch->sequence_count; ++s) {
    const std::uint32_t begin = batch->row_start[s];
    const std::uint32_t end = batch->row_start[s + 1];
    if (begin > end || end - begin > batch->kv_length[s]) return KV_KERNEL_INVALID;
    const std::uint64_t capacity = std::uint64_t{batch->table_stride} * problem->block_tokens;
    if (batch->kv_length[s] > capacity) return KV_KERNEL_INVALID;
  }
  plan->word_count = 2;
  plan->words[0] = batch->sequence_count;
  plan->words[1] = batch->row_count;
  return KV_KERNEL_OK;
}

}  // namespace kv::kernels
