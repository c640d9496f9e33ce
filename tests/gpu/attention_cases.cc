// Attention against the double-precision reference.
#include <array>

#include "tests/gpu/cases.h"

namespace kv::gpu {
namespace {

constexpr std::array<std::uint32_t, 3> kDtypes = {KV_KERNEL_DTYPE_F32, KV_KERNEL_DTYPE_F16,
                                                  KV_KERNEL_DTYPE_BF16};

void compare(Context& context, const Shape& shape, std::vector<Sequence> sequences) {
  context.at(text_of(shape));
  const auto pool = pool_of(context.device(), shape, sequences, context.seed());
  const Batch batch(context, shape, sequences);
  const std::uint32_t layer = shape.layers - 1;
  const Attended got = attend(context, shape, *pool, batch, layer);
  expect_attended(context, shape, got, expected(shape, *pool, sequences, batch, layer));
}

std::vector<Sequence> one_of(const Context& context, std::uint32_t length, std::uint32_t rows) {
  return {{context.seed() + 3, {}, length, rows}};
}

void every_dtype_and_head_dimension(Context& context) {
  for (const std::uint32_t dtype : kDtypes) {
    for (const std::uint32_t dim : {8U, 64U, 80U, 128U, 256U}) {
      compare(context, {.dim = dim, .dtype = dtype},
              one_of(context, context.small_or_large(70, 1300), 2));
      compare(context, {.dim = dim, .dtype = dtype}, one_of(context, 300, 1));
    }
  }
}

void every_group_ratio(Context& context) {
  for (const std::uint32_t ratio : {1U, 2U, 3U, 4U, 5U, 8U}) {
    for (const std::uint32_t rows : {1U, 5U}) {
      compare(context, {.query_heads = ratio * 2, .kv_heads = 2, .layers = 2},
              one_of(context, context.small_or_large(41, 2100), rows));
    }
  }
}

void every_block_size_and_order(Context& context) {
  for (const std::uint32_t block : {1U, 2U, 16U, 64U, 512U}) {
    for (const Order order : {Order::head_token, Order::token_head}) {
      for (const bool own_bases : {false, true}) {
        compare(context,
                {.kv_heads = 2,
                 .block_tokens = block,
                 .layers = 2,
                 .order = order,
                 .own_bases = own_bases},
                one_of(context, 270, 2));
      }
    }
  }
}

void lengths_around_split_edges(Context& context) {
  for (const std::uint32_t length : {1U, 2U, 15U, 16U, 17U, 255U, 256U, 257U, 511U, 512U, 513U}) {
    compare(context, {.query_heads = 2, .kv_heads = 1}, one_of(context, length, 1));
    compare(context, {.query_heads = 1, .kv_heads = 1},
            one_of(context, length, length < 3 ? length : 3));
  }
}

void ragged_batches(Context& context) {
  std::vector<Sequence> sequences;
  const std::array<std::uint32_t, 6> lengths = {5, 300, 1, 64, 257, 17};
  const std::array<std::uint32_t, 6> rows = {5, 1, 1, 0, 2, 9};
  for (std::uint32_t i = 0; i < 6; ++i) {
    sequences.push_back({context.seed() + i, {}, lengths[i], rows[i]});
  }
  for (const std::uint32_t ratio : {1U, 2U, 4U}) {
    compare(context, {.query_heads = ratio, .kv_heads = 1}, sequences);
  }
  for (Sequence& s : sequences) s.rows = 1;
  compare(context, {.query_heads = 2, .kv_heads = 1}, sequences);
}

void windows_and_sinks(Context& context) {
  for (const std::uint32_t window : {1U, 16U, 100U, 256U, 1000U}) {
    for (const std::uint32_t sinks : {0U, 4U, 300U}) {
      compare(context, {.query_heads = 2, .kv_heads = 1, .window = window, .sinks = sinks},
              one_of(context, 600, 3));
    }
  }
}

void sixteen_bit_queries_and_outputs(Context& context) {
  for (const std::uint32_t dtype : {KV_KERNEL_DTYPE_F16, KV_KERNEL_DTYPE_BF16}) {
    compare(context, {.dtype = dtype, .query_dtype = dtype, .output_dtype = dtype},
            one_of(context, 300, 2));
  }
}

void equal_keys_average_the_values(Context& context) {
  const Shape shape{.query_heads = 1, .kv_heads = 1, .dtype = KV_KERNEL_DTYPE_F32};
  std::vector<Sequence> sequences = one_of(context, 600, 1);
  context.at("equal keys");
  const auto pool = pool_of(context.device(), shape, sequences, context.seed());
  for (std::uint32_t t = 0; t < 600; ++t) {
    const std::uint32_t slot = sequences[0].table[t / shape.block_tokens];
    for (std::uint32_t c = 0; c < shape.dim; ++c) {
      const float key = 0.5F;
      const auto value = static_cast<float>(t % 8 + c);
      std::byte* bytes = pool->bytes().data();
      std::memcpy(bytes + pool->offset(slot, 0, 0, 0, t % 16) + c * 4UL, &key, 4);
      std::memcpy(bytes + pool->offset(slot, 0, 1, 0, t % 16) + c * 4UL, &value, 4);
    }
  }
  pool->upload();
  const Batch batch(context, shape, sequences);
  double sum = 0;
  for (const std::uint32_t bits : batch.query_bits) sum += decode(bits, shape.query_dtype);
  const Attended got = attend(context, shape, *pool, batch, 0);
  for (std::uint32_t c = 0; c < shape.dim; ++c) {
    const double value =
        decode(load(got.output.data() + c * 4UL, KV_KERNEL_DTYPE_F32), KV_KERNEL_DTYPE_F32);
    context.expect_near(value, 3.5 + c, 2e-4, "the mean of the values");
  }
  context.expect_near(double{got.lse[0]}, sum * 0.5 / 8 + std::log(600.0), 1e-4, "lse");
}

constexpr std::array<Case, 8> kCases = {{
    {"EveryDtypeAndHeadDimensionAgreesWithTheDoubleReference", every_dtype_and_head_dimension},
    {"EveryGroupRatioAgreesWithTheDoubleReference", every_group_ratio},
    {"EveryBlockSizeOrderAndBaseAgreesWithTheDoubleReference", every_block_size_and_order},
    {"LengthsAroundSplitEdgesAgreeWithTheDoubleReference", lengths_around_split_edges},
    {"RaggedBatchesAgreeWithTheDoubleReference", ragged_batches},
    {"WindowsAndSinksAgreeWithTheDoubleReference", windows_and_sinks},
    {"SixteenBitQueriesAndOutputsAreTheReferenceRounded", sixteen_bit_queries_and_outputs},
    {"EqualKeysAverageTheValuesAndCountTheTokens", equal_keys_average_the_values},
}};

}  // namespace

std::span<const Case> attention_cases() { return kCases; }

}  // namespace kv::gpu
