// The cases of the CUDA kernels on a CPU: the same sources, on the fiber header, in several orders
// of lanes. KV_CUDA_CASES_LARGE=1 runs them at the size that a GPU gets.
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "kernels/cuda/table.h"
#include "tests/gpu/cases.h"
#include "tests/support/cuda_fiber.h"

namespace kv::cuda {

// On a CPU there is no device to ask.
std::int32_t score(const kv_kernel_device* device) {
  return device->kind == KV_KERNEL_DEVICE_CUDA ? 20 : 0;
}

}  // namespace kv::cuda

namespace kv::test {
namespace {

// Plain memory, each allocation its own: the address sanitizer sees what is beyond it.
class HostDevice : public gpu::Device {
 public:
  explicit HostDevice(const fiber::Session& session) : session_(session) {}
  void* allocate(std::size_t bytes) override {
    return ::operator new(bytes == 0 ? 1 : bytes, std::align_val_t{256});
  }
  void release(void* memory) override { ::operator delete(memory, std::align_val_t{256}); }
  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
  std::string synchronize() override { return session_.fault(); }

 private:
  const fiber::Session& session_;
};

const kv_kernel& kernel() {
  static const kv_kernel_host host{
      sizeof(kv_kernel_host), KV_KERNEL_ABI, nullptr, nullptr, nullptr, nullptr, nullptr};
  return *cuda::open_table(&host);
}

class CudaCase : public testing::Test {
 public:
  explicit CudaCase(const gpu::Case& tested) : case_(tested) {}
  void TestBody() override {
    const bool large = std::getenv("KV_CUDA_CASES_LARGE") != nullptr;
    constexpr std::uint64_t kSeed = 20240607;
    for (const fiber::Options& options : {fiber::Options{fiber::LaneOrder::ascending, 1},
                                          fiber::Options{fiber::LaneOrder::random, 7}}) {
      const fiber::Session session(options);
      HostDevice device(session);
      gpu::Context context(device, kernel(), kSeed, large);
      case_.run(context);
      EXPECT_GT(context.checks(), 0U);
      for (const std::string& failure : context.failures()) ADD_FAILURE() << failure;
    }
  }

 private:
  gpu::Case case_;
};

const bool kRegistered = [] {
  for (const auto cases : {gpu::attention_cases(), gpu::invariance_cases(), gpu::memory_cases()}) {
    for (const gpu::Case& one : cases) {
      testing::RegisterTest("CudaKernels", one.name, nullptr, nullptr, __FILE__, __LINE__,
                            [one]() -> testing::Test* { return new CudaCase(one); });
    }
  }
  return true;
}();

}  // namespace
}  // namespace kv::test
