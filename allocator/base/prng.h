// A seeded generator with equal output on every machine and compiler.
// Source: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#pragma once

#include <cstdint>

#include "allocator/base/check.h"

namespace kv {

class Prng {
 public:
  explicit constexpr Prng(std::uint64_t seed) : state_(seed) {}
  [[nodiscard]] constexpr std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }
  // In [0, bound). requires: bound > 0. The bias is below bound / 2^64.
  [[nodiscard]] constexpr std::uint64_t below(std::uint64_t bound) {
    KV_CHECK(bound > 0);
    return next() % bound;
  }
  // True in `numerator` of `denominator` cases.
  [[nodiscard]] constexpr bool chance(std::uint64_t numerator, std::uint64_t denominator) {
    return below(denominator) < numerator;
  }

 private:
  std::uint64_t state_;
};

}  // namespace kv
