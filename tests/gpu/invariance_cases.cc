// A query row's result depends on its own tokens only, in every bit of output and LSE.
#include <array>
#include <limits>

#include "tests/gpu/cases.h"

namespace kv::gpu {
namespace {

// Three splits, the last one short; two heads of one group.
constexpr std::uint32_t kLength = 530;
constexpr std::uint32_t kRows = 6;
constexpr Shape kShape{.query_heads = 2, .kv_heads = 1};

Attended run_of(Context& context, const Shape& shape, std::vector<Sequence> sequences,
                std::uint64_t slot_seed, const Way& way = {}) {
  const auto pool = pool_of(context.device(), shape, sequences, slot_seed);
  return attend(context, shape, *pool, Batch(context, shape, sequences), shape.layers - 1, way);
}

std::vector<Sequence> one_of(const Context& context, std::uint32_t length, std::uint32_t rows) {
  return {{context.seed() + 5, {}, length, rows}};
}

// The part of `all` that rows [begin, end) made.
Attended rows_of(const Shape& shape, const Attended& all, std::uint32_t begin, std::uint32_t end) {
  const auto row = static_cast<std::ptrdiff_t>(std::size_t{shape.query_heads} * shape.dim *
                                               bytes_of(shape.output_dtype));
  const auto heads = static_cast<std::ptrdiff_t>(shape.query_heads);
  return {{all.output.begin() + begin * row, all.output.begin() + end * row},
          {all.lse.begin() + begin * heads, all.lse.begin() + end * heads}};
}

void other_slots_and_strides(Context& context) {
  context.at("slots and strides");
  const Attended want = run_of(context, kShape, one_of(context, kLength, kRows), 1);
  for (const std::uint32_t block : {1U, 16U, 64U}) {
    for (const Order order : {Order::head_token, Order::token_head}) {
      Shape shape = kShape;
      shape.block_tokens = block;
      shape.order = order;
      const Attended got = run_of(context, shape, one_of(context, kLength, kRows), 7 + block);
      expect_same(context, got, want, "block " + std::to_string(block));
    }
  }
}

void the_rest_of_the_batch(Context& context) {
  context.at("batch");
  for (const std::uint32_t rows : {1U, kRows}) {
    const Sequence mine{context.seed() + 5, {}, kLength, rows};
    const Attended want = run_of(context, kShape, {mine}, 1);
    const Attended got =
        run_of(context, kShape,
               {{11, {}, 300, 1}, mine, {12, {}, 20, 7}, {13, {}, 3, 0}, {14, {}, 9, 1}}, 2);
    expect_same(context, rows_of(kShape, got, 1, 1 + rows), want, "among others");
    const Attended alike = run_of(context, kShape, {{11, {}, 700, rows}, mine}, 3);
    expect_same(context, rows_of(kShape, alike, rows, 2 * rows), want, "beside its like");
  }
}

void every_chunking(Context& context) {
  context.at("chunks");
  const std::uint32_t begin = context.small_or_large(506, 0);
  for (const std::uint32_t ratio : {1U, 2U, 4U, 5U}) {
    const Shape shape{.query_heads = ratio, .kv_heads = 1};
    std::vector<Sequence> sequences = one_of(context, kLength, kLength);
    const auto pool = pool_of(context.device(), shape, sequences, context.seed());
    Attended decoded;
    for (const std::uint32_t chunk : {1U, 7U, kLength}) {
      Attended all;
      for (std::uint32_t from = begin; from < kLength; from += chunk) {
        const std::uint32_t to = std::min(kLength, from + chunk);
        sequences[0].length = to;
        sequences[0].rows = to - from;
        const Attended part = attend(context, shape, *pool, Batch(context, shape, sequences), 0);
        all.output.insert(all.output.end(), part.output.begin(), part.output.end());
        all.lse.insert(all.lse.end(), part.lse.begin(), part.lse.end());
      }
      if (chunk == 1) decoded = all;
      expect_same(context, all, decoded,
                  "ratio " + std::to_string(ratio) + " chunk " + std::to_string(chunk));
    }
  }
}

void splits_in_one_block_or_in_many(Context& context) {
  context.at("splits");
  for (const std::uint32_t dtype :
       {KV_KERNEL_DTYPE_F32, KV_KERNEL_DTYPE_F16, KV_KERNEL_DTYPE_BF16}) {
    for (const std::uint32_t window : {0U, 280U}) {
      const Shape shape{.query_heads = 4,
                        .kv_heads = 1,
                        .dim = 128,
                        .dtype = dtype,
                        .window = window,
                        .sinks = window / 70};
      const auto sequences = one_of(context, context.small_or_large(800, 5000), 1);
      const Attended many = run_of(context, shape, sequences, 1);
      const Attended one = run_of(context, shape, sequences, 1, {.workspace = false});
      expect_same(context, one, many, "window " + std::to_string(window));
    }
  }
}

void the_same_call_again(Context& context) {
  context.at("again");
  const Shape shape{.query_heads = 8, .kv_heads = 2, .dim = 128};
  const auto sequences = one_of(context, context.small_or_large(300, 6000), 2);
  const Attended want = run_of(context, shape, sequences, 1);
  for (std::uint32_t i = 0; i < context.small_or_large(1, 20); ++i) {
    expect_same(context, run_of(context, shape, sequences, 1), want, "run");
  }
}

void a_later_nan(Context& context) {
  context.at("a later NaN");
  std::vector<Sequence> sequences = one_of(context, 300, 4);
  const auto pool = pool_of(context.device(), kShape, sequences, 1);
  const Attended want = attend(context, kShape, *pool, Batch(context, kShape, sequences), 0);
  const std::uint32_t slot = sequences[0].table[299 / 16];
  for (unsigned plane = 0; plane < 2; ++plane) {
    std::memset(pool->bytes().data() + pool->offset(slot, 0, plane, 0, 299 % 16), 0xFF,
                kShape.dim * bytes_of(kShape.dtype));
  }
  pool->upload();
  const Attended got = attend(context, kShape, *pool, Batch(context, kShape, sequences), 0);
  expect_same(context, rows_of(kShape, got, 0, 3), rows_of(kShape, want, 0, 3), "earlier rows");
  context.expect(std::isnan(got.lse.back()), "the row that sees it does not show it");
}

void slots_outside_the_pool(Context& context) {
  context.at("a slot outside the pool");
  std::vector<Sequence> sequences{{3, {}, 300, 1}, {4, {}, 300, 1}};
  const auto pool = pool_of(context.device(), kShape, sequences, 1);
  const Attended want = attend(context, kShape, *pool, Batch(context, kShape, sequences), 0);
  for (const std::uint32_t slot : {pool->view().slot_count, 0xFFFFFFFFU}) {
    sequences[0].table[2] = slot;
    const Attended got = attend(context, kShape, *pool, Batch(context, kShape, sequences), 0);
    context.expect(std::isnan(got.lse[0]) && std::isnan(got.lse[1]), "its rows are not NaN");
    expect_same(context, rows_of(kShape, got, 1, 2), rows_of(kShape, want, 1, 2), "other rows");
  }
}

constexpr std::array<Case, 7> kCases = {{
    {"OtherSlotsStridesAndBlockSizesGiveTheSameBits", other_slots_and_strides},
    {"TheRestOfTheBatchDoesNotMatter", the_rest_of_the_batch},
    {"EveryChunkingEqualsTokenByTokenDecode", every_chunking},
    {"SplitsInOneBlockOrInManyGiveTheSameBits", splits_in_one_block_or_in_many},
    {"TheSameCallAgainGivesTheSameBits", the_same_call_again},
    {"ALaterTokensNanDoesNotReachEarlierRows", a_later_nan},
    {"ASlotOutsideThePoolGivesNanToItsRowsAlone", slots_outside_the_pool},
}};

}  // namespace

std::span<const Case> invariance_cases() { return kCases; }

}  // namespace kv::gpu
