// PageView: where the keys and values of one layer group lie, as a C++ value over kv_kernel_pool.
// Non-owning: the memory belongs to whoever mapped the pool. Passed by value; the addresses are
// computed, nothing is checked but by the caller. Threads: as the memory. Cost: four
// multiplications.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api/kv_kernel.h"

namespace kv::kernels {

// A place in the pool. Units: slots, layers, heads, tokens of a block.
struct PageIndex {
  std::uint32_t slot = 0;
  std::uint32_t layer = 0;
  std::uint32_t head = 0;
  std::uint32_t token = 0;
};

class PageView {
 public:
  explicit PageView(const kv_kernel_pool& pool) : k_(pool.k), v_(pool.v) {}
  [[nodiscard]] std::byte* k(const PageIndex& at) const { return address(k_, at); }
  [[nodiscard]] std::byte* v(const PageIndex& at) const { return address(v_, at); }

 private:
  [[nodiscard]] static std::byte* address(const kv_kernel_plane& plane, const PageIndex& at) {
    auto* layer = plane.layer_bases == nullptr
                      ? static_cast<std::byte*>(plane.base) + at.layer * plane.layer_stride
                      : static_cast<std::byte*>(plane.layer_bases[at.layer]);
    return layer + at.slot * plane.block_stride + at.head * plane.head_stride +
           at.token * plane.token_stride;
  }

  kv_kernel_plane k_;
  kv_kernel_plane v_;
};

}  // namespace kv::kernels
