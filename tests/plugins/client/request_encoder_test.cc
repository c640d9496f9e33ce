#include "plugins/client/request_encoder.h"

#include <string>

#include <gtest/gtest.h>

#include "schemas/request_generated.h"

namespace kv::client {
namespace {

const RequestHead test_head{.client = ClientId(5),
                            .secret = {.a = 0x1122334455667788, .b = 0x99AABBCCDDEEFF00},
                            .request = RequestId(42),
                            .notices_acknowledged = 3};

// Verified as the service verifies it, and read with the generated code alone.
const wire::Request& read(std::span<const std::byte> frame) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(frame.data());
  flatbuffers::Verifier verifier(data, frame.size(), 16, 4'096);
  EXPECT_TRUE(wire::VerifyRequestBuffer(verifier));
  return *wire::GetRequest(data);
}

NamespaceFields fields_of(std::string_view weights, std::string_view salt = {}) {
  NamespaceFields fields;
  fields.weights = weights;
  fields.salt = salt;
  return fields;
}

std::string text(const flatbuffers::Vector<std::uint8_t>* bytes) {
  return bytes == nullptr ? std::string() : std::string(bytes->begin(), bytes->end());
}

TEST(RequestEncoder, PutsTheHeadIntoEveryRequest) {
  RequestEncoder encoder;
  const auto frame = encoder.encode(test_head, HeartbeatMessage{});
  ASSERT_TRUE(frame);
  const auto& request = read(*frame);
  EXPECT_EQ(request.client(), 5U);
  EXPECT_EQ(request.secret()->a(), 0x1122334455667788U);
  EXPECT_EQ(request.secret()->b(), 0x99AABBCCDDEEFF00U);
  EXPECT_EQ(request.request(), 42U);
  EXPECT_EQ(request.notices_acknowledged(), 3U);
  EXPECT_EQ(request.body_type(), wire::RequestBody::Heartbeat);
}

TEST(RequestEncoder, WritesTheBytesOfAHeartbeatAsTheyWereAgreed) {
  RequestEncoder encoder;
  const auto frame = encoder.encode(test_head, HeartbeatMessage{});
  ASSERT_TRUE(frame);
  // Laid out by hand from the schema: root offset, "KVRQ", vtable, table, the empty body's table.
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame->data()) + 4, 4), "KVRQ");
  const std::string all(reinterpret_cast<const char*>(frame->data()), frame->size());
  EXPECT_NE(
      all.find(std::string("\x88\x77\x66\x55\x44\x33\x22\x11\x00\xFF\xEE\xDD\xCC\xBB\xAA\x99", 16)),
      std::string::npos);
}

TEST(RequestEncoder, WritesHello) {
  RequestEncoder encoder;
  const auto frame = encoder.encode(test_head, HelloMessage{"runner", 77, 2});
  ASSERT_TRUE(frame);
  const auto* body = read(*frame).body_as_Hello();
  ASSERT_NE(body, nullptr);
  EXPECT_EQ(body->protocol_version(), 1U);
  EXPECT_EQ(body->name()->str(), "runner");
  EXPECT_EQ(body->instance(), 77U);
  EXPECT_EQ(body->rank(), 2U);
}

TEST(RequestEncoder, WritesALayoutWithAllItsFields) {
  KvLayout layout{.block_tokens = 8, .groups = {}};
  layout.groups.push_back({.kind = AttentionKind::window,
                           .layer_count = 1,
                           .kv_head_count = 2,
                           .head_dim_k = 3,
                           .head_dim_v = 4,
                           .k_dtype = DType::f16,
                           .v_dtype = DType::i8,
                           .window_tokens = 5,
                           .sink_tokens = 6});
  RequestEncoder encoder;
  const auto frame = encoder.encode(test_head, PoolMessage{&layout});
  ASSERT_TRUE(frame);
  const auto* body = read(*frame).body_as_AttachPool();
  ASSERT_NE(body, nullptr);
  EXPECT_EQ(body->layout()->block_tokens(), 8U);
  ASSERT_EQ(body->layout()->groups()->size(), 1U);
  const auto* group = body->layout()->groups()->Get(0);
  EXPECT_EQ(group->kind(), 2U);
  EXPECT_EQ(group->layer_count(), 1U);
  EXPECT_EQ(group->kv_head_count(), 2U);
  EXPECT_EQ(group->head_dim_k(), 3U);
  EXPECT_EQ(group->head_dim_v(), 4U);
  EXPECT_EQ(group->k_dtype(), 1U);
  EXPECT_EQ(group->v_dtype(), 4U);
  EXPECT_EQ(group->window_tokens(), 5U);
  EXPECT_EQ(group->sink_tokens(), 6U);
}

TEST(RequestEncoder, WritesTheNamespaceOnlyIntoTheFirstPartOfASequence) {
  const NamespaceFields fields{.weights = "w",
                               .model_config = "mc",
                               .adapter = "ad",
                               .adapter_revision = "r1",
                               .tenant = "never sent",
                               .salt = std::string_view("\0s", 2)};
  const std::vector<Token> tokens{1, 403, 0xFFFFFFFF};
  RequestEncoder encoder;
  auto frame =
      encoder.encode(test_head, OpenMessage{SequenceId(9), &fields, tokens, {true, false}});
  ASSERT_TRUE(frame);
  const auto* first = read(*frame).body_as_Open();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->sequence(), 9U);
  EXPECT_TRUE(first->skip_read());
  EXPECT_FALSE(first->accept_rewrite());
  EXPECT_EQ(text(first->fields()->weights()), "w");
  EXPECT_EQ(text(first->fields()->model_config()), "mc");
  EXPECT_EQ(text(first->fields()->adapter()), "ad");
  EXPECT_EQ(text(first->fields()->adapter_revision()), "r1");
  EXPECT_EQ(text(first->fields()->salt()), std::string("\0s", 2));
  EXPECT_EQ(std::vector<Token>(first->tokens()->begin(), first->tokens()->end()), tokens);
  const std::string whole(reinterpret_cast<const char*>(frame->data()), frame->size());
  EXPECT_EQ(whole.find("never sent"), std::string::npos);

  frame = encoder.encode(test_head, OpenMessage{SequenceId(9), nullptr, tokens, {}});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_as_Open()->fields(), nullptr);
}

TEST(RequestEncoder, WritesTheItemsOfAStep) {
  const std::vector<StepItem> items{{SequenceId(1), StepOp::append, 0, 2, 0},
                                    {SequenceId(2), StepOp::acknowledge, 0, 0, 17}};
  const std::vector<Token> tokens{10, 11};
  RequestEncoder encoder;
  const auto frame = encoder.encode(test_head, StepMessage{8, 7, items, tokens});
  ASSERT_TRUE(frame);
  const auto* body = read(*frame).body_as_Step();
  ASSERT_NE(body, nullptr);
  EXPECT_EQ(body->step_seq(), 8U);
  EXPECT_EQ(body->completed_step(), 7U);
  ASSERT_EQ(body->items()->size(), 2U);
  EXPECT_EQ(body->items()->Get(0)->sequence(), 1U);
  EXPECT_EQ(body->items()->Get(0)->op(), 0U);
  EXPECT_EQ(body->items()->Get(0)->token_count(), 2U);
  EXPECT_EQ(body->items()->Get(1)->sequence(), 2U);
  EXPECT_EQ(body->items()->Get(1)->op(), 4U);
  EXPECT_EQ(body->items()->Get(1)->value(), 17U);
  EXPECT_EQ(body->tokens()->size(), 2U);
}

TEST(RequestEncoder, WritesAdmitLookupTreeAndDemote) {
  RequestEncoder encoder;
  auto frame = encoder.encode(test_head, AdmitMessage{SequenceId(3), 100});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_as_Admit()->sequence(), 3U);
  EXPECT_EQ(read(*frame).body_as_Admit()->max_new_tokens(), 100U);

  const NamespaceFields fields = fields_of("w");
  const std::vector<Token> tokens{4};
  frame = encoder.encode(test_head, LookupMessage{&fields, tokens});
  ASSERT_TRUE(frame);
  EXPECT_EQ(text(read(*frame).body_as_Lookup()->fields()->weights()), "w");
  EXPECT_EQ(read(*frame).body_as_Lookup()->tokens()->Get(0), 4U);

  frame = encoder.encode(test_head, TreeMessage{12});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_as_Tree()->node_limit(), 12U);

  frame = encoder.encode(test_head, DemoteMessage{Tier::host});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_as_Demote()->tier(), wire::Tier::host);

  frame = encoder.encode(test_head, ClearMessage{Tier::disk, &fields});
  ASSERT_TRUE(frame);
  EXPECT_FALSE(read(*frame).body_as_Clear()->all_tiers());
  EXPECT_EQ(read(*frame).body_as_Clear()->tier(), wire::Tier::disk);
  EXPECT_EQ(text(read(*frame).body_as_Clear()->fields()->weights()), "w");
  frame = encoder.encode(test_head, ClearMessage{});
  ASSERT_TRUE(frame);
  EXPECT_TRUE(read(*frame).body_as_Clear()->all_tiers());
  EXPECT_EQ(read(*frame).body_as_Clear()->fields(), nullptr);
  frame = encoder.encode(test_head, SetEpochMessage{&fields, 77});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_as_SetEpoch()->epoch(), 77U);

  frame = encoder.encode(test_head, FlushMessage{});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_type(), wire::RequestBody::Flush);
  frame = encoder.encode(test_head, StatusMessage{});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_type(), wire::RequestBody::Status);
  frame = encoder.encode(test_head, ByeMessage{});
  ASSERT_TRUE(frame);
  EXPECT_EQ(read(*frame).body_type(), wire::RequestBody::Bye);
}

TEST(RequestEncoder, RefusesWhatIsOverTheLimitsOfAMessage) {
  RequestEncoder encoder;
  const std::vector<Token> tokens(65'537, 1);
  const std::string long_text(4'097, 'x');
  const NamespaceFields fields = fields_of("w", long_text);
  const NamespaceFields good = fields_of("w");
  const std::vector<StepItem> items(4'097);
  KvLayout layout;
  layout.groups.resize(9);
  const std::vector<RequestMessage> refused{OpenMessage{SequenceId(1), &good, tokens, {}},
                                            OpenMessage{SequenceId(1), &fields, {}, {}},
                                            LookupMessage{&good, tokens},
                                            LookupMessage{&fields, {}},
                                            ClearMessage{std::nullopt, &fields},
                                            SetEpochMessage{&fields, 1},
                                            StepMessage{1, 0, items, {}},
                                            StepMessage{1, 0, {}, tokens},
                                            PoolMessage{&layout},
                                            HelloMessage{std::string_view(long_text), 0, 0}};
  for (const auto& message : refused) {
    SCOPED_TRACE(message.index());
    const auto frame = encoder.encode(test_head, message);
    ASSERT_FALSE(frame);
    EXPECT_EQ(frame.error().code, ErrorCode::too_large);
  }
}

TEST(RequestEncoder, FitsTheLargestAllowedMessagesIntoOneMebibyte) {
  RequestEncoder encoder;
  const std::vector<Token> tokens(65'536, 1);
  const std::vector<StepItem> items(4'096);
  const auto frame = encoder.encode(test_head, StepMessage{1, 0, items, tokens});
  ASSERT_TRUE(frame);
  EXPECT_LT(frame->size(), std::size_t{1} << 20);
  EXPECT_GT(frame->size(), 65'536U * 4 + 4'096U * 24);
}

}  // namespace
}  // namespace kv::client
