// What computing tokens of a prompt again costs: the floating-point operations of a prefill of
// Llama 3 8B, the model of the reference numbers. Linear layers cost the same for every token, and
// attention grows with the tokens in front. Owner: none. Threads: none. Cost: O(1).
#pragma once

#include <cstdint>

#include "tiering/policies/eviction_policy.h"

namespace kv::cachesim {

inline constexpr std::uint64_t kLinearFlops = 2 * 8'030'000'000ULL;  // a token: 2 x parameters
inline constexpr std::uint64_t kAttentionFlops = 4ULL * 32 * 4096;   // a token and one in front

// Of the first `tokens` tokens of a prompt.
[[nodiscard]] constexpr double prefill_flops(std::uint64_t tokens) {
  const auto count = static_cast<double>(tokens);
  return count * static_cast<double>(kLinearFlops) +
         static_cast<double>(kAttentionFlops) * count * (count - 1) / 2;
}

// The same of one block of `block_tokens` tokens, in 256ths of operations a token, and exact when
// the tokens of a block are taken to stand in its middle.
[[nodiscard]] constexpr RecomputeCost recompute_cost(std::uint32_t block_tokens) {
  constexpr std::uint64_t kUnit = 256;
  static_assert(kLinearFlops % kUnit == 0 && kAttentionFlops % (2 * kUnit) == 0);
  return {.block = static_cast<std::uint32_t>(kLinearFlops / kUnit +
                                              kAttentionFlops / (2 * kUnit) * block_tokens),
          .depth = static_cast<std::uint32_t>(kAttentionFlops / kUnit * block_tokens)};
}

}  // namespace kv::cachesim
