#include "tests/gpu/bench.h"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "tests/gpu/paged.h"

namespace kv::gpu {
namespace {

constexpr int kWarmUp = 5;
constexpr int kRepeats = 31;

struct Pair {
  double copy, work;  // microseconds
};

// Times a copy and the work right after it. Both are queued behind another copy, so that the
// device never waits for the host between the marks.
class Timer {
 public:
  explicit Timer(CudaDevice& device) : device_(device) {
    for (cudaEvent_t& mark : marks_) device_.check(cudaEventCreate(&mark), "event");
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  Timer(Timer&&) = delete;
  Timer& operator=(Timer&&) = delete;
  ~Timer() {
    for (cudaEvent_t mark : marks_) static_cast<void>(cudaEventDestroy(mark));
  }
  Pair measure(const std::function<void()>& copy, const std::function<void()>& work) {
    copy();
    device_.check(cudaEventRecord(marks_[0], nullptr), "record");
    copy();
    device_.check(cudaEventRecord(marks_[1], nullptr), "record");
    work();
    device_.check(cudaEventRecord(marks_[2], nullptr), "record");
    device_.check(cudaEventSynchronize(marks_[2]), "wait");
    return {between(0), between(1)};
  }

 private:
  double between(std::size_t first) {
    float milliseconds = 0;
    device_.check(cudaEventElapsedTime(&milliseconds, marks_[first], marks_[first + 1]), "elapsed");
    return double{milliseconds} * 1000;
  }
  CudaDevice& device_;
  std::array<cudaEvent_t, 3> marks_{};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Random bytes that are finite numbers in every 16-bit format: a pattern, repeated.
void fill(CudaDevice& device, std::byte* to, std::size_t bytes, std::uint64_t seed) {
  std::vector<std::uint16_t> pattern(std::size_t{1} << 22U);
  Prng prng(seed);
  for (auto& x : pattern) {
    x = static_cast<std::uint16_t>(random_bits(prng, KV_KERNEL_DTYPE_BF16));
  }
  const std::size_t step = pattern.size() * sizeof(pattern[0]);
  for (std::size_t at = 0; at < bytes; at += step) {
    device.upload(to + at, pattern.data(), std::min(step, bytes - at));
  }
}

// Blocks of 16 tokens, 8 key-value heads, 128 channels, bf16, block-first.
struct Setting {
  std::uint32_t sequences = 16, context = 8192, heads = 8, dim = 128, block = 16, layers = 1;
};

class Bench {
 public:
  Bench(CudaDevice& device, const kv_kernel& kernel, std::uint64_t seed)
      : device_(device),
        kernel_(kernel),
        seed_(seed),
        timer_(device),
        source_(device, kCopyBytes),
        target_(device, kCopyBytes) {
    fill(device, source_.data(), kCopyBytes, seed);
    run("device-to-device copy (the yardstick)", 2.0 * kCopyBytes, [&] {
      copy();
      return KV_KERNEL_OK;
    });
  }
  // Interleaved with the copy, so that both see the same clocks and neighbours.
  void run(const std::string& name, double bytes, const std::function<std::int32_t()>& work) {
    const auto call = [&] {
      if (work() != KV_KERNEL_OK) device_.check(cudaErrorUnknown, name.c_str());
    };
    for (int i = 0; i < kWarmUp; ++i) call();
    std::vector<double> times, ratios;
    for (int i = 0; i < kRepeats && device_.error().empty(); ++i) {
      const Pair pair = timer_.measure([&] { copy(); }, call);
      times.push_back(pair.work);
      ratios.push_back(bytes / pair.work / (2.0 * kCopyBytes / pair.copy));
    }
    if (device_.error().empty()) add(name, bytes, median(times), median(ratios));
  }
  void decode(std::uint32_t ratio);
  void append();
  void move();
  [[nodiscard]] const std::vector<Rate>& rates() const { return rates_; }

 private:
  static constexpr std::size_t kCopyBytes = std::size_t{512} << 20U;  // nine times the L2
  void copy() {
    device_.check(cudaMemcpyAsync(target_.data(), source_.data(), kCopyBytes,
                                  cudaMemcpyDeviceToDevice, nullptr),
                  "copy");
  }
  void add(const std::string& name, double bytes, double microseconds, double ratio) {
    rates_.push_back({name, bytes, microseconds, bytes / microseconds / 1000, ratio});
  }

  CudaDevice& device_;
  const kv_kernel& kernel_;
  std::uint64_t seed_;
  Timer timer_;
  Buffer<std::byte> source_, target_;
  std::vector<Rate> rates_;
};

struct PagedMemory {
  PagedMemory(CudaDevice& device, const Setting& s, std::uint64_t seed)
      : slots(s.sequences * (s.context / s.block)),
        plane(std::size_t{s.heads} * s.block * s.dim * 2),
        bytes(2 * plane * s.layers * slots),
        memory(device, bytes) {
    fill(device, memory.data(), bytes, seed);
    pool.struct_size = sizeof(pool);
    pool.slot_count = slots;
    for (kv_kernel_plane* p : {&pool.k, &pool.v}) {
      p->block_stride = static_cast<std::int64_t>(2 * plane * s.layers);
      p->layer_stride = static_cast<std::int64_t>(2 * plane);
      p->head_stride = std::int64_t{s.block} * s.dim * 2;
      p->token_stride = std::int64_t{s.dim} * 2;
    }
    pool.k.base = memory.data();
    pool.v.base = memory.data() + plane;
  }
  std::uint32_t slots;
  std::size_t plane, bytes;
  Buffer<std::byte> memory;
  kv_kernel_pool pool{};
};

Shape shape_of(const Setting& s, std::uint32_t ratio) {
  return {.query_heads = s.heads * ratio,
          .kv_heads = s.heads,
          .dim = s.dim,
          .block_tokens = s.block,
          .layers = s.layers,
          .dtype = KV_KERNEL_DTYPE_BF16,
          .query_dtype = KV_KERNEL_DTYPE_BF16,
          .output_dtype = KV_KERNEL_DTYPE_BF16};
}

void Bench::decode(std::uint32_t ratio) {
  const Setting s;
  const PagedMemory paged(device_, s, seed_);
  const kv_kernel_problem problem = problem_of(shape_of(s, ratio), KV_KERNEL_OP_DECODE);
  const std::uint32_t stride = s.context / s.block;
  std::vector<std::uint32_t> starts(s.sequences + 1);
  std::iota(starts.begin(), starts.end(), 0U);
  const std::vector<std::uint32_t> lengths(s.sequences, s.context);
  const std::vector<std::uint32_t> table = shuffled(seed_, s.sequences * stride);
  const Buffer<std::uint32_t> starts_there(device_, starts), lengths_there(device_, lengths),
      table_there(device_, table);
  const kv_kernel_batch host{sizeof(host),  s.sequences,    s.sequences, stride,
                             starts.data(), lengths.data(), table.data()};
  kv_kernel_batch there = host;
  there.row_start = starts_there.data();
  there.kv_length = lengths_there.data();
  there.table = table_there.data();
  kv_kernel_plan plan{};
  plan.struct_size = sizeof(plan);
  const kv_kernel_bounds bounds{sizeof(bounds), s.sequences, s.sequences, s.context};
  kv_kernel_workspace_bytes bytes{};
  bytes.struct_size = sizeof(bytes);
  if (kernel_.prepare(&problem, &host, &plan) != KV_KERNEL_OK ||
      kernel_.workspace(&problem, &bounds, &bytes) != KV_KERNEL_OK) {
    device_.check(cudaErrorInvalidValue, "prepare");
    return;
  }
  const std::size_t row_bytes = std::size_t{s.sequences} * problem.query_head_count * s.dim * 2;
  const Buffer<std::byte> query(device_, row_bytes), output(device_, row_bytes),
      workspace(device_, bytes.device);
  const Buffer<float> lse(device_, std::size_t{s.sequences} * problem.query_head_count);
  fill(device_, query.data(), row_bytes, seed_ + 1);
  const kv_kernel_tensors tensors{sizeof(tensors), 0, query.data(), output.data(), lse.data()};
  run("decode bf16 D=128 B=16 context 8192, 8 KV heads, ratio " + std::to_string(ratio),
      static_cast<double>(paged.bytes), [&] {
        return kernel_.run(&problem, &plan, &paged.pool, &there, &tensors, workspace.data(),
                           nullptr);
      });
}

void Bench::append() {
  const Setting s;
  const PagedMemory paged(device_, s, seed_);
  const kv_kernel_problem problem = problem_of(shape_of(s, 1), KV_KERNEL_OP_APPEND);
  const std::uint32_t rows = s.sequences * s.context;
  const std::vector<std::uint32_t> slots = shuffled(seed_, paged.slots);
  std::vector<std::int64_t> positions(rows);
  for (std::uint32_t r = 0; r < rows; ++r) {
    positions[r] = std::int64_t{slots[r / s.block]} * s.block + r % s.block;
  }
  const Buffer<std::int64_t> positions_there(device_, positions);
  const std::size_t bytes = std::size_t{rows} * s.heads * s.dim * 2;
  const kv_kernel_append append{
      sizeof(append), 0, rows, source_.data(), source_.data() + bytes, positions_there.data()};
  run("append bf16, 131072 tokens, 8 heads of 128", 4.0 * static_cast<double>(bytes),
      [&] { return kernel_.append_kv(&problem, &paged.pool, &append, nullptr); });
}

// Copies within the pool and to another, and sums, of blocks of 2 MiB.
void Bench::move() {
  const Setting s{.sequences = 1, .context = 8192, .layers = 32};
  const PagedMemory paged(device_, s, seed_);
  const Setting half{.sequences = 1, .context = 4096, .layers = 32};
  const PagedMemory staging(device_, half, seed_);
  const kv_kernel_problem problem = problem_of(shape_of(s, 1), KV_KERNEL_OP_COPY);
  const std::vector<std::uint32_t> slots = shuffled(seed_, paged.slots);
  const std::uint32_t pairs = paged.slots / 2;
  std::vector<std::uint32_t> ascending(pairs);
  std::iota(ascending.begin(), ascending.end(), 0U);
  const Buffer<std::uint32_t> slots_there(device_, slots), ascending_there(device_, ascending);
  const double block = static_cast<double>(paged.bytes) / paged.slots;
  const kv_kernel_copy within{sizeof(within), pairs, slots_there.data(), slots_there.data() + pairs,
                              nullptr};
  run("copy_blocks, 256 blocks of 2 MiB", 2 * block * pairs,
      [&] { return kernel_.copy_blocks(&problem, &paged.pool, &within, nullptr); });
  const kv_kernel_copy gather{sizeof(gather), pairs, slots_there.data(), ascending_there.data(),
                              nullptr};
  run("gather, 256 blocks of 2 MiB", 2 * block * pairs, [&] {
    return kernel_.transcode(&problem, &paged.pool, &problem, &staging.pool, &gather, nullptr);
  });
  // The other order of heads and tokens: no run is longer than a row.
  kv_kernel_pool turned = staging.pool;
  for (kv_kernel_plane* p : {&turned.k, &turned.v}) {
    p->token_stride = std::int64_t{s.heads} * s.dim * 2;
    p->head_stride = std::int64_t{s.dim} * 2;
  }
  run("gather to token-head order, rows of 256 bytes", 2 * block * pairs, [&] {
    return kernel_.transcode(&problem, &paged.pool, &problem, &turned, &gather, nullptr);
  });
  const Buffer<std::uint64_t> sums(device_, paged.slots);
  const kv_kernel_checksum checksum{sizeof(checksum), paged.slots, slots_there.data(), sums.data()};
  run("checksum, 512 blocks of 2 MiB", block * paged.slots,
      [&] { return kernel_.checksum(&problem, &paged.pool, &checksum, nullptr); });
}

}  // namespace

std::vector<Rate> measure(CudaDevice& device, const kv_kernel& kernel, std::uint64_t seed) {
  Bench bench(device, kernel, seed);
  for (const std::uint32_t ratio : {1U, 2U, 4U, 8U}) bench.decode(ratio);
  bench.append();
  bench.move();
  return device.synchronize().empty() ? bench.rates() : std::vector<Rate>{};
}

}  // namespace kv::gpu
