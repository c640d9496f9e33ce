// Operations that move bytes: append, copy, gather and scatter, checksum; and merge.
#include <array>
#include <limits>

#include "tests/gpu/cases.h"

namespace kv::gpu {
namespace {

constexpr std::array<std::uint32_t, 3> kDtypes = {KV_KERNEL_DTYPE_F32, KV_KERNEL_DTYPE_F16,
                                                  KV_KERNEL_DTYPE_BF16};

void finish(Context& context) {
  const std::string error = context.device().synchronize();
  context.expect(error.empty(), error);
}

std::vector<Shape> shapes_of(const Context& context) {
  std::vector<Shape> shapes;
  for (const std::uint32_t dtype : kDtypes) {
    for (const Order order : {Order::head_token, Order::token_head}) {
      for (const bool own_bases : {false, true}) {
        for (const std::uint32_t block : {1U, 16U}) {
          shapes.push_back({.kv_heads = 2,
                            .dim = context.small_or_large(40, 128),
                            .block_tokens = block,
                            .layers = 3,
                            .dtype = dtype,
                            .order = order,
                            .own_bases = own_bases});
        }
      }
    }
  }
  return shapes;
}

void append_in(Context& context, Shape shape, std::uint32_t row_dtype) {
  context.at("append " + text_of(shape));
  shape.query_dtype = row_dtype;
  const std::uint32_t slots = 5;
  Pool pool(context.device(), shape, slots);
  const auto end = static_cast<std::int64_t>(slots) * shape.block_tokens;
  // A padding row, rows outside the pool, and the rest in any order.
  const std::vector<std::int64_t> positions{end - 1, -1, 0, end, -7, end / 2, end + 100};
  const std::size_t per_row = std::size_t{shape.kv_heads} * shape.dim;
  Prng prng(context.seed());
  std::array<std::vector<std::byte>, 2> rows;
  std::vector<std::byte> want = pool.bytes();
  for (unsigned plane = 0; plane < 2; ++plane) {
    rows[plane].resize(positions.size() * per_row * bytes_of(row_dtype));
    for (std::size_t i = 0; i < positions.size() * per_row; ++i) {
      const std::uint32_t bits = random_bits(prng, row_dtype);
      store(rows[plane].data() + i * bytes_of(row_dtype), bits, row_dtype);
      const std::int64_t position = positions[i / per_row];
      if (position < 0 || position >= end) continue;
      const auto place = static_cast<std::uint32_t>(position);
      const auto in_row = static_cast<std::uint32_t>(i % per_row);
      const std::size_t at = pool.offset(place / shape.block_tokens, 1, plane, in_row / shape.dim,
                                         place % shape.block_tokens) +
                             in_row % shape.dim * bytes_of(shape.dtype);
      const std::uint32_t stored =
          row_dtype == shape.dtype ? bits : encode(decode(bits, row_dtype), shape.dtype);
      store(want.data() + at, stored, shape.dtype);
    }
  }
  const Buffer<std::byte> k(context.device(), rows[0]);
  const Buffer<std::byte> v(context.device(), rows[1]);
  const Buffer<std::int64_t> there(context.device(), positions);
  const kv_kernel_problem problem = problem_of(shape, KV_KERNEL_OP_APPEND);
  const kv_kernel_append append{
      sizeof(append), 1,        static_cast<std::uint32_t>(positions.size()),
      k.data(),       v.data(), there.data()};
  pool.upload();
  context.expect_ok(context.kernel().append_kv(&problem, &pool.view(), &append, nullptr),
                    "append_kv");
  finish(context);
  context.expect(pool.download() == want, "bytes of the pool");
}

void append_puts_rows_at_their_places(Context& context) {
  for (const Shape& shape : shapes_of(context)) {
    append_in(context, shape, shape.dtype);
    if (shape.dtype != KV_KERNEL_DTYPE_F32) append_in(context, shape, KV_KERNEL_DTYPE_F32);
  }
}

// Copies the first tokens of slots of one pool into those of another, on the host.
void copy_by_hand(const Shape& shape, const Pool& from, std::vector<std::byte>& from_bytes,
                  const Pool& to, std::vector<std::byte>& to_bytes,
                  const std::array<std::uint32_t, 3>& pair) {
  const std::size_t row = shape.dim * bytes_of(shape.dtype);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (unsigned plane = 0; plane < 2; ++plane) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        for (std::uint32_t t = 0; t < pair[2]; ++t) {
          std::memcpy(to_bytes.data() + to.offset(pair[1], layer, plane, head, t),
                      from_bytes.data() + from.offset(pair[0], layer, plane, head, t), row);
        }
      }
    }
  }
}

void copy_between(Context& context, const Shape& from_shape, const Shape& to_shape, bool same_pool,
                  bool whole) {
  context.at("copy " + text_of(from_shape) + " to " + text_of(to_shape));
  const std::uint32_t slots = 8;
  Pool from(context.device(), from_shape, slots);
  Pool other(context.device(), to_shape, slots);
  Pool& to = same_pool ? from : other;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    from.fill(slot, {slot}, 0, from_shape.block_tokens);
  }
  from.upload();
  other.upload();
  // The last pair lies outside both pools and is left out.
  const std::vector<std::uint32_t> sources{1, 3, 6, slots};
  const std::vector<std::uint32_t> targets{4, 0, 7, 2};
  const std::vector<std::uint32_t> tokens{1, from_shape.block_tokens, 0, 1};
  std::vector<std::byte> want = to.bytes();
  for (std::size_t i = 0; i < 3; ++i) {
    copy_by_hand(from_shape, from, from.bytes(), to, want,
                 {sources[i], targets[i], whole ? from_shape.block_tokens : tokens[i]});
  }
  const Buffer<std::uint32_t> sources_there(context.device(), sources);
  const Buffer<std::uint32_t> targets_there(context.device(), targets);
  const Buffer<std::uint32_t> tokens_there(context.device(), tokens);
  const kv_kernel_copy copy{sizeof(copy), 4, sources_there.data(), targets_there.data(),
                            whole ? nullptr : tokens_there.data()};
  const kv_kernel_problem problem = problem_of(from_shape, KV_KERNEL_OP_COPY);
  const kv_kernel& kernel = context.kernel();
  context.expect_ok(
      same_pool ? kernel.copy_blocks(&problem, &from.view(), &copy, nullptr)
                : kernel.transcode(&problem, &from.view(), &problem, &to.view(), &copy, nullptr),
      "copy");
  finish(context);
  context.expect(to.download() == want, "bytes of the pool");
}

void copies_of_every_shape(Context& context) {
  for (const Shape& shape : shapes_of(context)) {
    for (const bool whole : {true, false}) {
      copy_between(context, shape, shape, true, whole);
      Shape gathered = shape;
      gathered.order = Order::head_token;
      gathered.own_bases = false;
      copy_between(context, shape, gathered, false, whole);  // gather
      copy_between(context, gathered, shape, false, whole);  // scatter
    }
  }
}

// The definition, over the logical places of a block.
std::uint64_t sum_by_hand(const Shape& shape, const Pool& pool, const std::vector<std::byte>& bytes,
                          std::uint32_t slot) {
  std::uint64_t sum = 0;
  std::uint64_t row = 0;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (unsigned plane = 0; plane < 2; ++plane) {
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        for (std::uint32_t t = 0; t < shape.block_tokens; ++t, ++row) {
          const std::size_t at = pool.offset(slot, layer, plane, head, t);
          for (std::uint32_t w = 0; w < shape.dim * bytes_of(shape.dtype) / 8; ++w) {
            std::uint64_t x = 0;
            std::memcpy(&x, bytes.data() + at + w * 8UL, 8);
            x += (row * 65536 + w + 1) * 0x9E3779B97F4A7C15U;
            x = (x ^ (x >> 32U)) * 0xD6E8FEB86659FD93U;
            sum += x ^ (x >> 32U);
          }
        }
      }
    }
  }
  return sum;
}

std::vector<std::uint64_t> sums_of(Context& context, const Shape& shape, const Pool& pool,
                                   const std::vector<std::uint32_t>& slots) {
  const Buffer<std::uint32_t> there(context.device(), slots);
  Buffer<std::uint64_t> sums(context.device(), std::vector<std::uint64_t>(slots.size(), 12345));
  const kv_kernel_checksum checksum{sizeof(checksum), static_cast<std::uint32_t>(slots.size()),
                                    there.data(), sums.data()};
  const kv_kernel_problem problem = problem_of(shape, KV_KERNEL_OP_CHECKSUM);
  context.expect_ok(context.kernel().checksum(&problem, &pool.view(), &checksum, nullptr),
                    "checksum");
  finish(context);
  return sums.get();
}

void checksums_follow_their_definition(Context& context) {
  for (const Shape& shape : shapes_of(context)) {
    context.at("checksum " + text_of(shape));
    Pool pool(context.device(), shape, 4);
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      pool.fill(slot + 1, {slot}, 0, shape.block_tokens);
    }
    pool.upload();
    const std::vector<std::uint32_t> slots{2, 0, 3};
    const auto sums = sums_of(context, shape, pool, slots);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      context.expect(sums[i] == sum_by_hand(shape, pool, pool.bytes(), slots[i]),
                     "slot " + std::to_string(slots[i]));
    }
    pool.bytes()[pool.offset(0, 2, 1, 1, 0)] ^= std::byte{1};  // one bit of slot 0
    pool.upload();
    const auto changed = sums_of(context, shape, pool, slots);
    context.expect(changed[0] == sums[0] && changed[2] == sums[2] && changed[1] != sums[1],
                   "a flipped bit shows in its block alone");
  }
}

void merging_parts_gives_the_whole(Context& context) {
  for (const std::uint32_t dtype : kDtypes) {
    context.at("merge dtype " + std::to_string(dtype));
    const std::uint32_t rows = 3, heads = 2, dim = 72;
    Prng prng(context.seed());
    std::vector<std::byte> out(std::size_t{rows} * heads * dim * bytes_of(dtype));
    std::vector<std::byte> other(out.size());
    std::vector<float> lse(std::size_t{rows} * heads), other_lse(lse.size());
    for (std::size_t i = 0; i < out.size() / bytes_of(dtype); ++i) {
      store(out.data() + i * bytes_of(dtype), random_bits(prng, dtype), dtype);
      store(other.data() + i * bytes_of(dtype), random_bits(prng, dtype), dtype);
    }
    for (float& l : lse) l = 4 * uniform(prng);
    for (float& l : other_lse) l = 4 * uniform(prng);
    lse[1] = -std::numeric_limits<float>::infinity();  // saw no key
    other_lse[2] = -std::numeric_limits<float>::infinity();
    lse[4] = 200.0F;  // far above: the other side vanishes without overflow
    Buffer<std::byte> out_there(context.device(), out);
    Buffer<float> lse_there(context.device(), lse);
    const Buffer<std::byte> other_there(context.device(), other);
    const Buffer<float> other_lse_there(context.device(), other_lse);
    Shape shape{.query_heads = heads, .kv_heads = 1, .dim = dim};
    shape.output_dtype = dtype;
    const kv_kernel_problem problem = problem_of(shape, KV_KERNEL_OP_MERGE);
    const kv_kernel_merge merge{sizeof(merge),      rows,
                                out_there.data(),   lse_there.data(),
                                other_there.data(), other_lse_there.data()};
    context.expect_ok(context.kernel().merge(&problem, &merge, nullptr), "merge");
    finish(context);
    const auto got = out_there.get();
    const auto got_lse = lse_there.get();
    const double rounding = std::ldexp(1.0, -format_of(dtype).fraction_bits - 1) + 1e-6;
    for (std::size_t r = 0; r < lse.size(); ++r) {
      const double a = std::exp(double{lse[r]});
      const double b = std::exp(double{other_lse[r]});
      context.expect_near(double{got_lse[r]}, std::log(a + b), 1e-5, "lse");
      for (std::uint32_t c = 0; c < dim; ++c) {
        const std::size_t at = (r * dim + c) * bytes_of(dtype);
        const double want = (decode(load(out.data() + at, dtype), dtype) * a +
                             decode(load(other.data() + at, dtype), dtype) * b) /
                            (a + b);
        context.expect_near(decode(load(got.data() + at, dtype), dtype), want, rounding, "output");
      }
    }
  }
}

constexpr std::array<Case, 4> kCases = {{
    {"AppendPutsRowsAtTheirPlacesAndTouchesNothingElse", append_puts_rows_at_their_places},
    {"CopyGatherAndScatterMoveTheFilledTokensOfEveryShape", copies_of_every_shape},
    {"ChecksumsFollowTheirDefinitionAndShowAFlippedBit", checksums_follow_their_definition},
    {"MergingPartsGivesTheWhole", merging_parts_gives_the_whole},
}};

}  // namespace

std::span<const Case> memory_cases() { return kCases; }

}  // namespace kv::gpu
