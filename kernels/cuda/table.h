// What stands between the operations and whoever loads them. Threads: any. Cost: O(1).
#pragma once

#include <cstdint>

#include "kernels/api/kv_kernel.h"

namespace kv::cuda {

// The table; null: the host's ABI does not fit. requires: the host outlives its use.
const kv_kernel* open_table(const kv_kernel_host* host);
// 0: no usable device of this index; one line in the log says why. In module.cu; tests on a CPU
// have one of their own.
std::int32_t score(const kv_kernel_device* device);

}  // namespace kv::cuda
