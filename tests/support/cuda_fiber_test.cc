// The fiber header does what CUDA does, and says what CUDA leaves undefined.
#include "tests/support/cuda_fiber.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device.cuh"

namespace kv::test {
namespace {

using fiber::LaneOrder;
using testing::HasSubstr;

struct Numbers {
  std::uint32_t* out;
  const std::uint32_t* in;
};

constexpr std::array<fiber::Options, 5> kOrders = {{{LaneOrder::ascending, 1},
                                                    {LaneOrder::descending, 1},
                                                    {LaneOrder::random, 1},
                                                    {LaneOrder::random, 2},
                                                    {LaneOrder::random, 3}}};

// Runs the kernel in every order; the result must be the same in each.
std::vector<std::uint32_t> run_in_every_order(void (*kernel)(Numbers), dim3 grid, dim3 block,
                                              const std::vector<std::uint32_t>& in,
                                              std::size_t out_count) {
  std::vector<std::uint32_t> first;
  for (const fiber::Options& options : kOrders) {
    const fiber::Session session(options);
    std::vector<std::uint32_t> out(out_count, 0);
    EXPECT_EQ(fiber::launch(kernel, grid, block, Numbers{out.data(), in.data()}), 0);
    EXPECT_EQ(session.fault(), "");
    if (first.empty()) first = out;
    EXPECT_EQ(out, first);
  }
  return first;
}

std::string fault_of(void (*kernel)(Numbers), dim3 block) {
  const fiber::Session session({LaneOrder::ascending, 1});
  std::vector<std::uint32_t> out(block.x, 0);
  EXPECT_EQ(fiber::launch(kernel, dim3{2, 1, 1}, block, Numbers{out.data(), out.data()}), 719);
  return session.fault();
}

__global__ void write_indices(Numbers n) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  n.out[block * threads + thread] = 1000 * block + thread;
}

TEST(CudaFiber, EveryThreadOfEveryBlockRunsOnceWithItsIndices) {
  const auto out = run_in_every_order(write_indices, {2, 3, 4}, {5, 2, 3}, {}, 720);
  for (unsigned i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i / 30 * 1000 + i % 30);
}

__global__ void reverse_through_shared(Numbers n) {
  KV_SHARED(std::uint32_t, held, 96);
  held[threadIdx.x] = n.in[blockIdx.x * 96 + threadIdx.x];
  __syncthreads();
  n.out[blockIdx.x * 96 + threadIdx.x] = held[95 - threadIdx.x];
}

TEST(CudaFiber, ABarrierMakesSharedMemoryVisibleInEveryLaneOrder) {
  std::vector<std::uint32_t> in(192);
  for (unsigned i = 0; i < 192; ++i) in[i] = i * i + 1;
  const auto out = run_in_every_order(reverse_through_shared, {2, 1, 1}, {96, 1, 1}, in, 192);
  for (unsigned i = 0; i < 192; ++i) EXPECT_EQ(out[i], in[i / 96 * 96 + 95 - i % 96]);
}

__global__ void shuffles(Numbers n) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned all = 0xFFFFFFFFU;
  std::uint32_t* out = n.out + std::size_t{threadIdx.x} * 8;
  out[0] = __shfl_xor_sync(all, lane * 3, 5);
  out[1] = __shfl_down_sync(all, lane * 3, 4);
  out[2] = __shfl_up_sync(all, lane * 3, 4);
  out[3] = __shfl_sync(all, lane * 3, 35);
  out[4] = __shfl_down_sync(all, lane * 3, 4, 8);
  out[5] = __shfl_sync(all, lane * 3, 2, 8);
  const double pi = __shfl_xor_sync(all, lane == 1 ? 3.25 : 0.5, 1);
  out[6] = lane == 0 ? static_cast<std::uint32_t>(pi * 4) : 13;
  out[7] = lane < 16 ? __ballot_sync(0xFFFFU, lane % 3 == 0 ? 1 : 0)
                     : static_cast<std::uint32_t>(__any_sync(0xFFFF0000U, lane == 31 ? 1 : 0)) +
                           2 * static_cast<std::uint32_t>(__all_sync(0xFFFF0000U, lane > 15));
}

TEST(CudaFiber, ShufflesAndVotesGiveWhatTheCudaManualSays) {
  const auto out = run_in_every_order(shuffles, {1, 1, 1}, {64, 1, 1}, {}, 512);
  for (unsigned t = 0; t < 64; ++t) {
    const unsigned lane = t % 32;
    const std::uint32_t* o = &out[std::size_t{t} * 8];
    EXPECT_EQ(o[0], (lane ^ 5U) * 3);
    EXPECT_EQ(o[1], (lane + 4 < 32 ? lane + 4 : lane) * 3);
    EXPECT_EQ(o[2], (lane >= 4 ? lane - 4 : lane) * 3);
    EXPECT_EQ(o[3], 3U * 3);
    EXPECT_EQ(o[4], (lane % 8 < 4 ? lane + 4 : lane) * 3);
    EXPECT_EQ(o[5], (lane / 8 * 8 + 2) * 3);
    EXPECT_EQ(o[6], 13U);
    EXPECT_EQ(o[7], lane < 16 ? 0x9249U : 3U);
  }
}

__global__ void exchange_within_warps(Numbers n) {
  KV_SHARED(std::uint32_t, held, 64);
  held[threadIdx.x] = n.in[threadIdx.x];
  __syncwarp();
  n.out[threadIdx.x] = held[threadIdx.x ^ 31U];
}

TEST(CudaFiber, SyncwarpOrdersTheLanesOfAWarp) {
  std::vector<std::uint32_t> in(64);
  for (unsigned i = 0; i < 64; ++i) in[i] = 7 * i + 1;
  const auto out = run_in_every_order(exchange_within_warps, {1, 1, 1}, {64, 1, 1}, in, 64);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], in[i ^ 31U]);
}

__global__ void count_all(Numbers n) {
  atomicAdd(n.out, 1U);
  atomicMax(n.out + 1, blockIdx.x * 100 + threadIdx.x);
}

TEST(CudaFiber, AtomicsCountEveryThreadOfEveryBlock) {
  const auto out = run_in_every_order(count_all, {7, 1, 1}, {40, 1, 1}, {}, 2);
  EXPECT_EQ(out[0], 280U);
  EXPECT_EQ(out[1], 639U);
}

__global__ void leave_early_then_meet(Numbers n) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  n.out[threadIdx.x] = 1;
}

TEST(CudaFiber, ThreadsThatExitedDoNotHoldUpABarrier) {
  const auto out = run_in_every_order(leave_early_then_meet, {1, 1, 1}, {64, 1, 1}, {}, 64);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(out[i], i < 40 ? 1U : 0U);
}

__global__ void read_before_writing(Numbers n) {
  KV_SHARED(std::uint32_t, held, 64);
  n.out[threadIdx.x] = held[threadIdx.x];
  held[threadIdx.x] = 5;
}

TEST(CudaFiber, SharedMemoryIsPoisonedForEveryBlock) {
  const auto out = run_in_every_order(read_before_writing, {3, 1, 1}, {64, 1, 1}, {}, 64);
  for (const std::uint32_t word : out) EXPECT_TRUE(std::isnan(std::bit_cast<float>(word)));
}

__global__ void name_an_exited_lane(Numbers n) {
  if (threadIdx.x == 9) return;
  n.out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFU, threadIdx.x, 1);
}

__global__ void name_a_lane_beyond_the_block(Numbers n) {
  n.out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFU, threadIdx.x, 1);
}

__global__ void leave_itself_out(Numbers n) {
  n.out[threadIdx.x] = __ballot_sync(threadIdx.x == 3 ? 0xFFFFFFF7U : 0xFFFFFFFFU, 1);
}

__global__ void wait_at_two_barriers(Numbers n) {
  if (threadIdx.x < 7) __syncthreads();
  if (threadIdx.x >= 7) __syncthreads();
  n.out[threadIdx.x] = 1;
}

__global__ void wait_for_each_other(Numbers n) {
  if (threadIdx.x < 16) {
    __syncthreads();
    n.out[threadIdx.x] = __ballot_sync(0xFFFFFFFFU, 1);
  } else {
    n.out[threadIdx.x] = __ballot_sync(0xFFFFFFFFU, 1);
    __syncthreads();
  }
}

TEST(CudaFiber, WhatCanNeverBeRightIsAFaultWithTheLineOfTheKernel) {
  EXPECT_THAT(fault_of(name_an_exited_lane, {32, 1, 1}),
              HasSubstr("block 0,0,0: lane 9 exited and is named in the mask of lane 0 at "
                        "cuda_fiber_test.cc:"));
  EXPECT_THAT(fault_of(name_a_lane_beyond_the_block, {20, 1, 1}),
              HasSubstr("lane 20 does not exist and is named in the mask of lane 0"));
  EXPECT_THAT(fault_of(leave_itself_out, {32, 1, 1}), HasSubstr("lane 3 is not in its own mask"));
  EXPECT_THAT(fault_of(wait_at_two_barriers, {32, 1, 1}),
              HasSubstr("threads wait for each other: lane 0 at the barrier"));
  EXPECT_THAT(fault_of(wait_for_each_other, {32, 1, 1}), HasSubstr("lane 16 at the collective"));
}

TEST(CudaFiber, ALaunchAfterAFaultRunsAsIfNothingHadBeen) {
  fault_of(wait_at_two_barriers, {96, 1, 1});
  const std::vector<std::uint32_t> in(192, 4);
  const auto out = run_in_every_order(reverse_through_shared, {2, 1, 1}, {96, 1, 1}, in, 192);
  EXPECT_EQ(out, in);
}

TEST(CudaFiber, WithoutASessionAFaultEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<std::uint32_t> out(32);
  EXPECT_DEATH(fiber::launch(name_an_exited_lane, dim3{1, 1, 1}, dim3{32, 1, 1},
                             Numbers{out.data(), out.data()}),
               "lane 9 exited");
}

TEST(CudaFiber, ShapesThatCudaRefusesAreRefused) {
  std::vector<std::uint32_t> out(8);
  const Numbers n{out.data(), out.data()};
  EXPECT_EQ(fiber::launch(count_all, {0, 1, 1}, {32, 1, 1}, n), 9);
  EXPECT_EQ(fiber::launch(count_all, {1, 1, 1}, {1025, 1, 1}, n), 9);
  EXPECT_EQ(fiber::launch(count_all, {1, 65536, 1}, {32, 1, 1}, n), 9);
  EXPECT_EQ(out[0], 0U);
}

struct Product {
  const std::uint16_t* a;  // 16 x 16, row after row
  const std::uint16_t* b;  // 16 x 8, row after row
  float* d;                // 16 x 8: C before, D after
};

std::uint32_t pair(std::uint16_t low, std::uint16_t high) {
  return low | static_cast<std::uint32_t>(high) << 16U;
}

template <fiber::Exchange kExchange>
void multiply(Product p) {
  const std::size_t row = threadIdx.x / 4;
  const std::size_t column = std::size_t{threadIdx.x % 4} * 2;
  fiber::Operand operand;
  operand.exchange = kExchange;
  for (std::size_t word = 0; word < 4; ++word) {
    const std::uint16_t* at = p.a + (row + word % 2 * 8) * 16 + column + word / 2 * 8;
    operand.in[word] = pair(at[0], at[1]);
  }
  for (std::size_t word = 0; word < 2; ++word) {
    const std::uint16_t* at = p.b + (column + word * 8) * 8 + row;
    operand.in[4 + word] = pair(at[0], at[8]);
  }
  for (std::size_t c = 0; c < 4; ++c) operand.sum[c] = p.d[(row + c / 2 * 8) * 8 + column + c % 2];
  fiber::warp_collective(0xFFFFFFFFU, false, operand, std::source_location::current());
  for (std::size_t c = 0; c < 4; ++c) p.d[(row + c / 2 * 8) * 8 + column + c % 2] = operand.sum[c];
}

TEST(CudaFiber, MmaIsTheProductOfItsMatrices) {
  std::vector<std::uint16_t> a_bf16(256), b_bf16(128), a_f16(256), b_f16(128);
  std::vector<double> want(128);
  std::vector<float> d(128), e(128);
  const auto a = [](unsigned r, unsigned k) {
    return static_cast<float>((r * 7 + k * 3) % 11) - 5;
  };
  const auto b = [](unsigned k, unsigned c) { return static_cast<float>((k * 5 + c) % 7) - 3; };
  for (unsigned i = 0; i < 256; ++i) {
    const float x = a(i / 16, i % 16);
    a_bf16[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U);
    a_f16[i] = fiber::float_to_half(x);
  }
  for (unsigned i = 0; i < 128; ++i) {
    const float x = b(i / 8, i % 8);
    b_bf16[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16U);
    b_f16[i] = fiber::float_to_half(x);
    want[i] = d[i] = e[i] = static_cast<float>(i);
    for (unsigned k = 0; k < 16; ++k) want[i] += double{a(i / 8, k)} * double{b(k, i % 8)};
  }
  const Product bf16{a_bf16.data(), b_bf16.data(), d.data()};
  const Product f16{a_f16.data(), b_f16.data(), e.data()};
  const dim3 warp{32, 1, 1};
  ASSERT_EQ(fiber::launch(multiply<fiber::Exchange::mma_bf16>, dim3{}, warp, bf16), 0);
  ASSERT_EQ(fiber::launch(multiply<fiber::Exchange::mma_f16>, dim3{}, warp, f16), 0);
  for (unsigned i = 0; i < 128; ++i) {
    EXPECT_EQ(d[i], want[i]);
    EXPECT_EQ(e[i], want[i]);
  }
}

// The value of a half from its three fields, as the standard writes it.
double half_value(unsigned bits) {
  const double sign = bits >= 0x8000 ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits >> 10U & 31U);
  const double fraction = (bits & 1023U) / 1024.0;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15));
}

TEST(CudaFiber, EveryHalfGoesToFloatAndBackAndRoundsToTheNearestEven) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = fiber::half_to_float(half);
    if ((bits & 0x7C00U) == 0x7C00U) {
      EXPECT_EQ(std::isnan(value), (bits & 1023U) != 0);
      EXPECT_EQ(std::isinf(value), (bits & 1023U) == 0);
      continue;
    }
    ASSERT_EQ(double{value}, half_value(bits)) << bits;
    ASSERT_EQ(fiber::float_to_half(value), half) << bits;
    if ((bits & 0x7FFFU) >= 0x7BFFU) continue;  // its neighbour is no number
    const double next = half_value(bits + 1);
    const auto middle = static_cast<float>((double{value} + next) / 2);  // exact in float
    const std::uint16_t even = bits % 2 == 0 ? half : static_cast<std::uint16_t>(bits + 1);
    ASSERT_EQ(fiber::float_to_half(middle), even) << bits;
    const float above = std::nextafterf(middle, static_cast<float>(next));
    ASSERT_EQ(fiber::float_to_half(above), bits + 1) << bits;
    const float below = std::nextafterf(middle, value);
    ASSERT_EQ(fiber::float_to_half(below), half) << bits;
  }
  EXPECT_EQ(fiber::float_to_half(65519.0F), 0x7BFFU);
  EXPECT_EQ(fiber::float_to_half(65520.0F), 0x7C00U);
  EXPECT_EQ(fiber::float_to_half(-1e30F), 0xFC00U);
  EXPECT_EQ(fiber::float_to_half(std::numeric_limits<float>::quiet_NaN()) & 0x7C00U, 0x7C00U);
}

}  // namespace
}  // namespace kv::test
