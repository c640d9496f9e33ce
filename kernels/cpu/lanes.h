// The one order of addition of these kernels: eight lanes, folded in a fixed tree. Written out, so
// that no compiler flag, batch or row count can change it; -ffp-contract=off keeps products
// unfused. Threads: none. Cost: O(count).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kv::kernels {

inline constexpr std::uint32_t kLanes = 8;

// requires: count is a multiple of kLanes.
[[nodiscard]] inline float dot(const float* a, const float* b, std::uint32_t count) {
  std::array<float, kLanes> lanes{};
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += a[i + lane] * b[i + lane];
    }
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// target += factor * source. requires: count is a multiple of kLanes.
inline void add_scaled(float* target, float factor, const float* source, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      target[i + lane] += factor * source[i + lane];
    }
  }
}

}  // namespace kv::kernels
