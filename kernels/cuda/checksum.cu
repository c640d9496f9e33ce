// A 64-bit sum of each block: every eight bytes are mixed with their logical place (plane, layer,
// head, token, word) and added modulo 2^64. So the sum does not depend on slots, strides or the
// order of addition, and any part may be summed alone.
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/device.cuh"

namespace kv::cuda {
namespace {

constexpr unsigned kSumThreads = 256;
constexpr unsigned kSumUnroll = 4;
constexpr unsigned kSumVectors = kSumThreads * kSumUnroll;

__device__ std::uint64_t mix(std::uint64_t word, std::uint64_t place) {
  std::uint64_t x = word + (place + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ x >> 32U) * 0xD6E8FEB86659FD93ULL;
  return x ^ x >> 32U;
}

__global__ void clear_sums(ChecksumArguments a) {
  const std::uint32_t index = blockIdx.x * kSumThreads + threadIdx.x;
  if (index < a.block_count) a.sums[index] = 0;
}

// Grid: x = part of a block, y = block. One plane of all layers.
__global__ void __launch_bounds__(kSumThreads) sum_blocks(ChecksumArguments a) {
  KV_SHARED(std::uint64_t, warps, kSumThreads / kWarpLanes);
  const std::uint32_t slot = a.slots[blockIdx.y];
  std::uint64_t sum = 0;
  if (slot < a.slot_count) {
    uint4 value[kSumUnroll];
    KV_UNROLL(kSumUnroll)
    for (unsigned u = 0; u < kSumUnroll; ++u) {
      const std::uint32_t index = blockIdx.x * kSumVectors + u * kSumThreads + threadIdx.x;
      const std::uint32_t row = index / a.row_vectors;
      const std::uint32_t token = row % a.block_tokens;
      const std::uint32_t head = row / a.block_tokens % a.heads;
      const std::uint32_t layer = row / a.block_tokens / a.heads;
      if (layer >= a.layers) continue;
      const char* from = a.base + slot * a.block_stride + layer * a.layer_stride +
                         head * a.head_stride + token * a.token_stride;
      value[u] = load_once(reinterpret_cast<const uint4*>(from) + index % a.row_vectors);
    }
    KV_UNROLL(kSumUnroll)
    for (unsigned u = 0; u < kSumUnroll; ++u) {
      const std::uint32_t index = blockIdx.x * kSumVectors + u * kSumThreads + threadIdx.x;
      const std::uint32_t row = index / a.row_vectors;
      const std::uint32_t plane_rows = a.heads * a.block_tokens;
      if (row >= a.layers * plane_rows) continue;
      const std::uint32_t layer = a.layer_begin + row / plane_rows;
      const std::uint64_t logical_row =
          (std::uint64_t{layer} * 2 + a.plane) * plane_rows + row % plane_rows;
      const std::uint64_t place = (logical_row << 16U) + index % a.row_vectors * 2;
      sum += mix(value[u].x | static_cast<std::uint64_t>(value[u].y) << 32U, place);
      sum += mix(value[u].z | static_cast<std::uint64_t>(value[u].w) << 32U, place + 1);
    }
  }
  for (int lanes = 1; lanes < 32; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  if (threadIdx.x % kWarpLanes == 0) warps[threadIdx.x / kWarpLanes] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < kSumThreads / kWarpLanes; ++w) sum += warps[w];
    static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(a.sums + blockIdx.y),
              static_cast<unsigned long long>(sum));
  }
}

}  // namespace

int launch_clear_sums(const ChecksumArguments& a, Stream stream) {
  return launch(clear_sums, dim3{(a.block_count + kSumThreads - 1) / kSumThreads, 1, 1},
                kSumThreads, stream, a);
}

int launch_checksum(const ChecksumArguments& arguments, Stream stream) {
  const std::uint32_t vectors =
      arguments.layers * arguments.heads * arguments.block_tokens * arguments.row_vectors;
  const std::uint32_t parts = (vectors + kSumVectors - 1) / kSumVectors;
  ChecksumArguments a = arguments;
  for (std::uint32_t done = 0; done < arguments.block_count; done += kGridRows) {
    const std::uint32_t left = arguments.block_count - done;
    a.slots = arguments.slots + done;
    a.sums = arguments.sums + done;
    const int error = launch(sum_blocks, dim3{parts, left < kGridRows ? left : kGridRows, 1},
                             kSumThreads, stream, a);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace kv::cuda
