// Products of 128 bits: times and bytes of a long run do not fit 64 when multiplied. Threads: none.
#pragma once

#include <cstdint>

namespace kv::cachesim {

__extension__ using Wide = unsigned __int128;

inline constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

// value * factor / divisor, rounded down. requires: divisor > 0, and the result fits.
[[nodiscard]] constexpr std::uint64_t scaled(std::uint64_t value, std::uint64_t factor,
                                             std::uint64_t divisor) {
  return static_cast<std::uint64_t>(static_cast<Wide>(value) * factor / divisor);
}

}  // namespace kv::cachesim
