// Copies blocks within a pool, or between two (gather and scatter), 16 bytes at a time. Dimensions
// whose bytes lie next to each other on both sides are one run; a block that is whole on both sides
// is copied without any division.
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/device.cuh"

namespace kv::cuda {
namespace {

constexpr unsigned kCopyThreads = 256;
constexpr unsigned kCopyUnroll = 4;
constexpr unsigned kCopyVectors = kCopyThreads * kCopyUnroll;  // of 16 bytes, in one block

// Grid: x = part of a block, y = pair of slots.
template <bool kOneRun>
__global__ void __launch_bounds__(kCopyThreads) copy_region(CopyArguments a) {
  const std::uint32_t from_slot = a.from_slots[blockIdx.y];
  const std::uint32_t to_slot = a.to_slots[blockIdx.y];
  if (from_slot >= a.from_slot_count || to_slot >= a.to_slot_count) return;
  const std::uint32_t tokens =
      a.token_count == nullptr ? a.block_tokens : a.token_count[blockIdx.y];
  const char* from = a.from + from_slot * a.from_block_stride;
  char* to = a.to + to_slot * a.to_block_stride;
  uint4 value[kCopyUnroll];
  std::int64_t offset[kCopyUnroll];
  bool copied[kCopyUnroll];
  KV_UNROLL(kCopyUnroll)
  for (unsigned u = 0; u < kCopyUnroll; ++u) {
    const std::uint32_t index = blockIdx.x * kCopyVectors + u * kCopyThreads + threadIdx.x;
    copied[u] = index < a.vectors;
    std::int64_t source = std::int64_t{index} * 16;
    offset[u] = source;
    if (!kOneRun && copied[u]) {
      const std::uint32_t in_run = index % a.run_vectors;
      std::uint32_t rest = index / a.run_vectors;
      std::uint32_t token = in_run / a.token_vectors % a.block_tokens;  // of a run with several
      source = std::int64_t{in_run} * 16;
      offset[u] = source;
      for (unsigned d = 0; d < kCopyDims; ++d) {
        const std::uint32_t i = rest % a.dims[d].count;
        rest /= a.dims[d].count;
        source += i * a.dims[d].from_stride;
        offset[u] += i * a.dims[d].to_stride;
        if (a.dims[d].tokens) token = i;
      }
      copied[u] = token < tokens;
    }
    if (copied[u]) value[u] = load_once(reinterpret_cast<const uint4*>(from + source));
  }
  KV_UNROLL(kCopyUnroll)
  for (unsigned u = 0; u < kCopyUnroll; ++u) {
    if (copied[u]) store_once(reinterpret_cast<uint4*>(to + offset[u]), value[u]);
  }
}

}  // namespace

int launch_copy(const CopyArguments& arguments, std::uint32_t pairs, Stream stream) {
  const std::uint32_t parts = (arguments.vectors + kCopyVectors - 1) / kCopyVectors;
  const bool one_run =
      arguments.run_vectors == arguments.vectors && arguments.token_count == nullptr;
  CopyArguments a = arguments;
  for (std::uint32_t done = 0; done < pairs; done += kGridRows) {
    const std::uint32_t now = pairs - done < kGridRows ? pairs - done : kGridRows;
    a.from_slots = arguments.from_slots + done;
    a.to_slots = arguments.to_slots + done;
    a.token_count = arguments.token_count == nullptr ? nullptr : arguments.token_count + done;
    const int error = launch(one_run ? copy_region<true> : copy_region<false>, dim3{parts, now, 1},
                             kCopyThreads, stream, a);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace kv::cuda
