// Linear: rows times a weight matrix, so that a row's result is the same in every bit whatever rows
// come with it. OpenBLAS by itself breaks this (it picks kernels by the number of rows), so it is
// called on tiles of exactly kTileRows rows, one thread, padded with zeros, from buffers of fixed
// alignment. Whether that is enough on this processor is tested at start; where not, our own loops
// run. Owner: one Decoder; has scratch. Threads: one caller at a time. Cost: O(rows x inputs x
// outputs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "plugins/runner/model.h"

namespace kv::runner {

inline constexpr std::uint32_t kTileRows = 8;

enum class GemmBackend : std::uint8_t { openblas_tiles, fixed_order };
[[nodiscard]] std::string_view gemm_backend_name(GemmBackend backend);

struct MatrixShape {
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
};

// y[row][output] = sum of x[row][input] * weights[output][input], for kTileRows rows.
using TileFunction =
    std::function<void(const float* x, const float* weights, const MatrixShape& shape, float* y)>;
void openblas_tile(const float* x, const float* weights, const MatrixShape& shape, float* y);
// The reference, and the fallback: each element alone, in the order of row_math's dot.
void fixed_order_tile(const float* x, const float* weights, const MatrixShape& shape, float* y);

// True when a row gave equal bits at every place of a tile and beside every kind of neighbour.
[[nodiscard]] bool rows_are_invariant(const TileFunction& tile, const MatrixShape& shape);

// The matrices of a model, each shape once.
[[nodiscard]] std::vector<MatrixShape> matrix_shapes(const ModelConfig& config);

// OpenBLAS when every shape of the model passes the test.
[[nodiscard]] GemmBackend choose_gemm_backend(const ModelConfig& config);

class Linear {
 public:
  explicit Linear(GemmBackend backend);
  // x is [row_count][inputs], y becomes [row_count][outputs].
  void apply(std::span<const float> x, std::uint32_t row_count, const float* weights,
             const MatrixShape& shape, std::span<float> y);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  using Buffer = std::unique_ptr<float, Free>;
  static void reserve(Buffer& buffer, std::size_t& floats, std::size_t wanted);

  TileFunction tile_;
  Buffer x_tile_, y_tile_;
  std::size_t x_floats_ = 0, y_floats_ = 0;
};

}  // namespace kv::runner
