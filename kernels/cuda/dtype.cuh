// The floating-point types of queries, keys and values: 16 bytes at a time to floats and back.
// Threads: none. Cost: a shift or a conversion for each channel.
#pragma once

#include "kernels/api/kv_kernel.h"
#include "kernels/cuda/device.cuh"

namespace kv::cuda {

__device__ inline std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return 0x7FFF;  // NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

// Each names how many channels 16 bytes hold, and takes them apart.
struct F32 {
  static constexpr unsigned kChannels = 4;
  __device__ static void decode(const uint4& from, float* to) {
    to[0] = float_of(from.x);
    to[1] = float_of(from.y);
    to[2] = float_of(from.z);
    to[3] = float_of(from.w);
  }
};

struct F16 {
  static constexpr unsigned kChannels = 8;
  __device__ static float low(std::uint32_t word) {
    return half_to_float(static_cast<std::uint16_t>(word));
  }
  __device__ static float high(std::uint32_t word) {
    return half_to_float(static_cast<std::uint16_t>(word >> 16U));
  }
  __device__ static std::uint16_t encode(float value) { return float_to_half(value); }
  __device__ static void decode(const uint4& from, float* to) {
    to[0] = low(from.x);
    to[1] = high(from.x);
    to[2] = low(from.y);
    to[3] = high(from.y);
    to[4] = low(from.z);
    to[5] = high(from.z);
    to[6] = low(from.w);
    to[7] = high(from.w);
  }
};

struct BF16 {
  static constexpr unsigned kChannels = 8;
  __device__ static float low(std::uint32_t word) { return float_of(word << 16U); }
  __device__ static float high(std::uint32_t word) { return float_of(word & 0xFFFF0000U); }
  __device__ static std::uint16_t encode(float value) { return float_to_bf16(value); }
  __device__ static void decode(const uint4& from, float* to) {
    to[0] = low(from.x);
    to[1] = high(from.x);
    to[2] = low(from.y);
    to[3] = high(from.y);
    to[4] = low(from.z);
    to[5] = high(from.z);
    to[6] = low(from.w);
    to[7] = high(from.w);
  }
};

// One element whose type is known at run time only.
__device__ inline float load_element(const void* base, std::size_t index, unsigned dtype) {
  if (dtype == KV_KERNEL_DTYPE_F32) return static_cast<const float*>(base)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(base)[index];
  return dtype == KV_KERNEL_DTYPE_F16 ? F16::low(bits) : BF16::low(bits);
}

__device__ inline void store_element(void* base, std::size_t index, unsigned dtype, float value) {
  if (dtype == KV_KERNEL_DTYPE_F32) {
    static_cast<float*>(base)[index] = value;
  } else {
    static_cast<std::uint16_t*>(base)[index] =
        dtype == KV_KERNEL_DTYPE_F16 ? F16::encode(value) : BF16::encode(value);
  }
}

}  // namespace kv::cuda
