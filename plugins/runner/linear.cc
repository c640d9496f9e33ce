#include "plugins/runner/linear.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include <cblas.h>

#include "allocator/base/check.h"
#include "allocator/base/prng.h"
#include "plugins/runner/row_math.h"

namespace kv::runner {
namespace {

constexpr std::size_t kAlignment = 64;

// Not rounded values alone: wide exponents show a changed order of addition soon.
void fill(Prng& prng, std::span<float> values) {
  for (float& value : values) {
    const auto mantissa = static_cast<float>(prng.below(1U << 24U)) - static_cast<float>(1U << 23U);
    value = mantissa / static_cast<float>(1U << (17 + prng.below(8)));
  }
}

bool equal_rows(const float* a, const float* b, std::uint32_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

}  // namespace

std::string_view gemm_backend_name(GemmBackend backend) {
  return backend == GemmBackend::openblas_tiles ? "openblas-tiles" : "fixed-order";
}

void openblas_tile(const float* x, const float* weights, const MatrixShape& shape, float* y) {
  const auto inputs = static_cast<blasint>(shape.inputs);
  const auto outputs = static_cast<blasint>(shape.outputs);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(kTileRows), outputs,
              inputs, 1.0F, x, inputs, weights, inputs, 0.0F, y, outputs);
}

void fixed_order_tile(const float* x, const float* weights, const MatrixShape& shape, float* y) {
  for (std::uint32_t output = 0; output < shape.outputs; ++output) {
    const float* weight_row = weights + std::size_t{output} * shape.inputs;
    for (std::uint32_t row = 0; row < kTileRows; ++row) {
      y[std::size_t{row} * shape.outputs + output] =
          dot(x + std::size_t{row} * shape.inputs, weight_row, shape.inputs);
    }
  }
}

bool rows_are_invariant(const TileFunction& tile, const MatrixShape& shape) {
  Prng prng(shape.inputs * 65'537ULL + shape.outputs);
  std::vector<float> weights(std::size_t{shape.inputs} * shape.outputs);
  std::vector<float> row(shape.inputs);
  std::vector<float> x(std::size_t{kTileRows} * shape.inputs, 0.0F);
  std::vector<float> y(std::size_t{kTileRows} * shape.outputs);
  fill(prng, weights);
  fill(prng, row);
  std::copy(row.begin(), row.end(), x.begin());
  tile(x.data(), weights.data(), shape, y.data());
  const std::vector<float> alone(y.begin(), y.begin() + shape.outputs);
  for (std::uint32_t place = 0; place < kTileRows; ++place) {
    for (const bool neighbours : {false, true}) {
      std::fill(x.begin(), x.end(), 0.0F);
      if (neighbours) fill(prng, x);
      std::copy(row.begin(), row.end(), x.begin() + std::ptrdiff_t{place} * shape.inputs);
      tile(x.data(), weights.data(), shape, y.data());
      if (!equal_rows(y.data() + std::size_t{place} * shape.outputs, alone.data(), shape.outputs)) {
        return false;
      }
    }
  }
  return true;
}

std::vector<MatrixShape> matrix_shapes(const ModelConfig& config) {
  return {{config.dim, config.dim},
          {config.dim, config.kv_dim()},
          {config.dim, config.hidden_dim},
          {config.hidden_dim, config.dim},
          {config.dim, config.vocab_size}};
}

GemmBackend choose_gemm_backend(const ModelConfig& config) {
  openblas_set_num_threads(1);
  const auto shapes = matrix_shapes(config);
  const bool invariant = std::ranges::all_of(
      shapes, [](const MatrixShape& shape) { return rows_are_invariant(openblas_tile, shape); });
  return invariant ? GemmBackend::openblas_tiles : GemmBackend::fixed_order;
}

void Linear::Free::operator()(void* memory) const { std::free(memory); }

Linear::Linear(GemmBackend backend)
    : tile_(backend == GemmBackend::openblas_tiles ? openblas_tile : fixed_order_tile) {
  openblas_set_num_threads(1);  // more threads would cut a tile in another way
}

void Linear::reserve(Buffer& buffer, std::size_t& floats, std::size_t wanted) {
  if (wanted <= floats) return;
  const std::size_t bytes = (wanted * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  buffer.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
  KV_CHECK(buffer != nullptr);
  floats = wanted;
}

void Linear::apply(std::span<const float> x, std::uint32_t row_count, const float* weights,
                   const MatrixShape& shape, std::span<float> y) {
  KV_CHECK(x.size() >= std::size_t{row_count} * shape.inputs);
  KV_CHECK(y.size() >= std::size_t{row_count} * shape.outputs);
  reserve(x_tile_, x_floats_, std::size_t{kTileRows} * shape.inputs);
  reserve(y_tile_, y_floats_, std::size_t{kTileRows} * shape.outputs);
  for (std::uint32_t begin = 0; begin < row_count; begin += kTileRows) {
    const std::size_t rows = std::min(kTileRows, row_count - begin);
    const float* from = x.data() + std::size_t{begin} * shape.inputs;
    float* padding = std::copy_n(from, rows * shape.inputs, x_tile_.get());
    std::fill(padding, x_tile_.get() + std::size_t{kTileRows} * shape.inputs, 0.0F);
    tile_(x_tile_.get(), weights, shape, y_tile_.get());
    std::copy_n(y_tile_.get(), rows * shape.outputs, y.data() + std::size_t{begin} * shape.outputs);
  }
}

}  // namespace kv::runner
