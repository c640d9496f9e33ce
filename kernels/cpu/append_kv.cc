// Writes new keys and values into their places in the pool: one row a token, all heads.
#include <cstring>

#include "kernels/api/page_view.h"
#include "kernels/cpu/operations.h"

namespace kv::kernels {

std::int32_t append_kv(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                       const kv_kernel_append* append, void* /*stream*/) {
  if (append->layer >= problem->layer_count) return KV_KERNEL_INVALID;
  const std::int64_t position_end =
      static_cast<std::int64_t>(pool->slot_count) * problem->block_tokens;
  for (std::uint32_t row = 0; row < append->row_count; ++row) {
    if (append->row_position[row] >= position_end) return KV_KERNEL_INVALID;
  }
  const PageView view(*pool);
  const std::size_t k_bytes = problem->head_dim_qk * sizeof(float);
  const std::size_t v_bytes = problem->head_dim_vo * sizeof(float);
  const auto* k = static_cast<const std::byte*>(append->k);
  const auto* v = static_cast<const std::byte*>(append->v);
  for (std::uint32_t row = 0; row < append->row_count; ++row) {
    const std::int64_t position = append->row_position[row];
    if (position < 0) continue;
    PageIndex at{.slot = static_cast<std::uint32_t>(position / problem->block_tokens),
                 .layer = append->layer,
                 .head = 0,
                 .token = static_cast<std::uint32_t>(position % problem->block_tokens)};
    for (; at.head < problem->kv_head_count; ++at.head) {
      const std::size_t index = static_cast<std::size_t>(row) * problem->kv_head_count + at.head;
      std::memcpy(view.k(at), k + index * k_bytes, k_bytes);
      std::memcpy(view.v(at), v + index * v_bytes, v_bytes);
    }
  }
  return KV_KERNEL_OK;
}

}  // namespace kv::kernels
