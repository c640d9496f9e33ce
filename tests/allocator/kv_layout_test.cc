#include "allocator/kv_layout.h"

#include <set>

#include <gtest/gtest.h>

namespace kv {
namespace {

// Llama-3-8B: 32 layers, 8 KV heads of 128 channels, 16-bit.
KvLayout llama() {
  return {.block_tokens = 16,
          .groups = {{.layer_count = 32,
                      .kv_head_count = 8,
                      .head_dim_k = 128,
                      .head_dim_v = 128,
                      .k_dtype = DType::bf16,
                      .v_dtype = DType::bf16}}};
}

TEST(KvLayout, ComputesTheKnownBytesOfLlama3) {
  EXPECT_EQ(bytes_per_token(llama().groups[0]), 131'072U);  // 128 KiB a token
  EXPECT_EQ(block_bytes(llama(), GroupId(0)), 2'097'152U);  // 2 MiB a block
}

TEST(KvLayout, StridesCoverABlockWithoutGapOrOverlap) {
  KvLayout layout = llama();
  layout.block_tokens = 4;
  layout.groups[0] = {.layer_count = 2,
                      .kv_head_count = 3,
                      .head_dim_k = 5,
                      .head_dim_v = 7,
                      .k_dtype = DType::f32,
                      .v_dtype = DType::i8};
  ASSERT_TRUE(validate(layout).has_value());
  const BlockStrides strides = block_strides(layout, GroupId(0));
  std::set<std::int64_t> seen;
  const auto mark = [&](std::int64_t offset, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; ++i) EXPECT_TRUE(seen.insert(offset + i).second);
  };
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::int64_t head = 0; head < 3; ++head) {
      for (std::int64_t token = 0; token < 4; ++token) {
        const std::int64_t k = layer * strides.layer;
        mark(k + head * strides.k_head + token * strides.k_token, 20);
        mark(k + strides.v_offset + head * strides.v_head + token * strides.v_token, 7);
      }
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), strides.block);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), strides.block - 1);
  EXPECT_EQ(block_bytes(layout, GroupId(0)), static_cast<std::uint64_t>(strides.block));
}

TEST(KvLayout, RefusesWhatNoModelHasAndNamesTheField) {
  const auto field_of = [](auto change) {
    KvLayout layout = llama();
    change(layout);
    const auto result = validate(layout);
    return result.has_value() ? std::string_view("valid") : result.error().field;
  };
  EXPECT_EQ(field_of([](KvLayout&) {}), "valid");
  EXPECT_EQ(field_of([](KvLayout& l) { l.block_tokens = 0; }), "block_tokens");
  EXPECT_EQ(field_of([](KvLayout& l) { l.block_tokens = 12; }), "block_tokens");
  EXPECT_EQ(field_of([](KvLayout& l) { l.block_tokens = 2048; }), "block_tokens");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups.clear(); }), "groups");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups.resize(9, l.groups[0]); }), "groups");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].layer_count = 0; }), "layer_count");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].kv_head_count = 0; }), "kv_head_count");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].head_dim_k = 0xFFFFFFFFU; }), "head_dim_k");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].head_dim_v = 0; }), "head_dim_v");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].k_dtype = DType{9}; }), "k_dtype");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].v_dtype = DType{200}; }), "v_dtype");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].window_tokens = 1; }), "window_tokens");
  EXPECT_EQ(field_of([](KvLayout& l) { l.groups[0].kind = AttentionKind::window; }), "kind");
  EXPECT_EQ(field_of([](KvLayout& l) { l.block_tokens = 1024; }), "layer_count");
}

TEST(KvLayout, AcceptsABlockOfExactly64MiBAndNotMore) {
  KvLayout layout = llama();
  layout.block_tokens = 512;
  EXPECT_EQ(block_bytes(layout, GroupId(0)), std::uint64_t{64} << 20U);
  EXPECT_TRUE(validate(layout).has_value());
  layout.groups[0].layer_count = 33;
  EXPECT_EQ(validate(layout).error().code, ErrorCode::invalid);
}

TEST(KvLayout, NamesTheFirstFieldThatDiffersAndChangesItsDigest) {
  std::set<Digest> digests = {layout_digest(llama())};
  const auto difference = [&](auto change) {
    KvLayout other = llama();
    change(other);
    EXPECT_TRUE(digests.insert(layout_digest(other)).second);
    return first_difference(llama(), other);
  };
  EXPECT_EQ(first_difference(llama(), llama()), "");
  EXPECT_EQ(difference([](KvLayout& l) { l.block_tokens = 32; }), "block_tokens");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups.push_back(l.groups[0]); }), "groups");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].kind = AttentionKind::latent; }), "kind");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].layer_count = 1; }), "layer_count");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].kv_head_count = 1; }), "kv_head_count");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].head_dim_k = 1; }), "head_dim_k");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].head_dim_v = 1; }), "head_dim_v");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].k_dtype = DType::f16; }), "k_dtype");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].v_dtype = DType::f16; }), "v_dtype");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].window_tokens = 1; }), "window_tokens");
  EXPECT_EQ(difference([](KvLayout& l) { l.groups[0].sink_tokens = 1; }), "sink_tokens");
}

TEST(KvLayout, KnowsEveryDataType) {
  EXPECT_EQ(dtype_bytes(DType::f32), 4U);
  EXPECT_EQ(dtype_bytes(DType::f16), 2U);
  EXPECT_EQ(dtype_bytes(DType::bf16), 2U);
  EXPECT_EQ(dtype_bytes(DType::f8_e4m3), 1U);
  EXPECT_EQ(dtype_bytes(DType::i8), 1U);
  EXPECT_EQ(dtype_name(DType::f8_e4m3), "f8_e4m3");
  EXPECT_EQ(dtype_name(DType{77}), "unknown");
}

}  // namespace
}  // namespace kv
