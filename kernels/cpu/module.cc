// The entry point of libcachesvc_kernels_cpu.so: puts the operations behind the C ABI.
#include <atomic>

#include "kernels/cpu/operations.h"

namespace kv::kernels {
namespace {

// The only state: who loaded the plug-in.
std::atomic<const kv_kernel_host*>& host_table() {
  static std::atomic<const kv_kernel_host*> host{nullptr};
  return host;
}

std::int32_t run(const kv_kernel_problem* problem, const kv_kernel_plan* plan,
                 const kv_kernel_pool* pool, const kv_kernel_batch* batch,
                 const kv_kernel_tensors* tensors, void* /*device_workspace*/, void* /*stream*/) {
  return attention(*problem, *plan, *pool, *batch, *tensors, host_table().load());
}

constexpr kv_kernel kKernel = {
    .struct_size = sizeof(kv_kernel),
    .abi = KV_KERNEL_ABI,
    .name = "cpu",
    .version = "1",
    .score = score,
    .caps = caps,
    .supports = supports,
    .workspace = workspace,
    .prepare = prepare,
    .update = nullptr,
    .run = run,
    .append_kv = append_kv,
    .copy_blocks = copy_blocks,
    .transcode = nullptr,
    .checksum = nullptr,
    .rerope = nullptr,
    .merge = nullptr,
};

}  // namespace
}  // namespace kv::kernels

const kv_kernel* kv_kernel_entry(const kv_kernel_host* host) {
  if (host == nullptr || host->struct_size < sizeof(kv_kernel_host) || host->abi != KV_KERNEL_ABI) {
    return nullptr;
  }
  kv::kernels::host_table().store(host);
  return &kv::kernels::kKernel;
}
