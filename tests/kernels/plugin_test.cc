// The plug-in's own description and its refusals, through the C ABI.
#include <array>

#include <gtest/gtest.h>

#include "tests/kernels/paged_case.h"

namespace kv::test {
namespace {

TEST(Plugin, AnotherAbiVersionOfTheHostIsRefused) {
  void* module = dlopen(KV_BINARY_DIR "/lib/libcachesvc_kernels_cpu.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr);
  const auto entry =
      reinterpret_cast<kv_kernel_entry_function>(dlsym(module, KV_KERNEL_ENTRY_NAME));
  static const kv_kernel_host newer{
      sizeof(kv_kernel_host), KV_KERNEL_ABI + 1, nullptr, nullptr, nullptr, nullptr, nullptr};
  static const kv_kernel_host shorter{8,       KV_KERNEL_ABI, nullptr, nullptr,
                                      nullptr, nullptr,       nullptr};
  EXPECT_EQ(entry(nullptr), nullptr);
  EXPECT_EQ(entry(&newer), nullptr);
  EXPECT_EQ(entry(&shorter), nullptr);
  dlclose(module);
}

TEST(Plugin, RunsOnACpuOnlyAndOffersWhatItDeclares) {
  const kv_kernel& kernel = cpu_kernel();
  kv_kernel_device device{sizeof(device), KV_KERNEL_DEVICE_CPU, 0, 0, 0};
  EXPECT_GT(kernel.score(&device), 0);
  kv_kernel_caps caps{};
  caps.struct_size = sizeof(caps);
  ASSERT_EQ(kernel.caps(&device, &caps), KV_KERNEL_OK);
  EXPECT_EQ(caps.lse_base, std::uint32_t{KV_KERNEL_LSE_NATURAL});
  EXPECT_EQ(caps.determinism, std::uint32_t{KV_KERNEL_DETERMINISM_CHUNK_INVARIANT});
  EXPECT_EQ(caps.split_tokens, 256U);
  EXPECT_EQ((caps.operations & KV_KERNEL_OP_CHECKSUM) != 0, kernel.checksum != nullptr);
  EXPECT_EQ((caps.operations & KV_KERNEL_OP_MERGE) != 0, kernel.merge != nullptr);
  device.kind = KV_KERNEL_DEVICE_CUDA;
  EXPECT_EQ(kernel.score(&device), 0);
  EXPECT_EQ(kernel.caps(&device, &caps), KV_KERNEL_UNSUPPORTED);
  caps.struct_size = 16;
  device.kind = KV_KERNEL_DEVICE_CPU;
  EXPECT_EQ(kernel.caps(&device, &caps), KV_KERNEL_INVALID);
}

TEST(Plugin, ProblemsBeyondItsReachAreRefusedWithAllReasons) {
  kv_kernel_problem problem = problem_of({});
  std::array<char, 512> reason{};
  EXPECT_EQ(cpu_kernel().supports(&problem, reason.data(), reason.size()), KV_KERNEL_OK);
  EXPECT_STREQ(reason.data(), "");
  problem.head_dim_qk = 12;
  problem.k_dtype = KV_KERNEL_DTYPE_BF16;
  EXPECT_EQ(cpu_kernel().supports(&problem, reason.data(), reason.size()), KV_KERNEL_UNSUPPORTED);
  EXPECT_STREQ(reason.data(),
               "k_dtype and v_dtype: only f32; head_dim: only multiples of 8 up to 256");
  std::array<char, 8> cut{};
  EXPECT_EQ(cpu_kernel().supports(&problem, cut.data(), cut.size()), KV_KERNEL_UNSUPPORTED);
  EXPECT_STREQ(cut.data(), "k_dtype");
  EXPECT_EQ(cpu_kernel().supports(&problem, nullptr, 0), KV_KERNEL_UNSUPPORTED);
}

TEST(Plugin, ABatchThatContradictsItselfIsRefusedBeforeItRuns) {
  const Shape shape;
  const kv_kernel_problem problem = problem_of(shape);
  kv_kernel_plan plan{};
  plan.struct_size = sizeof(plan);
  const auto prepare = [&](const TestBatch& batch) {
    return cpu_kernel().prepare(&problem, &batch.view, &plan);
  };
  EXPECT_EQ(prepare(TestBatch(shape, {{1, {0, 1}, 32, 4}})), KV_KERNEL_OK);
  EXPECT_EQ(prepare(TestBatch(shape, {{1, {0, 1}, 33, 4}})), KV_KERNEL_INVALID);  // no block
  TestBatch more_rows_than_tokens(shape, {{1, {0, 1}, 32, 4}});
  more_rows_than_tokens.kv_length[0] = 3;
  EXPECT_EQ(prepare(more_rows_than_tokens), KV_KERNEL_INVALID);
  TestBatch wrong_count(shape, {{1, {0, 1}, 32, 4}});
  wrong_count.view.row_count = 5;
  EXPECT_EQ(prepare(wrong_count), KV_KERNEL_INVALID);
}

TEST(Plugin, ASlotOutsideThePoolOrAStalePlanIsRefusedWhenRunning) {
  const Shape shape;
  const kv_kernel_problem problem = problem_of(shape);
  TestPool pool(shape, 2);
  const auto run = [&](const TestBatch& batch, const kv_kernel_plan& plan, std::uint32_t layer) {
    std::vector<float> output(std::size_t{batch.view.row_count} * shape.query_heads * shape.dim_vo);
    const kv_kernel_tensors tensors{sizeof(tensors), layer, batch.query.data(), output.data(),
                                    nullptr};
    return cpu_kernel().run(&problem, &plan, &pool.view(), &batch.view, &tensors, nullptr, nullptr);
  };
  const TestBatch good(shape, {{1, {0, 1}, 20, 2}});
  const TestBatch bad(shape, {{1, {0, 2}, 20, 2}});
  const TestBatch other(shape, {{1, {0, 1}, 20, 3}});
  kv_kernel_plan plan{};
  plan.struct_size = sizeof(plan);
  ASSERT_EQ(cpu_kernel().prepare(&problem, &good.view, &plan), KV_KERNEL_OK);
  pool.append(1, {0, 1}, 0, 20);
  EXPECT_EQ(run(good, plan, 1), KV_KERNEL_OK);
  EXPECT_EQ(run(bad, plan, 1), KV_KERNEL_INVALID);
  EXPECT_EQ(run(other, plan, 1), KV_KERNEL_INVALID);
  EXPECT_EQ(run(good, plan, 2), KV_KERNEL_INVALID);
}

}  // namespace
}  // namespace kv::test
