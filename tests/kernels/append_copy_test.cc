// Where append_kv and copy_blocks put their bytes, and what they refuse.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/paged_case.h"

namespace kv::test {
namespace {

constexpr Shape kShape{
    .query_heads = 2, .kv_heads = 2, .dim_qk = 8, .dim_vo = 16, .block_tokens = 4, .layers = 3};
// Floats of one block: K then V, head, token, channel; the next layer; the next slot.
constexpr std::size_t kLayerFloats = 2UL * 4 * 8 + 2UL * 4 * 16;
constexpr std::size_t kBlockFloats = 3 * kLayerFloats;

TEST(AppendKv, PutsEachHeadOfATokenAtItsPlaceAndTouchesNothingElse) {
  TestPool pool(kShape, 5);
  const kv_kernel_problem problem = problem_of(kShape);
  std::vector<float> k(16);
  std::vector<float> v(32);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = 100.0F + static_cast<float>(i);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = 200.0F + static_cast<float>(i);
  const std::int64_t position = 3 * 4 + 2;  // slot 3, token 2
  const kv_kernel_append append{sizeof(append), 1, 1, k.data(), v.data(), &position};
  ASSERT_EQ(cpu_kernel().append_kv(&problem, &pool.view(), &append, nullptr), KV_KERNEL_OK);
  std::size_t written = 0;
  for (const float value : pool.floats()) written += std::isnan(value) ? 0 : 1;
  EXPECT_EQ(written, k.size() + v.size());
  const std::size_t layer = 3 * kBlockFloats + 1 * kLayerFloats;
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(pool.floats()[layer + head * 32 + 16 + i], k[head * 8 + i]);
    }
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(pool.floats()[layer + 64 + head * 64 + 32 + i], v[head * 16 + i]);
    }
  }
}

TEST(AppendKv, SkipsPaddingRowsAndRefusesPlacesOutsideThePool) {
  TestPool pool(kShape, 2);
  const std::vector<float> before = pool.floats();
  const kv_kernel_problem problem = problem_of(kShape);
  const std::vector<float> k(32, 1.0F);
  const std::vector<float> v(64, 1.0F);
  std::vector<std::int64_t> positions{-1, -7};
  kv_kernel_append append{sizeof(append), 0, 2, k.data(), v.data(), positions.data()};
  EXPECT_EQ(cpu_kernel().append_kv(&problem, &pool.view(), &append, nullptr), KV_KERNEL_OK);
  EXPECT_TRUE(same_bits(pool.floats(), before));
  positions = {0, 8};  // the second one is one past the end: the first must not be written
  EXPECT_EQ(cpu_kernel().append_kv(&problem, &pool.view(), &append, nullptr), KV_KERNEL_INVALID);
  EXPECT_TRUE(same_bits(pool.floats(), before));
  positions = {0, 1};
  append.layer = 3;
  EXPECT_EQ(cpu_kernel().append_kv(&problem, &pool.view(), &append, nullptr), KV_KERNEL_INVALID);
  EXPECT_TRUE(same_bits(pool.floats(), before));
}

TEST(CopyBlocks, CopiesTheFilledTokensOfEveryLayerAndHead) {
  for (const Order order : {Order::head_token, Order::token_head}) {
    TestPool pool(kShape, 3, order);
    pool.append(4, {0}, 0, 4);
    TestPool want(kShape, 3, order);
    want.append(4, {0}, 0, 4);
    want.append(4, {2}, 0, 3);  // the same content, three tokens, in slot 2
    const std::uint32_t from = 0;
    const std::uint32_t to = 2;
    const std::uint32_t tokens = 3;
    const kv_kernel_problem problem = problem_of(kShape);
    const kv_kernel_copy copy{sizeof(copy), 1, &from, &to, &tokens};
    ASSERT_EQ(cpu_kernel().copy_blocks(&problem, &pool.view(), &copy, nullptr), KV_KERNEL_OK);
    EXPECT_TRUE(same_bits(pool.floats(), want.floats()));
  }
}

TEST(CopyBlocks, CopiesWholeBlocksAndRefusesSlotsOutsideThePool) {
  TestPool pool(kShape, 3);
  pool.append(4, {0}, 0, 4);
  const std::uint32_t from = 0;
  std::uint32_t to = 1;
  const kv_kernel_problem problem = problem_of(kShape);
  const kv_kernel_copy copy{sizeof(copy), 1, &from, &to, nullptr};
  ASSERT_EQ(cpu_kernel().copy_blocks(&problem, &pool.view(), &copy, nullptr), KV_KERNEL_OK);
  const auto& floats = pool.floats();
  EXPECT_TRUE(same_bits({floats.begin(), floats.begin() + kBlockFloats},
                        {floats.begin() + kBlockFloats, floats.begin() + 2 * kBlockFloats}));
  to = 3;
  EXPECT_EQ(cpu_kernel().copy_blocks(&problem, &pool.view(), &copy, nullptr), KV_KERNEL_INVALID);
}

}  // namespace
}  // namespace kv::test
