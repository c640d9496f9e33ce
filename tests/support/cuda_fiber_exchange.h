// What the lanes of a warp exchange at a collective. Internal to the fiber header.
// Threads: none. Cost: O(lanes); an mma 2048 products.
#pragma once

#include <array>
#include <cstdint>

#include "tests/support/cuda_fiber.h"

namespace kv::fiber {

inline constexpr std::uint32_t kWarp = 32;
inline constexpr std::uint32_t kPoison = 0xFFFBADBAU;  // a NaN in every floating-point type

// Gives each lane its result; null: the lane takes no part. A shuffle from such a lane gives
// poison.
void exchange(const std::array<Operand*, kWarp>& operands);

}  // namespace kv::fiber
