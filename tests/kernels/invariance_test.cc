// A query row's result depends on its own tokens only, in every bit of output and LSE: not on the
// slots, the strides, the batch around it or the size of the chunk that it came in.
#include <gtest/gtest.h>

#include "tests/kernels/paged_case.h"

namespace kv::test {
namespace {

constexpr std::uint32_t kLength = 530;  // three splits, the last one short
constexpr std::uint32_t kRows = 40;

Attended one_sequence(const Shape& shape, std::uint64_t slot_seed, Order order) {
  const std::uint32_t blocks = kLength / shape.block_tokens + 8;
  TestPool pool(shape, blocks, order);
  const TestSequence sequence{3, shuffled_slots(slot_seed, blocks), kLength, kRows};
  pool.append(3, sequence.table, 0, kLength);
  return attend(shape, pool, TestBatch(shape, {sequence}), 1);
}

TEST(Invariance, OtherSlotsGiveTheSameBits) {
  const Attended want = one_sequence({}, 1, Order::head_token);
  for (std::uint64_t seed = 2; seed < 6; ++seed) {
    const Attended got = one_sequence({}, seed, Order::head_token);
    EXPECT_TRUE(same_bits(got.output, want.output));
    EXPECT_TRUE(same_bits(got.lse, want.lse));
  }
}

TEST(Invariance, OtherStridesAndBlockSizesGiveTheSameBits) {
  const Attended want = one_sequence({}, 1, Order::head_token);
  for (const std::uint32_t block : {1U, 4U, 16U, 64U}) {
    for (const Order order : {Order::head_token, Order::token_head}) {
      const Attended got = one_sequence({.block_tokens = block}, block, order);
      EXPECT_TRUE(same_bits(got.output, want.output)) << block;
      EXPECT_TRUE(same_bits(got.lse, want.lse)) << block;
    }
  }
}

TEST(Invariance, TheRestOfTheBatchDoesNotMatter) {
  const Shape shape;
  const Attended want = one_sequence(shape, 1, Order::head_token);
  TestPool pool(shape, 200);
  const std::vector<std::uint32_t> slots = shuffled_slots(8, 200);
  const TestSequence before{11, {slots.begin(), slots.begin() + 40}, 640, 7};
  const TestSequence middle{3, {slots.begin() + 40, slots.begin() + 80}, kLength, kRows};
  const TestSequence after{12, {slots.begin() + 80, slots.begin() + 82}, 20, 1};
  for (const auto& s : {before, middle, after}) pool.append(s.seed, s.table, 0, s.length);
  const Attended got = attend(shape, pool, TestBatch(shape, {before, middle, after}), 1);
  const std::ptrdiff_t row = std::ptrdiff_t{shape.query_heads} * shape.dim_vo;
  const auto begin = got.output.begin() + 7 * row;
  EXPECT_TRUE(same_bits({begin, begin + kRows * row}, want.output));
}

TEST(Invariance, EveryChunkingEqualsTokenByTokenDecode) {
  const Shape shape;
  const std::vector<std::uint32_t> slots = shuffled_slots(4, 40);
  std::vector<float> decoded;
  for (const std::uint32_t chunk : {1U, 7U, 16U, 64U, kLength}) {
    TestPool pool(shape, 40);
    std::vector<float> output;
    for (std::uint32_t begin = 0; begin < kLength; begin += chunk) {
      const std::uint32_t end = std::min(kLength, begin + chunk);
      pool.append(3, slots, begin, end);  // keys first, then the queries of the same tokens
      const Attended part =
          attend(shape, pool, TestBatch(shape, {{3, slots, end, end - begin}}), 1);
      output.insert(output.end(), part.output.begin(), part.output.end());
    }
    if (chunk == 1) decoded = output;
    EXPECT_TRUE(same_bits(output, decoded)) << "chunk " << chunk;
  }
}

TEST(Invariance, RowsOnTheHostsThreadsInAnyOrderGiveTheSameBits) {
  std::uint32_t tasks = 0;
  const auto backwards = [](void* context, std::uint32_t count, kv_kernel_task task,
                            void* argument) {
    for (std::uint32_t i = count; i > 0; --i) task(argument, i - 1);
    *static_cast<std::uint32_t*>(context) += count;
  };
  const Attended want = one_sequence({}, 1, Order::head_token);
  const kv_kernel_host host{
      sizeof(kv_kernel_host), KV_KERNEL_ABI, &tasks, +backwards, nullptr, nullptr, nullptr};
  static const kv_kernel_host serial{
      sizeof(kv_kernel_host), KV_KERNEL_ABI, nullptr, nullptr, nullptr, nullptr, nullptr};
  void* module = dlopen(KV_BINARY_DIR "/lib/libcachesvc_kernels_cpu.so", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr);
  const auto entry =
      reinterpret_cast<kv_kernel_entry_function>(dlsym(module, KV_KERNEL_ENTRY_NAME));
  ASSERT_NE(entry(&host), nullptr);
  const Attended got = one_sequence({}, 1, Order::head_token);
  ASSERT_NE(entry(&serial), nullptr);
  EXPECT_TRUE(same_bits(got.output, want.output));
  dlclose(module);
}

}  // namespace
}  // namespace kv::test
