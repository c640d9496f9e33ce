// Matrix products: right, and the same for a row whatever rows come with it.
#include "plugins/runner/linear.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "plugins/runner/row_math.h"

namespace kv::test {
namespace {

using runner::GemmBackend;
using runner::MatrixShape;

std::vector<float> random_floats(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(prng.below(2'000'001)) / 1e6F - 1.0F;
  return values;
}

TEST(Linear, BothBackendsAgreeWithADoubleProductForEveryRowCount) {
  constexpr MatrixShape kShape{172, 64};
  const auto weights = random_floats(1, 172UL * 64);
  for (const GemmBackend backend : {GemmBackend::openblas_tiles, GemmBackend::fixed_order}) {
    runner::Linear linear(backend);
    for (std::uint32_t rows = 1; rows <= 19; ++rows) {
      const auto x = random_floats(rows, rows * 172UL);
      std::vector<float> y(rows * 64UL);
      linear.apply(x, rows, weights.data(), kShape, y);
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t output = 0; output < 64; ++output) {
          double sum = 0;
          for (std::size_t i = 0; i < 172; ++i) {
            sum += double{x[row * 172 + i]} * double{weights[output * 172 + i]};
          }
          ASSERT_NEAR(y[row * 64 + output], sum, 2e-5);
        }
      }
    }
  }
}

TEST(Linear, ARowHasTheSameBitsAloneAndInEveryBatch) {
  constexpr MatrixShape kShape{64, 172};
  const auto weights = random_floats(2, 64UL * 172);
  const auto x = random_floats(3, 40UL * 64);
  const runner::ModelConfig config{.dim = 64,
                                   .hidden_dim = 172,
                                   .layer_count = 1,
                                   .head_count = 8,
                                   .kv_head_count = 4,
                                   .vocab_size = 512,
                                   .context_length = 512};
  for (const GemmBackend backend :
       {runner::choose_gemm_backend(config), GemmBackend::fixed_order}) {
    runner::Linear linear(backend);
    std::vector<float> whole(40UL * 172);
    linear.apply(x, 40, weights.data(), kShape, whole);
    for (std::uint32_t begin = 0; begin < 40; ++begin) {
      for (const std::uint32_t count : {1U, 3U, 8U, 13U}) {
        if (begin + count > 40) continue;
        std::vector<float> part(count * 172UL);
        linear.apply(std::span(x).subspan(begin * 64UL), count, weights.data(), kShape, part);
        ASSERT_EQ(std::memcmp(part.data(), whole.data() + begin * 172UL, part.size() * 4), 0);
      }
    }
  }
}

TEST(Linear, TheStartupTestNoticesAProductThatDependsOnPlaceOrNeighbours) {
  const MatrixShape shape{64, 32};
  EXPECT_TRUE(runner::rows_are_invariant(runner::fixed_order_tile, shape));
  // The last row is added up in another order.
  const auto by_place = [](const float* x, const float* w, const MatrixShape& s, float* y) {
    runner::fixed_order_tile(x, w, s, y);
    for (std::size_t output = 0; output < s.outputs; ++output) {
      float sum = 0;
      const float* last = x + std::size_t{7} * s.inputs;
      for (std::size_t i = 0; i < s.inputs; ++i) sum += last[i] * w[output * s.inputs + i];
      y[std::size_t{7} * s.outputs + output] = sum;
    }
  };
  EXPECT_FALSE(runner::rows_are_invariant(by_place, shape));
  // A row is touched by the one after it, in the last bit only.
  const auto by_neighbour = [](const float* x, const float* w, const MatrixShape& s, float* y) {
    runner::fixed_order_tile(x, w, s, y);
    for (std::size_t row = 0; row + 1 < runner::kTileRows; ++row) {
      if (x[(row + 1) * s.inputs] != 0) {
        y[row * s.outputs] = std::nextafter(y[row * s.outputs], 1e30F);
      }
    }
  };
  EXPECT_FALSE(runner::rows_are_invariant(by_neighbour, shape));
}

TEST(RowMath, NormSwigluAndRotationEqualTheirFormulas) {
  const auto row = random_floats(5, 67);
  const auto weight = random_floats(6, 67);
  double squares = 0;
  for (const float v : row) squares += double{v} * double{v};
  std::vector<float> got(67);
  runner::rms_norm(row, weight.data(), 1e-5F, got.data());
  for (std::size_t i = 0; i < 67; ++i) {
    EXPECT_NEAR(got[i], weight[i] * row[i] / std::sqrt(squares / 67 + 1e-5), 1e-6);
  }
  std::vector<float> gate = row;
  runner::swiglu(gate, weight.data());
  for (std::size_t i = 0; i < 67; ++i) {
    EXPECT_NEAR(gate[i], row[i] / (1 + std::exp(-double{row[i]})) * weight[i], 1e-6);
  }
  const runner::Rope rope(8, 600, 10000.0F);
  std::vector<float> heads = random_floats(7, 16);
  const std::vector<float> before = heads;
  rope.apply(heads, 555);
  for (std::size_t i = 0; i < 8; ++i) {
    const double angle = 555 / std::pow(10000.0, static_cast<double>(2 * (i % 4)) / 8);
    const double x = before[2 * i];
    const double y = before[2 * i + 1];
    EXPECT_NEAR(heads[2 * i], x * std::cos(angle) - y * std::sin(angle), 1e-4);
    EXPECT_NEAR(heads[2 * i + 1], x * std::sin(angle) + y * std::cos(angle), 1e-4);
  }
  EXPECT_EQ(runner::argmax(std::vector<float>{1, 3, 3, 2}), 1U);
}

}  // namespace
}  // namespace kv::test
