// Where the kernel cases run: memory of a device and the kernels on it. On a GPU this is CUDA; in
// the tests of every build it is the host's own memory and the fiber header.
// Owner: a Buffer owns its memory. Threads: one. Cost: a copy for each upload and download.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/api/kv_kernel.h"

namespace kv::gpu {

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  Device(Device&&) = delete;
  Device& operator=(Device&&) = delete;
  virtual ~Device() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // aligned to 256
  virtual void release(void* memory) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  // Waits for all work; empty: no error so far.
  virtual std::string synchronize() = 0;
};

// An array on the device.
template <class T>
class Buffer {
 public:
  Buffer(Device& device, std::size_t count)
      : device_(device),
        count_(count),
        data_(static_cast<T*>(device.allocate(count * sizeof(T)))) {}
  Buffer(Device& device, const std::vector<T>& values) : Buffer(device, values.size()) {
    set(values);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&&) = delete;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { device_.release(data_); }
  void set(const std::vector<T>& values) {
    device_.upload(data_, values.data(), values.size() * sizeof(T));
  }
  [[nodiscard]] std::vector<T> get() const {
    std::vector<T> values(count_);
    device_.download(values.data(), data_, count_ * sizeof(T));
    return values;
  }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  Device& device_;
  std::size_t count_;
  T* data_;
};

}  // namespace kv::gpu
