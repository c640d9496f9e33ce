// KernelModule: a kernel plug-in, opened with dlopen and checked before its first use.
// Owner: the KernelModule keeps the shared object open; it outlives every use of kernel().
// Threads: as the plug-in's. Cost: dlopen once.
#pragma once

#include <filesystem>
#include <string>

#include "allocator/base/result.h"
#include "kernels/api/kv_kernel.h"

namespace kv::runner {

class KernelModule {
 public:
  // fails: not_found, and why in `linker` unless null; unsupported (no kernel plug-in, or not for
  // this machine's CPU); mismatch (another ABI).
  [[nodiscard]] static Result<KernelModule> open(const std::filesystem::path& file,
                                                 std::string* linker = nullptr);
  // libcachesvc_kernels_cpu.so in ../lib of the running program, or beside it.
  [[nodiscard]] static std::filesystem::path default_path();

  KernelModule(KernelModule&& other) noexcept;
  KernelModule& operator=(KernelModule&& other) noexcept;
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;
  ~KernelModule();

  [[nodiscard]] const kv_kernel& kernel() const { return *kernel_; }

 private:
  KernelModule(void* module, const kv_kernel* kernel) : module_(module), kernel_(kernel) {}
  void* module_;
  const kv_kernel* kernel_;  // in the shared object
};

}  // namespace kv::runner
