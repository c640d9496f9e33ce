// Whether there is a device to run on. No driver, a
// stub of it, no device, or one too old: score is 0 and the host takes another kernel.
#include <cstdio>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/table.h"

namespace kv::cuda {
namespace {

constexpr int kComputeMajorMin = 8;

__global__ void probe(int* out) { *out = 1; }

std::int32_t refuse(const char* why, int error) {
  char text[256];
  const int length = std::snprintf(text, sizeof(text), "cuda: not used: %s (%d: %s)", why, error,
                                   cudaGetErrorString(static_cast<cudaError_t>(error)));
  if (length > 0) log_line(KV_KERNEL_LOG_INFO, text);
  static_cast<void>(cudaGetLastError());  // not to be seen by the next launch
  return 0;
}

}  // namespace

std::int32_t score(const kv_kernel_device* device) {
  if (device->kind != KV_KERNEL_DEVICE_CUDA) return 0;
  int count = 0;  // left as it is on an error
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return refuse("no driver or no device", error);
  if (device->index >= static_cast<std::uint32_t>(count)) return refuse("no such device", 0);
  const int index = static_cast<int>(device->index);
  int major = 0;
  error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  if (error != cudaSuccess) return refuse("the device does not answer", error);
  if (major < kComputeMajorMin) return refuse("a device older than compute capability 8.0", 0);
  error = cudaSetDevice(index);
  if (error != cudaSuccess) return refuse("the device cannot be selected", error);
  cudaFuncAttributes attributes{};
  error = cudaFuncGetAttributes(&attributes, probe);
  if (error != cudaSuccess) return refuse("not built for this device", error);
  return 20;
}

}  // namespace kv::cuda
