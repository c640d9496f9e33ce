// Attention over a pool of BF16 keys and values.
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/attention_kernel.cuh"

namespace kv::cuda {

int launch_attention_bf16(const AttentionArguments& arguments, std::uint32_t queries,
                          Stream stream) {
  return launch_for_shape<BF16>(arguments, queries, stream);
}

}  // namespace kv::cuda
