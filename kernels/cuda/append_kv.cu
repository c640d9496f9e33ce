// Writes new keys and values into their places in the pool: 16 bytes of the pool a thread.
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/dtype.cuh"

namespace kv::cuda {
namespace {

constexpr unsigned kAppendThreads = 256;

struct AppendArguments {
  Plane plane;
  const char* rows;  // [row][head][head_dim] of row_dtype
  const std::int64_t* row_position;
  std::int64_t position_end;
  std::uint32_t row_count, heads, vectors, block_shift;  // vectors: of 16 bytes in the pool
  std::uint32_t row_dtype, pool_dtype;
};

__device__ uint4 convert(const float* from, std::uint32_t dtype) {
  std::uint32_t words[4];
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t low =
        dtype == KV_KERNEL_DTYPE_F16 ? F16::encode(from[2 * i]) : BF16::encode(from[2 * i]);
    const std::uint32_t high =
        dtype == KV_KERNEL_DTYPE_F16 ? F16::encode(from[2 * i + 1]) : BF16::encode(from[2 * i + 1]);
    words[i] = low | high << 16U;
  }
  return uint4{words[0], words[1], words[2], words[3]};
}

__global__ void append_rows(AppendArguments a) {
  const std::uint64_t index = std::uint64_t{blockIdx.x} * kAppendThreads + threadIdx.x;
  const std::uint64_t per_row = std::uint64_t{a.heads} * a.vectors;
  if (index >= a.row_count * per_row) return;
  const auto row = static_cast<std::uint32_t>(index / per_row);
  const auto in_row = static_cast<std::uint32_t>(index % per_row);
  const std::int64_t position = a.row_position[row];
  if (position < 0 || position >= a.position_end) return;
  const std::int64_t slot = position >> a.block_shift;
  const std::int64_t token = position & ((std::int64_t{1} << a.block_shift) - 1);
  char* to = a.plane.base + slot * a.plane.block_stride +
             (in_row / a.vectors) * a.plane.head_stride + token * a.plane.token_stride;
  uint4 value;
  if (a.row_dtype == a.pool_dtype) {
    value = load_once(reinterpret_cast<const uint4*>(a.rows) + index);
  } else {
    const auto* from = reinterpret_cast<const uint4*>(a.rows) + 2 * index;
    float channels[8];
    F32::decode(load_once(from), channels);
    F32::decode(load_once(from + 1), channels + 4);
    value = convert(channels, a.pool_dtype);
  }
  reinterpret_cast<uint4*>(to)[in_row % a.vectors] = value;
}

}  // namespace

int launch_append(const Plane& plane, const AppendRows& rows, Stream stream) {
  const AppendArguments arguments{plane,
                                  static_cast<const char*>(rows.rows),
                                  rows.row_position,
                                  static_cast<std::int64_t>(rows.slot_count) << rows.block_shift,
                                  rows.row_count,
                                  rows.heads,
                                  rows.head_dim * bytes_of_dtype(rows.pool_dtype) / 16,
                                  rows.block_shift,
                                  rows.row_dtype,
                                  rows.pool_dtype};
  const std::uint64_t vectors =
      std::uint64_t{arguments.row_count} * arguments.heads * arguments.vectors;
  if (vectors == 0) return 0;
  const auto blocks = static_cast<unsigned>((vectors + kAppendThreads - 1) / kAppendThreads);
  return launch(append_rows, dim3{blocks, 1, 1}, kAppendThreads, stream, arguments);
}

}  // namespace kv::cuda
