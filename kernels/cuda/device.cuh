// The words that a kernel is written in. Compiled by nvcc they are CUDA's own; compiled as host C++
// (KV_DEVICE_HEADER names the header that emulates them, in tests) the same kernels run on a CPU.
// Nothing else in this folder knows which of the two it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/arguments.h"

namespace kv::cuda {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

}  // namespace kv::cuda

#ifdef KV_DEVICE_HEADER

#include KV_DEVICE_HEADER

// One array of the block's shared memory.
#define KV_SHARED(type, name, count)                              \
  static const char name##_site = 0;                              \
  type* const name = static_cast<type*>(kv::fiber::shared_memory( \
      &name##_site, sizeof(type) * (count), alignof(type) < 16 ? 16 : alignof(type), #name))
#define KV_UNROLL(count)

namespace kv::cuda {

inline float exp2_fast(float x) { return ::exp2f(x); }
inline float half_to_float(std::uint16_t bits) { return fiber::half_to_float(bits); }
inline std::uint16_t float_to_half(float value) { return fiber::float_to_half(value); }
inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint4 load_once(const uint4* address) { return *address; }
inline void store_once(uint4* address, const uint4& value) { *address = value; }

template <class Argument>
int launch(void (*kernel)(Argument), dim3 grid, unsigned threads, Stream /*stream*/,
           const Argument& argument) {
  return fiber::launch(kernel, grid, dim3{threads, 1, 1}, argument);
}

}  // namespace kv::cuda

#else

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define KV_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define KV_PRAGMA(text) _Pragma(#text)
#define KV_UNROLL(count) KV_PRAGMA(unroll count)

namespace kv::cuda {

__device__ __forceinline__ float exp2_fast(float x) { return exp2f(x); }
__device__ __forceinline__ float half_to_float(std::uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ __forceinline__ std::uint16_t float_to_half(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ __forceinline__ std::uint32_t bits_of(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float float_of(std::uint32_t bits) { return __uint_as_float(bits); }
// Data that is read or written once: it should not push out what others will read again.
__device__ __forceinline__ uint4 load_once(const uint4* address) { return __ldcs(address); }
__device__ __forceinline__ void store_once(uint4* address, const uint4& value) {
  __stcs(address, value);
}

// 0, or CUDA's error. Asynchronous.
template <class Argument>
int launch(void (*kernel)(Argument), dim3 grid, unsigned threads, Stream stream,
           Argument argument) {
  void* arguments[] = {&argument};
  return static_cast<int>(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid,
                                           dim3(threads, 1, 1), arguments, 0,
                                           static_cast<cudaStream_t>(stream)));
}

}  // namespace kv::cuda

#endif
