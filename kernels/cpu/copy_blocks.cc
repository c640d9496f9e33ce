// Copies whole or partial blocks within the pool, for forks and moves.
#include <cstring>

#include "kernels/api/page_view.h"
#include "kernels/cpu/operations.h"

namespace kv::kernels {
namespace {

// One layer and head: tokens lie at equal distances, and next to each other in the usual layout.
void copy_run(std::byte* to, const std::byte* from, std::uint32_t tokens, std::size_t token_bytes,
              std::int64_t token_stride) {
  if (token_stride == static_cast<std::int64_t>(token_bytes)) {
    std::memcpy(to, from, tokens * token_bytes);
    return;
  }
  for (std::uint32_t token = 0; token < tokens; ++token) {
    std::memcpy(to + token * token_stride, from + token * token_stride, token_bytes);
  }
}

}  // namespace

std::int32_t copy_blocks(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                         const kv_kernel_copy* copy, void* /*stream*/) {
  for (std::uint32_t i = 0; i < copy->block_count; ++i) {
    if (copy->from[i] >= pool->slot_count || copy->to[i] >= pool->slot_count ||
        (copy->token_count != nullptr && copy->token_count[i] > problem->block_tokens)) {
      return KV_KERNEL_INVALID;
    }
  }
  const PageView view(*pool);
  const std::size_t k_bytes = problem->head_dim_qk * sizeof(float);
  const std::size_t v_bytes = problem->head_dim_vo * sizeof(float);
  for (std::uint32_t i = 0; i < copy->block_count; ++i) {
    const std::uint32_t tokens =
        copy->token_count == nullptr ? problem->block_tokens : copy->token_count[i];
    for (std::uint32_t layer = 0; layer < problem->layer_count; ++layer) {
      for (std::uint32_t head = 0; head < problem->kv_head_count; ++head) {
        const PageIndex from{.slot = copy->from[i], .layer = layer, .head = head, .token = 0};
        const PageIndex to{.slot = copy->to[i], .layer = layer, .head = head, .token = 0};
        copy_run(view.k(to), view.k(from), tokens, k_bytes, pool->k.token_stride);
        copy_run(view.v(to), view.v(from), tokens, v_bytes, pool->v.token_stride);
      }
    }
  }
  return KV_KERNEL_OK;
}

}  // namespace kv::kernels
