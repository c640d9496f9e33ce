// Joins two normalised partial results of the same rows, in place on the first; the LSE is natural.
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/dtype.cuh"

namespace kv::cuda {
namespace {

constexpr unsigned kMergeThreads = 256;
constexpr float kBase2OfNatural = 1.44269504088896341F;

// A warp for each row and head: its lanes must all have read the LSE before one writes it.
__global__ void merge_rows(MergeArguments a) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kMergeThreads + threadIdx.x;
  const std::uint64_t row_head = thread / kWarpLanes;
  if (row_head >= a.row_heads) return;  // whole warps
  const unsigned lane = threadIdx.x % kWarpLanes;
  const float first = a.lse[row_head] * kBase2OfNatural;
  const float second = a.other_lse[row_head] * kBase2OfNatural;
  const float max = fmaxf(first, second);
  const bool nothing = max == -float_of(0x7F800000U);  // neither saw a key
  const float first_weight = nothing ? 1.0F : exp2_fast(first - max);
  const float second_weight = nothing ? 0.0F : exp2_fast(second - max);
  const float sum = first_weight + second_weight;
  __syncwarp();
  for (unsigned channel = lane; channel < a.head_dim; channel += kWarpLanes) {
    const std::size_t index = row_head * a.head_dim + channel;
    const float ours = load_element(a.output, index, a.dtype) * first_weight;
    const float theirs = load_element(a.other_output, index, a.dtype);
    // A side without keys may hold anything.
    const float value = first_weight == 0.0F    ? theirs
                        : second_weight == 0.0F ? ours / sum
                                                : fmaf(theirs, second_weight, ours) / sum;
    store_element(a.output, index, a.dtype, value);
  }
  if (lane == 0 && !nothing) a.lse[row_head] = (max + log2f(sum)) / kBase2OfNatural;
}

}  // namespace

int launch_merge(const MergeArguments& a, Stream stream) {
  const std::uint64_t threads = a.row_heads * kWarpLanes;
  const auto blocks = static_cast<unsigned>((threads + kMergeThreads - 1) / kMergeThreads);
  if (blocks == 0) return 0;
  return launch(merge_rows, dim3{blocks, 1, 1}, kMergeThreads, stream, a);
}

}  // namespace kv::cuda
