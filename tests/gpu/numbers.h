// Floating-point formats and random values for the kernel cases, written from their definitions and
// apart from the kernels' own conversions. Threads: none. Cost: O(1).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "allocator/base/prng.h"
#include "kernels/api/kv_kernel.h"

namespace kv::gpu {

struct Format {
  int exponent_bits, fraction_bits;
};

inline Format format_of(std::uint32_t dtype) {
  if (dtype == KV_KERNEL_DTYPE_F16) return {5, 10};
  return dtype == KV_KERNEL_DTYPE_BF16 ? Format{8, 7} : Format{8, 23};
}

inline std::size_t bytes_of(std::uint32_t dtype) { return dtype == KV_KERNEL_DTYPE_F32 ? 4 : 2; }

// The value of finite bits.
inline double decode(std::uint32_t bits, std::uint32_t dtype) {
  const Format format = format_of(dtype);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto fields = 1U << static_cast<unsigned>(format.exponent_bits);
  const std::uint32_t exponent = bits >> static_cast<unsigned>(format.fraction_bits) & (fields - 1);
  const std::uint32_t fraction = bits & ((1U << static_cast<unsigned>(format.fraction_bits)) - 1);
  const bool negative =
      (bits >> static_cast<unsigned>(format.exponent_bits + format.fraction_bits) & 1U) != 0;
  const double magnitude =
      exponent == fields - 1 ? (fraction == 0 ? HUGE_VAL : std::nan(""))
      : exponent == 0        ? std::ldexp(fraction, 1 - bias - format.fraction_bits)
                             : std::ldexp(std::ldexp(1.0, format.fraction_bits) + fraction,
                                          static_cast<int>(exponent) - bias - format.fraction_bits);
  return negative ? -magnitude : magnitude;
}

// The nearest bits, ties to even; by search, not by arithmetic on bits. requires: in range.
inline std::uint32_t encode(double value, std::uint32_t dtype) {
  const Format format = format_of(dtype);
  std::uint32_t low = 0;  // the largest magnitude that is not above
  std::uint32_t high = ((1U << static_cast<unsigned>(format.exponent_bits)) - 1)
                       << static_cast<unsigned>(format.fraction_bits);
  const double magnitude = std::fabs(value);
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (decode(middle, dtype) <= magnitude) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const double below = magnitude - decode(low, dtype);
  const double above = decode(high, dtype) - magnitude;
  std::uint32_t bits = below < above || (below == above && low % 2 == 0) ? low : high;
  const auto sign = static_cast<unsigned>(format.exponent_bits + format.fraction_bits);
  if (std::signbit(value)) bits |= 1U << sign;
  return bits;
}

inline float uniform(Prng& prng) {
  return static_cast<float>(prng.below(2'000'001)) / 1'000'000.0F - 1.0F;
}

// Random bits of a value in [-1, 1): any float, or one of 256 values that 16 bits represent.
inline std::uint32_t random_bits(Prng& prng, std::uint32_t dtype) {
  if (dtype == KV_KERNEL_DTYPE_F32) {
    const float value = uniform(prng);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }
  const auto table_of = [](std::uint32_t of) {
    std::vector<std::uint32_t> table(256);
    for (int i = 0; i < 256; ++i)
      table[static_cast<std::size_t>(i)] = encode((i - 128) / 128.0, of);
    return table;
  };
  static const std::vector<std::uint32_t> f16 = table_of(KV_KERNEL_DTYPE_F16);
  static const std::vector<std::uint32_t> bf16 = table_of(KV_KERNEL_DTYPE_BF16);
  return (dtype == KV_KERNEL_DTYPE_F16 ? f16 : bf16)[prng.below(256)];
}

inline void store(std::byte* to, std::uint32_t bits, std::uint32_t dtype) {
  std::memcpy(to, &bits, bytes_of(dtype));  // little endian
}

inline std::uint32_t load(const std::byte* from, std::uint32_t dtype) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, from, bytes_of(dtype));
  return bits;
}

}  // namespace kv::gpu
