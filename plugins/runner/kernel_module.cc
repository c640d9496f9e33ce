#include "plugins/runner/kernel_module.h"

#include <system_error>
#include <utility>

#include <dlfcn.h>

namespace kv::runner {
namespace {

constexpr std::string_view kFileName = "libcachesvc_kernels_cpu.so";

// No threads yet: the plug-in loops by itself. Static, since a plug-in keeps the address.
constexpr kv_kernel_host kHost = {.struct_size = sizeof(kv_kernel_host),
                                  .abi = KV_KERNEL_ABI,
                                  .context = nullptr,
                                  .parallel_for = nullptr,
                                  .log = nullptr,
                                  .allocate = nullptr,
                                  .release = nullptr};

Result<const kv_kernel*> check(const kv_kernel* kernel) {
  if (kernel == nullptr || kernel->struct_size < sizeof(kv_kernel) ||
      kernel->abi != KV_KERNEL_ABI) {
    return Error{ErrorCode::mismatch, "made for another version of the kernel ABI", "abi"};
  }
  if (kernel->score == nullptr || kernel->supports == nullptr || kernel->prepare == nullptr ||
      kernel->run == nullptr || kernel->append_kv == nullptr) {
    return Error{ErrorCode::unsupported, "lacks an operation that the runner needs", {}};
  }
  const kv_kernel_device device{sizeof(kv_kernel_device), KV_KERNEL_DEVICE_CPU, 0, 0, 0};
  if (kernel->score(&device) <= 0) {
    return Error{ErrorCode::unsupported, "does not run on this CPU", {}};
  }
  return kernel;
}

}  // namespace

Result<KernelModule> KernelModule::open(const std::filesystem::path& file, std::string* linker) {
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* const said = dlerror();
    if (linker != nullptr && said != nullptr) *linker = said;
    return Error{ErrorCode::not_found, "cannot be opened", {}};
  }
  const auto entry =
      reinterpret_cast<kv_kernel_entry_function>(dlsym(module, KV_KERNEL_ENTRY_NAME));
  if (entry == nullptr) {
    dlclose(module);
    return Error{ErrorCode::unsupported, "is no kernel plug-in", {}};
  }
  const auto kernel = check(entry(&kHost));
  if (!kernel) {
    dlclose(module);
    return kernel.error();
  }
  return KernelModule(module, *kernel);
}

std::filesystem::path KernelModule::default_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto folder = error ? std::filesystem::path(".") : program.parent_path();
  const auto installed = folder.parent_path() / "lib" / kFileName;
  return std::filesystem::exists(installed, error) ? installed : folder / kFileName;
}

KernelModule::KernelModule(KernelModule&& other) noexcept
    : module_(std::exchange(other.module_, nullptr)),
      kernel_(std::exchange(other.kernel_, nullptr)) {}

KernelModule& KernelModule::operator=(KernelModule&& other) noexcept {
  std::swap(module_, other.module_);
  std::swap(kernel_, other.kernel_);
  return *this;
}

KernelModule::~KernelModule() {
  if (module_ != nullptr) dlclose(module_);
}

}  // namespace kv::runner
