// Attention against a naive double-precision oracle, and against values known in closed form.
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/operations.h"
#include "tests/kernels/paged_case.h"

namespace kv::test {
namespace {

void expect_near_reference(const Shape& shape, std::uint32_t length, std::uint32_t rows) {
  SCOPED_TRACE(testing::Message() << "dim " << shape.dim_qk << "/" << shape.dim_vo << " heads "
                                  << shape.query_heads << "/" << shape.kv_heads << " block "
                                  << shape.block_tokens << " length " << length);
  const std::uint32_t blocks = (length + shape.block_tokens - 1) / shape.block_tokens;
  TestPool pool(shape, blocks + 3);
  const TestSequence sequence{5, shuffled_slots(length, blocks + 3), length, rows};
  pool.append(sequence.seed, sequence.table, 0, length);
  const TestBatch batch(shape, {sequence});
  const Attended got = attend(shape, pool, batch, shape.layers - 1);
  std::vector<double> output(got.output.size());
  std::vector<double> lse(got.lse.size());
  kernels::attention_reference(problem_of(shape), pool.view(), batch.view, shape.layers - 1,
                               batch.query.data(), output.data(), lse.data());
  for (std::size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(got.output[i], output[i], 2e-6);
  for (std::size_t i = 0; i < lse.size(); ++i) ASSERT_NEAR(got.lse[i], lse[i], 4e-6);
}

TEST(Attention, AgreesWithTheDoubleReferenceForEveryHeadDimension) {
  for (const std::uint32_t dim : {8U, 16U, 24U, 32U, 64U, 80U, 96U, 128U, 256U}) {
    for (const std::uint32_t block : {1U, 4U, 16U}) {
      expect_near_reference({.dim_qk = dim, .dim_vo = dim, .block_tokens = block}, 37, 5);
    }
  }
  expect_near_reference({.dim_qk = 64, .dim_vo = 32}, 37, 5);
}

TEST(Attention, AgreesWithTheDoubleReferenceForEveryGroupRatio) {
  for (std::uint32_t ratio = 1; ratio <= 8; ++ratio) {
    for (const std::uint32_t kv_heads : {1U, 3U}) {
      expect_near_reference({.query_heads = ratio * kv_heads, .kv_heads = kv_heads}, 37, 5);
    }
  }
}

TEST(Attention, AgreesWithTheDoubleReferenceAroundBlockAndSplitEdges) {
  for (const std::uint32_t block : {1U, 4U, 16U, 64U}) {
    for (const std::uint32_t length :
         {1U, 2U, 15U, 16U, 17U, 255U, 256U, 257U, 511U, 512U, 513U, 770U}) {
      expect_near_reference({.block_tokens = block, .layers = 1}, length, std::min(length, 3U));
    }
  }
}

TEST(Attention, EqualKeysAverageTheValuesAndCountTheTokens) {
  const Shape shape{.query_heads = 1, .kv_heads = 1, .dim_qk = 8, .dim_vo = 8, .layers = 1};
  constexpr std::uint32_t kLength = 600;  // three splits
  TestPool pool(shape, 38);
  kv_kernel_problem problem = problem_of(shape);
  std::vector<float> k(std::size_t{kLength} * 8, 0.5F);
  std::vector<float> v(std::size_t{kLength} * 8);
  std::vector<std::int64_t> positions(kLength);
  for (std::uint32_t t = 0; t < kLength; ++t) {
    positions[t] = t;
    for (std::uint32_t i = 0; i < 8; ++i) v[t * 8 + i] = static_cast<float>(t + i);
  }
  const kv_kernel_append append{sizeof(append), 0, kLength, k.data(), v.data(), positions.data()};
  ASSERT_EQ(cpu_kernel().append_kv(&problem, &pool.view(), &append, nullptr), KV_KERNEL_OK);
  std::vector<std::uint32_t> table(38);
  std::iota(table.begin(), table.end(), 0U);
  TestBatch batch(shape, {{1, table, kLength, 1}});
  std::fill(batch.query.begin(), batch.query.end(), 0.25F);
  const Attended got = attend(shape, pool, batch, 0);
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(got.output[i], (kLength - 1) / 2.0 + i, 1e-3);  // the mean of t + i
  }
  // Every score is 8 * 0.5 * 0.25 / sqrt(8); the log-sum-exp is natural.
  EXPECT_NEAR(got.lse[0], 1.0 / std::sqrt(8.0) + std::log(600.0), 1e-5);
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  const Shape shape{.layers = 1};
  TestPool pool(shape, 20);
  const TestSequence sequence{9, shuffled_slots(9, 20), 300, 2};
  pool.append(9, sequence.table, 0, 300);
  TestBatch batch(shape, {sequence});
  for (float& q : batch.query) q *= 1000.0F;
  const Attended got = attend(shape, pool, batch, 0);
  std::vector<double> output(got.output.size());
  std::vector<double> lse(got.lse.size());
  kernels::attention_reference(problem_of(shape), pool.view(), batch.view, 0, batch.query.data(),
                               output.data(), lse.data());
  for (std::size_t i = 0; i < output.size(); ++i) ASSERT_NEAR(got.output[i], output[i], 2e-3);
}

}  // namespace
}  // namespace kv::test
