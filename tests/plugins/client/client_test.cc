#include "plugins/client/client.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "tests/plugins/client/client_fixture.h"

namespace kv::test {
namespace {

using client::in;

NamespaceFields fields_of(std::string_view weights, std::string_view salt = {}) {
  NamespaceFields fields;
  fields.weights = weights;
  fields.salt = salt;
  return fields;
}
const NamespaceFields test_fields = fields_of("weights");

constexpr std::ptrdiff_t kLastSlot = 8'064;  // 128 bytes a slot

KvLayout small_layout() {
  KvLayout layout{.block_tokens = 4, .groups = {}};
  layout.groups.push_back({.layer_count = 1, .kv_head_count = 1, .head_dim_k = 4, .head_dim_v = 4});
  return layout;
}

Bytes pool_reply(std::uint64_t request, std::uint64_t bytes, std::uint32_t slots) {
  ReplyParts parts;
  parts.request = request;
  parts.body_type = wire::ReplyBody::AttachPoolReply;
  parts.body = [=](auto& builder) {
    const std::vector<wire::PoolGroup> groups{{0, 128, slots}};
    return wire::CreateAttachPoolReply(builder, bytes, builder.CreateVectorOfStructs(groups))
        .Union();
  };
  return reply_frame(parts);
}

FakeService::Script pool_script(std::uint64_t bytes, std::uint32_t slots) {
  return [=](const Seen& request) -> Answers {
    if (request.type != wire::RequestBody::AttachPool) return std::nullopt;
    return std::vector<Bytes>{pool_reply(request.request, bytes, slots)};
  };
}

TEST_F(ClientTest, SaysWhoItIsWithTheSecretOfTheAttachSocket) {
  auto service = serve({});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto hellos = service->seen(wire::RequestBody::Hello);
  ASSERT_EQ(hellos.size(), 1U);
  EXPECT_EQ(hellos[0].client, 1U);
  EXPECT_EQ(hellos[0].request, 1U);
  EXPECT_EQ(hellos[0].message().secret()->a(), 11U);
  EXPECT_EQ(hellos[0].message().secret()->b(), 13U);
  EXPECT_EQ(hellos[0].message().body_as_Hello()->name()->str(), "test");
  EXPECT_EQ(client->boot(), (client::Id128{7, 9}));
}

TEST_F(ClientTest, SaysByeWhenItIsDestroyed) {
  auto service = serve({});
  attach().reset();
  EXPECT_TRUE(service->wait_seen(wire::RequestBody::Bye, 1));
}

TEST_F(ClientTest, RenewsItsLeaseWhileNobodyCalls) {
  auto service = serve({}, {.lease_ms = 200});
  auto client = attach();
  EXPECT_TRUE(service->wait_seen(wire::RequestBody::Heartbeat, 5));
  const auto beats = service->seen(wire::RequestBody::Heartbeat);
  for (std::size_t i = 1; i < beats.size(); ++i) EXPECT_GT(beats[i].request, beats[i - 1].request);
}

TEST_F(ClientTest, MapsThePoolThatTheServicePasses) {
  auto service = serve(pool_script(8'192, 64), {.pool_bytes = 8'192});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto pool = client->attach_pool(small_layout(), in(seconds(10)));
  ASSERT_TRUE(pool) << pool.error().reason;
  ASSERT_EQ(pool->memory.size(), 8'192U);
  EXPECT_EQ(pool->groups[0].slot_bytes, 128U);
  EXPECT_EQ(pool->groups[0].slot_count, 64U);
  std::memcpy(pool->memory.data() + kLastSlot, "block", 5);
  EXPECT_EQ(std::memcmp(service->pool() + kLastSlot, "block", 5), 0);
}

TEST_F(ClientTest, RefusesAPoolThatIsNotSealed) {
  auto service = serve(pool_script(8'192, 64), {.pool_bytes = 8'192, .seal_pool = false});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->attach_pool(small_layout(), in(seconds(10))).error().code, ErrorCode::invalid);
}

TEST_F(ClientTest, RefusesAPoolSmallerThanItsSlots) {
  auto service = serve(pool_script(16'384, 128), {.pool_bytes = 8'192});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->attach_pool(small_layout(), in(seconds(10))).error().code, ErrorCode::corrupt);
}

TEST_F(ClientTest, PassesOnWhichFieldOfALayoutDiffers) {
  auto service = serve([](const Seen& request) -> Answers {
    if (request.type != wire::RequestBody::AttachPool) return std::nullopt;
    ReplyParts parts;
    parts.request = request.request;
    parts.code = wire::ErrorCode::mismatch;
    parts.reason = "the pool has another layout";
    parts.field = "head_dim_k";
    return std::vector<Bytes>{reply_frame(parts)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto pool = client->attach_pool(small_layout(), in(seconds(10)));
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error(),
            (Error{ErrorCode::mismatch, "the pool has another layout", "head_dim_k"}));
}

TEST_F(ClientTest, OpensALongPromptInParts) {
  auto service = serve({});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  std::vector<Token> tokens(150'000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i);
  ASSERT_TRUE(client->open(SequenceId(5), test_fields, tokens, {}, in(seconds(10))));
  const auto parts = service->seen(wire::RequestBody::Open);
  ASSERT_EQ(parts.size(), 3U);
  std::vector<Token> received;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto* open = parts[i].message().body_as_Open();
    EXPECT_EQ(open->sequence(), 5U);
    EXPECT_EQ(open->fields() != nullptr, i == 0);
    received.insert(received.end(), open->tokens()->begin(), open->tokens()->end());
  }
  EXPECT_EQ(received, tokens);
}

TEST_F(ClientTest, OpensASequenceWithoutTokens) {
  auto service = serve({});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->open(SequenceId(5), test_fields, {}, {}, in(seconds(10))));
  EXPECT_EQ(service->seen(wire::RequestBody::Open).size(), 1U);
}

TEST_F(ClientTest, NeverSendsWhatTheServiceWouldRefuseForItsSize) {
  auto service = serve({});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const std::string salt(5'000, 's');
  const NamespaceFields fields = fields_of("w", salt);
  EXPECT_EQ(client->open(SequenceId(1), fields, {}, {}, in(seconds(10))).error().code,
            ErrorCode::too_large);
  const std::vector<Token> tokens(65'537);
  EXPECT_EQ(client->lookup(test_fields, tokens, in(seconds(10))).error().code,
            ErrorCode::too_large);
  EXPECT_TRUE(service->seen(wire::RequestBody::Open).empty());
  EXPECT_TRUE(service->seen(wire::RequestBody::Lookup).empty());
}

// Fails item 0 of every step, and rewrites block 2 of sequence 7 to `slot`.
FakeService::Script step_script(std::uint32_t slot) {
  return [slot](const Seen& request) -> Answers {
    if (request.type == wire::RequestBody::AttachPool) {
      return std::vector<Bytes>{pool_reply(request.request, 8'192, 64)};
    }
    if (request.type != wire::RequestBody::Step) return std::nullopt;
    ReplyParts parts;
    parts.request = request.request;
    parts.body_type = wire::ReplyBody::StepReply;
    parts.body = [slot](auto& builder) {
      const std::vector<wire::StepFailure> failures{{0, wire::ErrorCode::not_found}};
      const std::vector<wire::TableDelta> deltas{{7, 0, 4, 2, 0, 1}};
      const std::vector<wire::EndedSequence> ended{{8, wire::Account(5, 4, 0, 0, 0, 1, 6)}};
      return wire::CreateStepReply(builder, builder.CreateVectorOfStructs(failures),
                                   builder.CreateVectorOfStrings({std::string("no such sequence")}),
                                   builder.CreateVectorOfStructs(deltas),
                                   builder.CreateVector(std::vector<std::uint32_t>{slot}),
                                   builder.CreateVectorOfStructs(ended))
          .Union();
    };
    return std::vector<Bytes>{reply_frame(parts)};
  };
}

TEST_F(ClientTest, NamesTheSequenceOfEachFailedItem) {
  auto service = serve(step_script(63), {.pool_bytes = 8'192});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->attach_pool(small_layout(), in(seconds(10))));
  client::StepRequest request;
  request.step_seq = 1;
  request.append = {{SequenceId(6), {1}}};
  request.free = {SequenceId(8)};
  const auto outcome = client->step(request, in(seconds(10)));
  ASSERT_TRUE(outcome) << outcome.error().reason;
  ASSERT_EQ(outcome->failures.size(), 1U);
  EXPECT_EQ(outcome->failures[0].sequence, SequenceId(6));
  EXPECT_EQ(outcome->failures[0].error.code, ErrorCode::not_found);
  EXPECT_EQ(outcome->failures[0].error.reason, "no such sequence");
  ASSERT_EQ(outcome->deltas.size(), 1U);
  EXPECT_EQ(outcome->deltas[0].slots, std::vector{SlotId(63)});
  ASSERT_EQ(outcome->ended.size(), 1U);
  EXPECT_EQ(outcome->ended[0].account.hits(), 4U);
}

TEST_F(ClientTest, NeverHandsOutASlotOutsideThePool) {
  auto service = serve(step_script(64), {.pool_bytes = 8'192});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->attach_pool(small_layout(), in(seconds(10))));
  client::StepRequest request;
  request.step_seq = 1;
  request.free = {SequenceId(8)};
  EXPECT_EQ(client->step(request, in(seconds(10))).error().code, ErrorCode::corrupt);
}

TEST_F(ClientTest, AdmitsTheLastSlotOfThePoolAndNoneBehindIt) {
  for (const std::uint32_t slot : {63U, 64U}) {
    auto service = serve(
        [slot](const Seen& request) -> Answers {
          if (request.type == wire::RequestBody::AttachPool) {
            return std::vector<Bytes>{pool_reply(request.request, 8'192, 64)};
          }
          if (request.type != wire::RequestBody::Admit) return std::nullopt;
          ReplyParts parts;
          parts.request = request.request;
          parts.body_type = wire::ReplyBody::AdmitReply;
          parts.body = [slot](auto& builder) {
            const auto slots = builder.CreateVector(std::vector<std::uint32_t>{0, slot});
            return wire::CreateAdmitReply(builder, true, nullptr, 1, 2, slots).Union();
          };
          return std::vector<Bytes>{reply_frame(parts)};
        },
        {.pool_bytes = 8'192});
    auto client = attach();
    ASSERT_NE(client, nullptr);
    ASSERT_TRUE(client->attach_pool(small_layout(), in(seconds(10))));
    const auto admission = client->admit(SequenceId(9), 20, in(seconds(10)));
    EXPECT_EQ(admission ? ErrorCode::ok : admission.error().code,
              slot == 63 ? ErrorCode::ok : ErrorCode::corrupt);
  }
}

TEST_F(ClientTest, SendsALargeStepInPartsWithRisingNumbers) {
  auto service = serve([](const Seen& request) -> Answers {
    if (request.type != wire::RequestBody::Step) return std::nullopt;
    ReplyParts parts;
    parts.request = request.request;
    parts.body_type = wire::ReplyBody::StepReply;
    parts.body = [](auto& builder) { return wire::CreateStepReply(builder).Union(); };
    return std::vector<Bytes>{reply_frame(parts)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  client::StepRequest request;
  request.step_seq = 1;
  for (std::uint64_t id = 0; id < 5'000; ++id) request.free.emplace_back(id);
  ASSERT_TRUE(client->step(request, in(seconds(10))));
  client::StepRequest second;
  second.step_seq = 2;
  second.completed_step = 1;
  ASSERT_TRUE(client->step(second, in(seconds(10))));
  const auto steps = service->seen(wire::RequestBody::Step);
  ASSERT_EQ(steps.size(), 3U);
  const std::uint64_t expected[3][2] = {{1, 0}, {2, 0}, {3, 2}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(steps[i].message().body_as_Step()->step_seq(), expected[i][0]);
    EXPECT_EQ(steps[i].message().body_as_Step()->completed_step(), expected[i][1]);
  }
}

TEST_F(ClientTest, RefusesAReplyOfAnotherKind) {
  auto service = serve([](const Seen& request) -> Answers {
    if (request.type != wire::RequestBody::Flush) return std::nullopt;
    return std::vector<Bytes>{status_reply(request.request, 1)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->flush(in(seconds(10))).error().code, ErrorCode::corrupt);
}

TEST_F(ClientTest, NamesWhatIsMissingWhenNoServiceIsThere) {
  client::Client::Options options;
  options.dir = dir_.path();
  const auto time = time_of([&] {
    const auto made = client::Client::connect(options);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::unavailable);
    EXPECT_NE(made.error().reason.find("cachesvc serve"), std::string_view::npos);
  });
  EXPECT_LT(time, seconds(2));
}

TEST_F(ClientTest, GivesUpOnAnAttachSocketThatNeverAnswers) {
  auto service = serve({}, {.answer_attach = false});
  client::Client::Options options;
  options.dir = dir_.path();
  options.deadline = in(milliseconds(150));
  const auto time = time_of(
      [&] { EXPECT_EQ(client::Client::connect(options).error().code, ErrorCode::deadline); });
  EXPECT_LT(time, seconds(3));
}

}  // namespace
}  // namespace kv::test
