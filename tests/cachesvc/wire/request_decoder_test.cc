// Every request, from its bytes to the expected core value.
#include "cachesvc/wire/request_decoder.h"

#include <cstring>
#include <variant>

#include <gtest/gtest.h>

#include "tests/cachesvc/wire/samples.h"

namespace kv::testing {
namespace {

using codec::DecodedRequest;
using codec::RequestDecoder;

std::vector<std::byte> sample(std::string_view name) {
  for (const Sample& candidate : request_samples()) {
    if (candidate.name == name) return candidate.bytes;
  }
  ADD_FAILURE() << "no sample " << name;
  return {};
}

// Decodes a sample and returns its input; the bytes stay alive with the object.
template <class T>
class Decoded {
 public:
  explicit Decoded(std::string_view name) : bytes_(sample(name)) {
    const Result<DecodedRequest> result = decoder_.decode(bytes_);
    EXPECT_TRUE(result.has_value()) << name;
    if (!result) return;
    EXPECT_TRUE(std::holds_alternative<T>(result->input)) << name;
    if (const T* input = std::get_if<T>(&result->input)) input_ = *input;
    EXPECT_EQ(result->envelope.client, ClientId(7));
    EXPECT_EQ(result->envelope.request, RequestId(3));
    EXPECT_EQ(result->envelope.secret, (codec::Id128{0x1122334455667788U, 0x99AABBCCDDEEFF00U}));
    EXPECT_EQ(input_.header.client, ClientId(7));
    EXPECT_EQ(input_.header.request, RequestId(3));
    EXPECT_EQ(input_.header.notices_acknowledged, 2U);
  }
  const T* operator->() const { return &input_; }

 private:
  std::vector<std::byte> bytes_;
  RequestDecoder decoder_;
  T input_;
};

void expect_sample_namespace(const NamespaceFields* fields) {
  ASSERT_NE(fields, nullptr);
  EXPECT_EQ(fields->weights, "weights-1");
  EXPECT_EQ(fields->model_config, "rope=10000");
  EXPECT_EQ(fields->adapter, "lora-a");
  EXPECT_EQ(fields->adapter_revision, "r2");
  EXPECT_EQ(fields->salt, std::string_view("s\0lt", 4));
  EXPECT_EQ(fields->tenant, "");
}

std::vector<Token> tokens_of(std::span<const Token> tokens) {
  return {tokens.begin(), tokens.end()};
}

TEST(RequestDecoder, ReadsAHello) {
  const Decoded<core::Hello> hello("request_hello");
  EXPECT_EQ(hello->protocol_version, 1U);
  EXPECT_EQ(hello->name, "runner one");
  EXPECT_EQ(hello->instance, 77U);
  EXPECT_EQ(hello->rank, 2U);
}

TEST(RequestDecoder, ReadsRequestsWithoutFields) {
  const Decoded<core::Heartbeat> heartbeat("request_heartbeat");
  const Decoded<core::Bye> bye("request_bye");
  const Decoded<core::Status> status("request_status");
  const Decoded<core::Flush> flush("request_flush");
}

TEST(RequestDecoder, ReadsAClearOfOneTierAndOneOfEverything) {
  const Decoded<core::Clear> one("request_clear");
  EXPECT_FALSE(one->all_tiers);
  EXPECT_EQ(one->tier, Tier::disk);
  expect_sample_namespace(one->fields);
  const Decoded<core::Clear> all("request_clear_all");
  EXPECT_TRUE(all->all_tiers);
  EXPECT_EQ(all->fields, nullptr);
}

TEST(RequestDecoder, ReadsANewEpoch) {
  const Decoded<core::SetEpoch> set("request_set_epoch");
  expect_sample_namespace(set->fields);
  EXPECT_EQ(set->epoch, 0x123456789AU);
}

TEST(RequestDecoder, ReadsALayout) {
  const Decoded<core::AttachPool> attach("request_attach_pool");
  ASSERT_NE(attach->layout, nullptr);
  EXPECT_EQ(attach->layout->block_tokens, 16U);
  ASSERT_EQ(attach->layout->groups.size(), 1U);
  const LayerGroup& group = attach->layout->groups.front();
  EXPECT_EQ(group.kind, AttentionKind::full);
  EXPECT_EQ(group.k_dtype, DType::bf16);
  EXPECT_EQ(group.v_dtype, DType::f16);
  EXPECT_EQ(group.layer_count, 24U);
  EXPECT_EQ(group.kv_head_count, 4U);
  EXPECT_EQ(group.head_dim_k, 64U);
  EXPECT_EQ(group.head_dim_v, 32U);
  EXPECT_EQ(group.window_tokens, 0U);
  EXPECT_EQ(group.sink_tokens, 0U);
}

TEST(RequestDecoder, ReadsTheFirstPartOfASequence) {
  const Decoded<core::Open> open("request_open");
  EXPECT_EQ(open->sequence, SequenceId(21));
  EXPECT_TRUE(open->first);
  expect_sample_namespace(open->fields);
  EXPECT_EQ(tokens_of(open->tokens), (std::vector<Token>{1, 2, 3, 0xFFFFFFFFU, 5}));
  EXPECT_TRUE(open->skip_read);
  EXPECT_FALSE(open->accept_rewrite);
}

TEST(RequestDecoder, ReadsAnOpenWithoutANamespaceAsMoreTokensWithDefaults) {
  const Decoded<core::Open> open("request_open_more");
  EXPECT_EQ(open->sequence, SequenceId(21));
  EXPECT_FALSE(open->first);
  EXPECT_EQ(open->fields, nullptr);
  EXPECT_EQ(tokens_of(open->tokens), (std::vector<Token>{6, 7}));
  EXPECT_FALSE(open->skip_read);
  EXPECT_TRUE(open->accept_rewrite);
}

TEST(RequestDecoder, ReadsAnAdmit) {
  const Decoded<core::Admit> admit("request_admit");
  EXPECT_EQ(admit->sequence, SequenceId(21));
  EXPECT_EQ(admit->max_new_tokens, 64U);
}

TEST(RequestDecoder, ReadsAStepWithEveryOperation) {
  using core::StepOp;
  const Decoded<core::Step> step("request_step");
  EXPECT_EQ(step->step_seq, 12U);
  EXPECT_EQ(step->completed_step, 11U);
  EXPECT_EQ(tokens_of(step->tokens), (std::vector<Token>{100, 101, 102}));
  struct Expected {
    std::uint64_t sequence;
    StepOp op;
    std::uint32_t token_offset, token_count, value;
  };
  const std::vector<Expected> expected{
      {21, StepOp::append, 0, 2, 0},   {22, StepOp::append, 2, 1, 0},
      {21, StepOp::publish, 0, 0, 48}, {23, StepOp::truncate, 0, 0, 17},
      {24, StepOp::free, 0, 0, 0},     {21, StepOp::acknowledge, 0, 0, 9}};
  ASSERT_EQ(step->items.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(step->items[i].sequence, SequenceId(expected[i].sequence));
    EXPECT_EQ(step->items[i].op, expected[i].op);
    EXPECT_EQ(step->items[i].token_offset, expected[i].token_offset);
    EXPECT_EQ(step->items[i].token_count, expected[i].token_count);
    EXPECT_EQ(step->items[i].value, expected[i].value);
  }
}

TEST(RequestDecoder, ReadsALookup) {
  const Decoded<core::Lookup> lookup("request_lookup");
  expect_sample_namespace(lookup->fields);
  EXPECT_EQ(tokens_of(lookup->tokens), (std::vector<Token>{9, 8, 7}));
}

TEST(RequestDecoder, ReadsTreeAndDemote) {
  const Decoded<core::Tree> tree("request_tree");
  EXPECT_EQ(tree->node_limit, 500U);
  const Decoded<core::Demote> demote("request_demote");
  EXPECT_EQ(demote->tier, Tier::host);
}

TEST(RequestDecoder, GivesTheSameInputAtEveryAlignmentOfTheFrame) {
  const std::vector<std::byte> bytes = sample("request_step");
  std::vector<std::byte> shifted(bytes.size() + 16);
  RequestDecoder decoder;
  for (std::size_t shift = 0; shift < 16; ++shift) {
    SCOPED_TRACE(shift);
    std::memcpy(shifted.data() + shift, bytes.data(), bytes.size());
    const auto result = decoder.decode(std::span(shifted).subspan(shift, bytes.size()));
    ASSERT_TRUE(result.has_value());
    const auto& step = std::get<core::Step>(result->input);
    EXPECT_EQ(tokens_of(step.tokens), (std::vector<Token>{100, 101, 102}));
    ASSERT_EQ(step.items.size(), 6U);
    EXPECT_EQ(step.items[3].value, 17U);
    EXPECT_EQ(result->envelope.secret.b, 0x99AABBCCDDEEFF00U);
  }
}

TEST(RequestDecoder, LeavesTokensOfAnAlignedFrameWhereTheyAre) {
  const std::vector<std::byte> bytes = sample("request_open_more");
  RequestDecoder decoder;
  const auto result = decoder.decode(bytes);
  ASSERT_TRUE(result.has_value());
  const auto* tokens =
      reinterpret_cast<const std::byte*>(std::get<core::Open>(result->input).tokens.data());
  EXPECT_GE(tokens, bytes.data());
  EXPECT_LT(tokens, bytes.data() + bytes.size());
}

TEST(RequestDecoder, RemembersNothingOfTheFrameBefore) {
  RequestDecoder decoder;
  const std::vector<std::byte> open = sample("request_open");
  const std::vector<std::byte> step = sample("request_step");
  ASSERT_TRUE(decoder.decode(step).has_value());
  ASSERT_TRUE(decoder.decode(open).has_value());
  const auto again = decoder.decode(step);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(std::get<core::Step>(again->input).items.size(), 6U);
  EXPECT_FALSE(decoder.decode({}).has_value());
  EXPECT_TRUE(decoder.envelope().client.is_none());
  EXPECT_TRUE(decoder.envelope().request.is_none());
  EXPECT_EQ(decoder.envelope().secret, codec::Id128{});
}

}  // namespace
}  // namespace kv::testing
