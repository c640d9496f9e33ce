// The device of the cases on a GPU, through the CUDA runtime. Every return code is looked at: the
// first error stays and fails all that follows.
// Owner: of nothing but what allocate gave. Threads: one. Cost: as CUDA's.
#pragma once

#include <string>

#include <cuda_runtime_api.h>

#include "tests/gpu/device.h"

namespace kv::gpu {

class CudaDevice : public Device {
 public:
  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "cudaMalloc");
    return memory;
  }
  void release(void* memory) override { check(cudaFree(memory), "cudaFree"); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy from the device");
  }
  std::string synchronize() override {
    check(cudaDeviceSynchronize(), "synchronize");
    check(cudaGetLastError(), "last error");
    return error_;
  }
  void check(cudaError_t error, const char* call) {
    if (error != cudaSuccess && error_.empty()) {
      error_ = std::string(call) + ": " + cudaGetErrorString(error);
    }
  }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  std::string error_;
};

}  // namespace kv::gpu
