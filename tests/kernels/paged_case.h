// A small paged pool with seeded keys and values, for tests of kernels: the kernel is the loaded
// plug-in, called through its C ABI only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "allocator/base/prng.h"
#include "kernels/api/kv_kernel.h"

namespace kv::test {

inline float uniform(Prng& prng) {
  return static_cast<float>(prng.below(2'000'001)) / 1'000'000.0F - 1.0F;
}

inline std::vector<float> uniforms(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(prng);
  return values;
}

inline const kv_kernel& cpu_kernel() {
  static const kv_kernel* kernel = [] {
    static const kv_kernel_host host{
        sizeof(kv_kernel_host), KV_KERNEL_ABI, nullptr, nullptr, nullptr, nullptr, nullptr};
    void* module = dlopen(KV_BINARY_DIR "/lib/libcachesvc_kernels_cpu.so", RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) throw std::runtime_error(dlerror());
    const auto entry =
        reinterpret_cast<kv_kernel_entry_function>(dlsym(module, KV_KERNEL_ENTRY_NAME));
    return entry(&host);
  }();
  return *kernel;
}

struct Shape {
  std::uint32_t query_heads = 4, kv_heads = 2, dim_qk = 16, dim_vo = 16;
  std::uint32_t block_tokens = 16, layers = 2;
};

inline kv_kernel_problem problem_of(const Shape& shape) {
  kv_kernel_problem problem{};
  problem.struct_size = sizeof(problem);
  problem.operation = KV_KERNEL_OP_EXTEND;
  problem.layer_count = shape.layers;
  problem.query_head_count = shape.query_heads;
  problem.kv_head_count = shape.kv_heads;
  problem.head_dim_qk = shape.dim_qk;
  problem.head_dim_vo = shape.dim_vo;
  problem.block_tokens = shape.block_tokens;
  problem.scale = 1.0F / std::sqrt(static_cast<float>(shape.dim_qk));
  return problem;
}

// The order of the inner dimensions of a block.
enum class Order : std::uint8_t { head_token, token_head };

class TestPool {
 public:
  TestPool(const Shape& shape, std::uint32_t slots, Order order = Order::head_token)
      : shape_(shape) {
    const auto plane = [&](std::uint32_t dim) {
      kv_kernel_plane p{};
      const auto row = std::int64_t{dim} * std::int64_t{sizeof(float)};
      p.token_stride = order == Order::head_token ? row : row * std::int64_t{shape.kv_heads};
      p.head_stride = order == Order::head_token ? row * std::int64_t{shape.block_tokens} : row;
      return p;
    };
    view_.struct_size = sizeof(view_);
    view_.slot_count = slots;
    view_.k = plane(shape.dim_qk);
    view_.v = plane(shape.dim_vo);
    const std::int64_t per_dim =
        std::int64_t{shape.kv_heads} * shape.block_tokens * std::int64_t{sizeof(float)};
    const std::int64_t layer = per_dim * (shape.dim_qk + shape.dim_vo);
    // NaN in places never written: a stray read shows.
    floats_.assign(static_cast<std::size_t>(layer * slots * shape.layers) / sizeof(float),
                   std::nanf(""));
    view_.k.base = floats_.data();
    view_.v.base = floats_.data() + per_dim * shape.dim_qk / std::int64_t{sizeof(float)};
    for (kv_kernel_plane* p : {&view_.k, &view_.v}) {
      p->layer_stride = layer;
      p->block_stride = layer * shape.layers;
    }
  }
  [[nodiscard]] const kv_kernel_pool& view() const { return view_; }
  [[nodiscard]] std::vector<float>& floats() { return floats_; }

  // Writes tokens [begin, end) of the sequence with this content seed, in every layer.
  void append(std::uint64_t seed, const std::vector<std::uint32_t>& table, std::uint32_t begin,
              std::uint32_t end) {
    const kv_kernel_problem problem = problem_of(shape_);
    std::vector<std::int64_t> positions;
    for (std::uint32_t t = begin; t < end; ++t) {
      positions.push_back(std::int64_t{table[t / shape_.block_tokens]} * shape_.block_tokens +
                          t % shape_.block_tokens);
    }
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<float> k;
      std::vector<float> v;
      for (std::uint32_t t = begin; t < end; ++t) {
        const std::uint64_t token_seed = (seed << 40U) + (std::uint64_t{layer} << 32U) + t;
        const auto token_k = uniforms(token_seed * 2, std::size_t{shape_.kv_heads} * shape_.dim_qk);
        const auto token_v =
            uniforms(token_seed * 2 + 1, std::size_t{shape_.kv_heads} * shape_.dim_vo);
        k.insert(k.end(), token_k.begin(), token_k.end());
        v.insert(v.end(), token_v.begin(), token_v.end());
      }
      const kv_kernel_append append{
          sizeof(kv_kernel_append), layer, end - begin, k.data(), v.data(), positions.data()};
      if (cpu_kernel().append_kv(&problem, &view_, &append, nullptr) != KV_KERNEL_OK) {
        throw std::runtime_error("append_kv refused");
      }
    }
  }

 private:
  Shape shape_;
  kv_kernel_pool view_{};
  std::vector<float> floats_;
};

// The last `rows` tokens of a sequence of `length` tokens are queries.
struct TestSequence {
  std::uint64_t seed = 1;
  std::vector<std::uint32_t> table;
  std::uint32_t length = 0, rows = 0;
};

struct TestBatch {
  kv_kernel_batch view{};
  std::vector<std::uint32_t> row_start{0}, kv_length, table;
  std::vector<float> query;

  TestBatch(const Shape& shape, const std::vector<TestSequence>& sequences) {
    std::size_t stride = 1;
    for (const auto& s : sequences) stride = std::max(stride, s.table.size());
    for (const auto& s : sequences) {
      row_start.push_back(row_start.back() + s.rows);
      kv_length.push_back(s.length);
      const std::size_t end = table.size() + stride;
      table.insert(table.end(), s.table.begin(), s.table.end());
      table.resize(end, 0xFFFFFFFFU);  // never read
      for (std::uint32_t t = s.length - s.rows; t < s.length; ++t) {
        const auto row = uniforms((s.seed << 40U) + 77'000'000U + t,
                                  std::size_t{shape.query_heads} * shape.dim_qk);
        query.insert(query.end(), row.begin(), row.end());
      }
    }
    view = {sizeof(view),     static_cast<std::uint32_t>(sequences.size()),
            row_start.back(), static_cast<std::uint32_t>(stride),
            row_start.data(), kv_length.data(),
            table.data()};
  }
  TestBatch(const TestBatch&) = delete;
  TestBatch& operator=(const TestBatch&) = delete;
  TestBatch(TestBatch&&) = delete;
  TestBatch& operator=(TestBatch&&) = delete;
  ~TestBatch() = default;
};

struct Attended {
  std::vector<float> output, lse;
};

inline Attended attend(const Shape& shape, const TestPool& pool, const TestBatch& batch,
                       std::uint32_t layer) {
  const kv_kernel_problem problem = problem_of(shape);
  kv_kernel_plan plan{};
  plan.struct_size = sizeof(plan);
  if (cpu_kernel().prepare(&problem, &batch.view, &plan) != KV_KERNEL_OK) {
    throw std::runtime_error("prepare refused");
  }
  Attended result;
  const std::size_t heads = std::size_t{batch.view.row_count} * shape.query_heads;
  result.output.assign(heads * shape.dim_vo, 0);
  result.lse.assign(heads, 0);
  const kv_kernel_tensors tensors{sizeof(kv_kernel_tensors), layer, batch.query.data(),
                                  result.output.data(), result.lse.data()};
  if (cpu_kernel().run(&problem, &plan, &pool.view(), &batch.view, &tensors, nullptr, nullptr) !=
      KV_KERNEL_OK) {
    throw std::runtime_error("run refused");
  }
  return result;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::vector<std::uint32_t> shuffled_slots(std::uint64_t seed, std::uint32_t count) {
  std::vector<std::uint32_t> slots(count);
  std::iota(slots.begin(), slots.end(), 0U);
  Prng prng(seed);
  for (std::uint32_t i = count; i > 1; --i) std::swap(slots[i - 1], slots[prng.below(i)]);
  return slots;
}

}  // namespace kv::test
