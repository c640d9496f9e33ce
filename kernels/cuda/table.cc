// The table of operations behind the entry point, and the host that loaded it.
#include "kernels/cuda/table.h"

#include <atomic>
#include <cstdio>

#include "kernels/cuda/operations.h"

namespace kv::cuda {
namespace {

// The only state: who loaded the plug-in.
std::atomic<const kv_kernel_host*>& host_table() {
  static std::atomic<const kv_kernel_host*> host{nullptr};
  return host;
}

constexpr kv_kernel kKernel = {
    .struct_size = sizeof(kv_kernel),
    .abi = KV_KERNEL_ABI,
    .name = "cuda",
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
    .transcode = transcode,
    .checksum = checksum,
    .rerope = nullptr,
    .merge = merge,
};

}  // namespace

const kv_kernel* open_table(const kv_kernel_host* host) {
  if (host == nullptr || host->struct_size < sizeof(kv_kernel_host) || host->abi != KV_KERNEL_ABI) {
    return nullptr;
  }
  host_table().store(host);
  return &kKernel;
}

void log_line(std::int32_t level, const char* message) {
  const kv_kernel_host* host = host_table().load();
  if (host != nullptr && host->log != nullptr) host->log(host->context, level, message);
}

std::int32_t result_of(int error, const char* operation) {
  if (error == 0) return KV_KERNEL_OK;
  char text[128];
  const int length = std::snprintf(text, sizeof(text), "cuda: %s: error %d", operation, error);
  if (length > 0) log_line(KV_KERNEL_LOG_ERROR, text);
  return KV_KERNEL_FAILED;
}

}  // namespace kv::cuda

const kv_kernel* kv_kernel_entry(const kv_kernel_host* host) { return kv::cuda::open_table(host); }
