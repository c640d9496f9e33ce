// A paged pool and a batch on the device, with the host's copy of every byte beside them.
// Owner: of its device memory. Threads: one. Cost: O(pool bytes).
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/numbers.h"

namespace kv::gpu {

enum class Order : std::uint8_t { head_token, token_head };

struct Shape {
  std::uint32_t query_heads = 2, kv_heads = 2, dim = 64, block_tokens = 16, layers = 1;
  std::uint32_t dtype = KV_KERNEL_DTYPE_BF16;
  std::uint32_t query_dtype = KV_KERNEL_DTYPE_F32, output_dtype = KV_KERNEL_DTYPE_F32;
  std::uint32_t window = 0, sinks = 0;
  Order order = Order::head_token;
  bool own_bases = false;  // each layer has a base pointer of its own
};

inline kv_kernel_problem problem_of(const Shape& shape, std::uint32_t operation) {
  kv_kernel_problem problem{};
  problem.struct_size = sizeof(problem);
  problem.operation = operation;
  problem.features = KV_KERNEL_FEATURE_LSE;
  if (shape.window != 0) problem.features |= KV_KERNEL_FEATURE_WINDOW;
  if (shape.sinks != 0) problem.features |= KV_KERNEL_FEATURE_SINK_TOKENS;
  problem.layer_count = shape.layers;
  problem.query_head_count = shape.query_heads;
  problem.kv_head_count = shape.kv_heads;
  problem.head_dim_qk = problem.head_dim_vo = shape.dim;
  problem.k_dtype = problem.v_dtype = shape.dtype;
  problem.query_dtype = shape.query_dtype;
  problem.output_dtype = shape.output_dtype;
  problem.block_tokens = shape.block_tokens;
  problem.window_tokens = shape.window;
  problem.sink_tokens = shape.sinks;
  problem.scale = 1.0F / std::sqrt(static_cast<float>(shape.dim));
  return problem;
}

// Block-first: slot, layer, keys then values, head and token in either order, channel. Places that
// nothing was written to are NaN in every format.
class Pool {
 public:
  Pool(Device& device, const Shape& shape, std::uint32_t slots)
      : shape_(shape),
        row_(shape.dim * bytes_of(shape.dtype)),
        plane_(row_ * shape.block_tokens * shape.kv_heads),
        block_(2 * plane_ * shape.layers),
        bytes_(block_ * slots, std::byte{0xFF}),
        memory_(device, bytes_) {
    view_.struct_size = sizeof(view_);
    view_.slot_count = slots;
    const auto row = static_cast<std::int64_t>(row_);
    for (kv_kernel_plane* p : {&view_.k, &view_.v}) {
      p->block_stride = static_cast<std::int64_t>(block_);
      p->layer_stride = static_cast<std::int64_t>(2 * plane_);
      const bool heads_outside = shape.order == Order::head_token;
      p->token_stride = heads_outside ? row : row * shape.kv_heads;
      p->head_stride = heads_outside ? row * shape.block_tokens : row;
    }
    view_.k.base = memory_.data();
    view_.v.base = memory_.data() + plane_;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      k_bases_.push_back(memory_.data() + 2 * plane_ * layer);
      v_bases_.push_back(memory_.data() + 2 * plane_ * layer + plane_);
    }
    if (shape.own_bases) {
      view_.k.layer_bases = k_bases_.data();
      view_.v.layer_bases = v_bases_.data();
      view_.k.base = view_.v.base = nullptr;
    }
  }
  [[nodiscard]] const kv_kernel_pool& view() const { return view_; }
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] std::size_t block_bytes() const { return block_; }
  // plane 0: keys, 1: values.
  [[nodiscard]] std::size_t offset(std::uint32_t slot, std::uint32_t layer, unsigned plane,
                                   std::uint32_t head, std::uint32_t token) const {
    const std::size_t in_plane = shape_.order == Order::head_token
                                     ? std::size_t{head} * shape_.block_tokens + token
                                     : std::size_t{token} * shape_.kv_heads + head;
    return slot * block_ + (2 * layer + plane) * plane_ + in_plane * row_;
  }
  // Random content of the sequence with this seed at tokens [begin, end), in all layers. The same
  // seed and token give the same values in any pool.
  void fill(std::uint64_t seed, const std::vector<std::uint32_t>& table, std::uint32_t begin,
            std::uint32_t end) {
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
      for (std::uint32_t t = begin; t < end; ++t) {
        for (unsigned part = 0; part < 2 * shape_.kv_heads; ++part) {
          Prng prng((seed << 40U) + (std::uint64_t{layer} << 34U) + (std::uint64_t{t} << 10U) +
                    part);
          std::byte* row = bytes_.data() + offset(table[t / shape_.block_tokens], layer, part % 2,
                                                  part / 2, t % shape_.block_tokens);
          for (std::uint32_t c = 0; c < shape_.dim; ++c) {
            store(row + c * bytes_of(shape_.dtype), random_bits(prng, shape_.dtype), shape_.dtype);
          }
        }
      }
    }
  }
  [[nodiscard]] double value(std::uint32_t slot, std::uint32_t layer, unsigned plane,
                             std::uint32_t head, std::uint32_t token, std::uint32_t c) const {
    return decode(
        load(bytes_.data() + offset(slot, layer, plane, head, token) + c * bytes_of(shape_.dtype),
             shape_.dtype),
        shape_.dtype);
  }
  void upload() { memory_.set(bytes_); }
  [[nodiscard]] std::vector<std::byte> download() const { return memory_.get(); }

 private:
  Shape shape_;
  std::size_t row_, plane_, block_;
  std::vector<std::byte> bytes_;
  Buffer<std::byte> memory_;
  std::vector<void*> k_bases_, v_bases_;
  kv_kernel_pool view_{};
};

// The last `rows` tokens of a sequence of `length` tokens are queries.
struct Sequence {
  std::uint64_t seed = 1;
  std::vector<std::uint32_t> table;
  std::uint32_t length = 0, rows = 0;
};

inline std::vector<std::uint32_t> shuffled(std::uint64_t seed, std::uint32_t count) {
  std::vector<std::uint32_t> slots(count);
  std::iota(slots.begin(), slots.end(), 0U);
  Prng prng(seed);
  for (std::uint32_t i = count; i > 1; --i) std::swap(slots[i - 1], slots[prng.below(i)]);
  return slots;
}

// A pool that holds these sequences in shuffled slots, filled and uploaded; their tables are set.
inline std::unique_ptr<Pool> pool_of(Device& device, const Shape& shape,
                                     std::vector<Sequence>& sequences, std::uint64_t slot_seed) {
  std::uint32_t blocks = 0;
  for (const Sequence& s : sequences) blocks += s.length / shape.block_tokens + 1;
  const std::vector<std::uint32_t> slots = shuffled(slot_seed, blocks + 2);
  auto pool = std::make_unique<Pool>(device, shape, blocks + 2);
  std::ptrdiff_t used = 0;
  for (Sequence& s : sequences) {
    const std::ptrdiff_t count = s.length / shape.block_tokens + 1;
    s.table.assign(slots.begin() + used, slots.begin() + used + count);
    used += count;
    pool->fill(s.seed, s.table, 0, s.length);
  }
  pool->upload();
  return pool;
}

}  // namespace kv::gpu
