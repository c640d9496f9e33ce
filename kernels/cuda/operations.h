// The operations of the plug-in, each behind the C ABI of the same name; see there for arguments.
// Arrays of batches and lists of slots lie on the device; the structs themselves and layer_bases
// are read by the host. Plain host code on the launchers of arguments.h.
// Owner: the caller owns all memory; nothing is allocated. Threads: any. Cost: a few launches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api/kv_kernel.h"

namespace kv::cuda {

// --- describe.cc: O(1), but for prepare: O(sequences). Nothing here touches a device.
std::int32_t caps(const kv_kernel_device* device, kv_kernel_caps* out);
std::int32_t supports(const kv_kernel_problem* problem, char* reason, std::size_t reason_bytes);
std::int32_t workspace(const kv_kernel_problem* problem, const kv_kernel_bounds* bounds,
                       kv_kernel_workspace_bytes* bytes);
std::int32_t prepare(const kv_kernel_problem* problem, const kv_kernel_batch* batch,
                     kv_kernel_plan* plan);

// --- run.cc
std::int32_t run(const kv_kernel_problem* problem, const kv_kernel_plan* plan,
                 const kv_kernel_pool* pool, const kv_kernel_batch* batch,
                 const kv_kernel_tensors* tensors, void* device_workspace, void* stream);
std::int32_t append_kv(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                       const kv_kernel_append* append, void* stream);
std::int32_t checksum(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                      const kv_kernel_checksum* checksum, void* stream);
std::int32_t merge(const kv_kernel_problem* problem, const kv_kernel_merge* merge, void* stream);

// --- move.cc: copies within a pool and between pools
std::int32_t copy_blocks(const kv_kernel_problem* problem, const kv_kernel_pool* pool,
                         const kv_kernel_copy* copy, void* stream);
std::int32_t transcode(const kv_kernel_problem* from_problem, const kv_kernel_pool* from,
                       const kv_kernel_problem* to_problem, const kv_kernel_pool* to,
                       const kv_kernel_copy* copy, void* stream);

// --- table.cc
// Logs through the host, when there is one. Level: KV_KERNEL_LOG_*.
void log_line(std::int32_t level, const char* message);
// KV_KERNEL_OK, or KV_KERNEL_FAILED with one line in the log that names the operation and error.
std::int32_t result_of(int error, const char* operation);

}  // namespace kv::cuda
