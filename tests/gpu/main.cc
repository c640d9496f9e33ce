// Runs the cases of the CUDA kernels on a GPU, through the built module alone, then measures. Needs
// the C library, the driver and, for the oracle, cuBLAS.
// Exit codes: 0 all held; 1 no usable device or no module; 2 usage; 3 a check failed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <dlfcn.h>

#include "tests/gpu/bench.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/cuda_device.h"
#ifdef KV_WITH_CUBLAS
#include "tests/gpu/dense_oracle.h"
#endif

namespace kv::gpu {
namespace {

struct Options {
  std::string module, json, filter;
  std::uint64_t seed = 0;
  bool cases = true, bench = true, small = false;
};

constexpr const char* kUsage =
    "usage: gpu_cases MODULE.so [--seed N] [--small] [--only TEXT] [--no-cases] [--no-bench]\n"
    "                 [--json FILE]\n"
    "  --small   the sizes of a CPU run, for compute-sanitizer\n"
    "  --only    cases whose name contains TEXT\n";

bool parse(int count, char** values, Options& options) {
  if (count < 2) return false;
  options.module = values[1];
  options.seed =
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) %
      1'000'000;
  for (int i = 2; i < count; ++i) {
    const std::string_view name = values[i];
    const bool has_value = name == "--seed" || name == "--only" || name == "--json";
    if (has_value && i + 1 == count) return false;
    if (name == "--seed") {
      options.seed = std::strtoull(values[++i], nullptr, 10);
    } else if (name == "--only") {
      options.filter = values[++i];
    } else if (name == "--json") {
      options.json = values[++i];
    } else if (name == "--small") {
      options.small = true;
    } else if (name == "--no-cases") {
      options.cases = false;
    } else if (name == "--no-bench") {
      options.bench = false;
    } else {
      return false;
    }
  }
  return true;
}

void print_log(void* /*context*/, std::int32_t /*level*/, const char* message) {
  std::printf("%s\n", message);
}

const kv_kernel* open_module(const std::string& path) {
  static const kv_kernel_host host{
      sizeof(kv_kernel_host), KV_KERNEL_ABI, nullptr, nullptr, print_log, nullptr, nullptr};
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    std::printf("%s\n", dlerror());
    return nullptr;
  }
  const auto entry =
      reinterpret_cast<kv_kernel_entry_function>(dlsym(module, KV_KERNEL_ENTRY_NAME));
  return entry == nullptr ? nullptr : entry(&host);
}

struct Outcome {
  std::string name;
  std::uint64_t checks;
  std::size_t failures;
  double worst, seconds;
};

class Runner {
 public:
  Runner(const Options& options, CudaDevice& device, const kv_kernel& kernel)
      : options_(options), device_(device), kernel_(kernel) {}
  template <class Work>
  void run(const std::string& name, const Work& work) {
    if (name.find(options_.filter) == std::string::npos) return;
    Context context(device_, kernel_, options_.seed, !options_.small);
    const auto begin = std::chrono::steady_clock::now();
    work(context);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::size_t failures = context.failures().size();
    for (std::size_t i = 0; i < failures && i < 5; ++i) {
      std::printf("    %s\n", context.failures()[i].c_str());
    }
    if (context.checks() == 0) ++failures;  // a case that looks at nothing shows nothing
    std::printf("%-6s %s (%llu checks, worst %.2f of tolerance, %.1f s)\n",
                failures == 0 ? "ok" : "FAILED", name.c_str(),
                static_cast<unsigned long long>(context.checks()), context.worst(),
                seconds.count());
    std::fflush(stdout);
    outcomes_.push_back({name, context.checks(), failures, context.worst(), seconds.count()});
  }
  [[nodiscard]] const std::vector<Outcome>& outcomes() const { return outcomes_; }

 private:
  const Options& options_;
  CudaDevice& device_;
  const kv_kernel& kernel_;
  std::vector<Outcome> outcomes_;
};

void run_cases(Runner& runner) {
  for (const auto cases : {attention_cases(), invariance_cases(), memory_cases()}) {
    for (const Case& one : cases) runner.run(one.name, one.run);
  }
#ifdef KV_WITH_CUBLAS
  std::string reason;
  const auto oracle = DenseOracle::open(reason);
  if (oracle == nullptr) {
    std::printf("not run: no cuBLAS: %s\n", reason.c_str());
    return;
  }
  runner.run("DecodeAgreesWithDenseAttentionByCublas",
             [&](Context& context) { oracle->compare_decode(context); });
  runner.run("RowsOfAProductInTilesOfEightDoNotDependOnTheBatch",
             [&](Context& context) { oracle->compare_row_tiles(context); });
#else
  std::printf("not run: built without cuBLAS\n");
#endif
}

bool write_json(const Options& options, const cudaDeviceProp& properties,
                const std::vector<Outcome>& outcomes, const std::vector<Rate>& rates) {
  std::FILE* file = std::fopen(options.json.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "{\"device\": \"%s\", \"seed\": %llu,\n \"cases\": [", properties.name,
               static_cast<unsigned long long>(options.seed));
  const char* separator = "";
  for (const Outcome& o : outcomes) {
    std::fprintf(file,
                 "%s\n  {\"name\": \"%s\", \"checks\": %llu, \"failures\": %zu, \"seconds\": %.3f}",
                 separator, o.name.c_str(), static_cast<unsigned long long>(o.checks), o.failures,
                 o.seconds);
    separator = ",";
  }
  std::fprintf(file, "],\n \"rows\": [");
  separator = "";
  for (const Rate& r : rates) {
    std::fprintf(file,
                 "%s\n  {\"name\": \"%s\", \"unit\": \"GB/s\", \"value\": %.1f, \"bytes\": %.0f, "
                 "\"microseconds\": %.2f, \"ratio\": %.4f}",
                 separator, r.name.c_str(), r.gigabytes_per_second, r.bytes, r.microseconds,
                 r.ratio);
    separator = ",";
  }
  std::fprintf(file, "]}\n");
  return std::fclose(file) == 0;
}

void print_table(const std::vector<Rate>& rates) {
  std::printf("\n%-58s %10s %10s %9s %6s\n", "work", "MB", "us", "GB/s", "ratio");
  for (const Rate& r : rates) {
    std::printf("%-58s %10.1f %10.1f %9.0f %6.2f\n", r.name.c_str(), r.bytes / 1e6, r.microseconds,
                r.gigabytes_per_second, r.ratio);
  }
}

int run(const Options& options) {
  const kv_kernel* kernel = open_module(options.module);
  const kv_kernel_device which{sizeof(which), KV_KERNEL_DEVICE_CUDA, 0, 0, 0};
  if (kernel == nullptr || kernel->score(&which) == 0) {
    std::printf("no usable CUDA device: nothing was checked\n");
    return 1;
  }
  CudaDevice device;
  cudaDeviceProp properties{};
  device.check(cudaGetDeviceProperties(&properties, 0), "properties");
  std::printf("%s, sm_%d%d, %d multiprocessors, L2 %d MB, seed %llu\n", properties.name,
              properties.major, properties.minor, properties.multiProcessorCount,
              properties.l2CacheSize >> 20, static_cast<unsigned long long>(options.seed));
  Runner runner(options, device, *kernel);
  if (options.cases) run_cases(runner);
  std::vector<Rate> rates;
  if (options.bench && device.error().empty()) {
    rates = measure(device, *kernel, options.seed);
    print_table(rates);
  }
  std::size_t failed = device.error().empty() ? 0 : 1;
  if (failed != 0) std::printf("device error: %s\n", device.error().c_str());
  for (const Outcome& o : runner.outcomes()) failed += o.failures == 0 ? 0 : 1;
  if (!options.json.empty() && !write_json(options, properties, runner.outcomes(), rates)) {
    std::printf("cannot write %s\n", options.json.c_str());
    return 1;
  }
  std::printf("\n%zu cases, %zu failed\n", runner.outcomes().size(), failed);
  const bool nothing = options.cases && runner.outcomes().empty();
  return failed != 0 || nothing ? 3 : 0;
}

}  // namespace
}  // namespace kv::gpu

int main(int count, char** values) {
  kv::gpu::Options options;
  if (!kv::gpu::parse(count, values, options)) {
    std::fputs(kv::gpu::kUsage, stderr);
    return 2;
  }
  return kv::gpu::run(options);
}
