// Addresses of a page view, and the order of addition.
#include <array>
#include <cstdint>

#include <gtest/gtest.h>

#include "kernels/api/page_view.h"
#include "kernels/cpu/lanes.h"
#include "tests/kernels/paged_case.h"

namespace kv::test {
namespace {

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

TEST(PageView, AddressesFollowTheStridesFromOneBase) {
  std::array<std::byte, 1> memory{};
  kv_kernel_pool pool{};
  pool.k.base = memory.data();
  pool.k.block_stride = 1'000'000;
  pool.k.layer_stride = 10'000;
  pool.k.head_stride = 100;
  pool.k.token_stride = 8;
  pool.v = pool.k;
  pool.v.token_stride = 4;
  const kernels::PageView view(pool);
  const kernels::PageIndex at{.slot = 3, .layer = 2, .head = 5, .token = 7};
  EXPECT_EQ(address(view.k(at)) - address(memory.data()), 3'020'556U);
  EXPECT_EQ(address(view.v(at)) - address(memory.data()), 3'020'528U);
}

TEST(PageView, LayersMayHaveBasesOfTheirOwnAndOffsetsGoBeyond32Bits) {
  std::array<std::byte, 2> memory{};
  const std::array<void*, 2> layers = {memory.data(), memory.data() + 1};
  kv_kernel_pool pool{};
  pool.k.layer_bases = layers.data();
  pool.k.block_stride = 4'000'000'000;
  pool.k.layer_stride = 77;  // not used: the bases say where layers are
  const kernels::PageView view(pool);
  const kernels::PageIndex at{.slot = 2, .layer = 1, .head = 0, .token = 0};
  EXPECT_EQ(address(view.k(at)) - address(memory.data()), 8'000'000'001U);
}

TEST(Lanes, TheDotProductHasOneWrittenOrder) {
  const auto a = uniforms(1, 24);
  const auto b = uniforms(2, 24);
  std::array<float, 8> lanes{};
  for (std::size_t i = 0; i < 24; ++i) {
    const volatile float product = a[i] * b[i];  // rounded before it is added
    lanes[i % 8] = lanes[i % 8] + product;
  }
  const float low = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6]);
  const float high = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7]);
  EXPECT_EQ(kernels::dot(a.data(), b.data(), 24), low + high);
}

TEST(Lanes, AddScaledAddsTheRoundedProductToEachElement) {
  auto target = uniforms(3, 16);
  const auto before = target;
  const auto source = uniforms(4, 16);
  kernels::add_scaled(target.data(), 0.3F, source.data(), 16);
  for (std::size_t i = 0; i < 16; ++i) {
    const volatile float product = 0.3F * source[i];
    EXPECT_EQ(target[i], before[i] + product);
  }
}

}  // namespace
}  // namespace kv::test
