// What the kernels move a second, beside a device-to-device copy measured in the same run.
// Threads: one. Cost: seconds, and about 3 GB of device memory.
#pragma once

#include <string>
#include <vector>

#include "kernels/api/kv_kernel.h"
#include "tests/gpu/cuda_device.h"

namespace kv::gpu {

struct Rate {
  std::string name;
  double bytes;         // read and written by one call
  double microseconds;  // the median call
  double gigabytes_per_second;
  double ratio;  // to the copy's rate, interleaved with it
};

// Empty, with the device's error set, when something fails. requires: a usable device.
std::vector<Rate> measure(CudaDevice& device, const kv_kernel& kernel, std::uint64_t seed);

}  // namespace kv::gpu
