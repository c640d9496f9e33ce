// Clients: requests with ids, repetition, credits, roles.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

Hello hello() {
  Hello request;
  request.protocol_version = 1;
  request.name = "test";
  return request;
}

TEST(Clients, HelloTellsTheLeaseAndTheCredits) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.lease = std::chrono::milliseconds(2500);
  options.credits_per_client = 7;
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  const Reply reply = driver.call(client, hello());
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<HelloReply>(reply.body).lease_ms, 2500U);
  EXPECT_EQ(std::get<HelloReply>(reply.body).credits, 7U);
}

TEST(Clients, RequestOfAnUnknownClientIsStale) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId stranger(77);
  EXPECT_EQ(driver.call(stranger, Heartbeat{}).error.code, ErrorCode::stale);
  EXPECT_EQ(driver.status().clients, 0U);
}

TEST(Clients, OneClientBeyondTheCapacityStaysUnknown) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.client_capacity = 1;
  EngineDriver driver(options);
  const ClientId known = driver.attach();
  const ClientId unknown = driver.attach();
  EXPECT_EQ(driver.call(known, Heartbeat{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(unknown, Heartbeat{}).error.code, ErrorCode::stale);
  EXPECT_EQ(driver.status().clients, 1U);
}

TEST(Clients, RepeatedOpenGetsTheSameReplyAndNoSecondEffect) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> tokens = numbered_tokens(1, 5);
  const NamespaceFields fields;
  const Open open{
      .header = {}, .sequence = kFirst, .first = true, .fields = &fields, .tokens = tokens};
  const RequestId id = driver.send(client, open);
  ASSERT_EQ(driver.reply(client, id).error.code, ErrorCode::ok);
  driver.send_as(client, id, open);
  EXPECT_EQ(driver.reply_count(client, id), 2U);
  EXPECT_EQ(driver.reply(client, id).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.live(client, kFirst).tokens.size(), 5U);
  EXPECT_EQ(driver.status().counters.repeated_requests, 1U);
}

TEST(Clients, RepeatedAdmitGetsTheSameSlots) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.open(client, kFirst, numbered_tokens(1, 9));
  const Admit admit{.header = {}, .sequence = kFirst, .max_new_tokens = 0};
  const RequestId id = driver.send(client, admit);
  const auto slots = std::get<AdmitReply>(driver.reply(client, id).body).slots;
  ASSERT_EQ(slots.size(), 3U);
  driver.send_as(client, id, admit);
  ASSERT_EQ(driver.reply_count(client, id), 2U);
  const Reply repeated = driver.reply(client, id);
  ASSERT_EQ(repeated.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(repeated.body).slots, slots);
  EXPECT_EQ(std::get<AdmitReply>(repeated.body).block_count, 3U);
  EXPECT_EQ(driver.tier(Tier::device).held, 3U);
  EXPECT_EQ(driver.status().counters.admissions, 1U);
}

TEST(Clients, RepeatedStepAppendsOnce) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 4), 4);
  StepScript script;
  script.append(kFirst, numbered_tokens(5, 1));
  const RequestId id = driver.send(client, script.at(1, 0));
  driver.send_as(client, id, script.at(1, 0));
  EXPECT_EQ(driver.reply(client, id).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.live(client, kFirst).tokens.size(), 5U);
}

TEST(Clients, RepetitionOlderThanTheKeptRepliesIsStale) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.credits_per_client = 2;
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  for (int i = 0; i < 4; ++i) driver.call(client, Heartbeat{});  // ids 1 to 4: 3 and 4 are kept
  driver.send_as(client, RequestId(2), Heartbeat{});
  EXPECT_EQ(driver.reply(client, RequestId(2)).error.code, ErrorCode::stale);
  driver.send_as(client, RequestId(3), Heartbeat{});
  EXPECT_EQ(driver.reply(client, RequestId(3)).error.code, ErrorCode::ok);
  driver.send_as(client, RequestId(4), Heartbeat{});
  EXPECT_EQ(driver.reply(client, RequestId(4)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.status().counters.repeated_requests, 2U);
}

TEST(Clients, GapInTheRequestIdsIsAllowed) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach();
  driver.call(client, Heartbeat{});
  driver.send_as(client, RequestId(9), Heartbeat{});
  EXPECT_EQ(driver.reply(client, RequestId(9)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(client, Heartbeat{}).error.code, ErrorCode::ok);  // 10
}

// A Flush stays in progress as long as its transfers are held back.
TEST(Clients, MoreRequestsInProgressThanCreditsAreBusyWithAHint) {
  Engine::Options options = options_with_slots(8, 8, 8);
  options.credits_per_client = 1;
  options.write_through = false;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.hold_transfers(true);
  const RequestId flush = driver.send(client, Flush{});
  driver.settle();
  ASSERT_EQ(driver.reply_count(client, flush), 0U);
  const Reply refused = driver.call(client, Heartbeat{});
  EXPECT_EQ(refused.error.code, ErrorCode::busy);
  EXPECT_GT(refused.retry_after_us, 0U);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.reply_count(client, flush), 1U);
  EXPECT_EQ(driver.call(client, Heartbeat{}).error.code, ErrorCode::ok);
}

TEST(Clients, RepetitionOfARequestInProgressIsAnsweredOnceByItsReply) {
  Engine::Options options = options_with_slots(8, 8, 8);
  options.write_through = false;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.hold_transfers(true);
  const RequestId flush = driver.send(client, Flush{});
  driver.settle();
  driver.send_as(client, flush, Flush{});
  driver.settle();
  EXPECT_EQ(driver.reply_count(client, flush), 0U);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.reply_count(client, flush), 1U);
  EXPECT_EQ(std::get<FlushReply>(driver.reply(client, flush).body).durable_blocks, 2U);
}

TEST(Clients, ObserverMayLookButNotChange) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  driver.attach_with_pool();
  const ClientId observer = driver.attach(ClientRole::observer);
  const NamespaceFields fields;
  const std::vector<Token> tokens = numbered_tokens(1, 5);
  const KvLayout layout = one_group_layout();
  EXPECT_EQ(driver.call(observer, hello()).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(observer, Heartbeat{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(observer, Status{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(observer, Tree{}).error.code, ErrorCode::ok);
  EXPECT_EQ(
      driver.call(observer, Lookup{.header = {}, .fields = &fields, .tokens = tokens}).error.code,
      ErrorCode::ok);
  EXPECT_EQ(driver.call(observer, AttachPool{.header = {}, .layout = &layout}).error.code,
            ErrorCode::denied);
  EXPECT_EQ(driver.open(observer, kFirst, tokens).error.code, ErrorCode::denied);
  EXPECT_EQ(driver.call(observer, Admit{.header = {}, .sequence = kFirst}).error.code,
            ErrorCode::denied);
  EXPECT_EQ(driver.call(observer, StepScript().free(kFirst).at(1, 1)).error.code,
            ErrorCode::denied);
  EXPECT_EQ(driver.call(observer, Demote{}).error.code, ErrorCode::denied);
  EXPECT_EQ(driver.call(observer, Flush{}).error.code, ErrorCode::denied);
  EXPECT_EQ(driver.call(observer, Bye{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.status().sequences, 0U);
}

TEST(Clients, AdminMayDemoteAndFlush) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  driver.attach_with_pool();
  const ClientId admin = driver.attach(ClientRole::admin);
  EXPECT_EQ(driver.call(admin, Demote{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(admin, Flush{}).error.code, ErrorCode::ok);
}

TEST(Clients, SequenceIdsAreTheClientsOwn) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId one = driver.attach_with_pool();
  const ClientId other = driver.attach_with_pool();
  EXPECT_EQ(driver.open(one, kFirst, numbered_tokens(1, 4)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.open(other, kFirst, numbered_tokens(50, 6)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.open(one, kFirst, numbered_tokens(1, 4)).error.code, ErrorCode::exists);
  EXPECT_EQ(driver.live(one, kFirst).tokens.size(), 4U);
  EXPECT_EQ(driver.live(other, kFirst).tokens.size(), 6U);
  EXPECT_EQ(driver.call(other, Admit{.header = {}, .sequence = kSecond}).error.code,
            ErrorCode::not_found);
}

TEST(KeptReplies, TakeBoundedMemoryWhateverTheyAreMadeOf) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  StepScript script;
  for (std::uint32_t i = 0; i < kStepItemsMax; ++i) script.publish(SequenceId(i + 1), 4);
  std::vector<RequestId> ids;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    ids.push_back(driver.send(client, script.at(step, step)));
    const Reply reply = driver.reply(client, ids.back());
    ASSERT_EQ(std::get<StepReply>(reply.body).failures.size(), kStepItemsMax);
  }
  // One keeps about 200 KiB: 1 MiB holds the last few, not ten.
  driver.send_as(client, ids.front(), script.at(1, 1));
  EXPECT_EQ(driver.reply(client, ids.front()).error.code, ErrorCode::stale);
  driver.send_as(client, ids.back(), script.at(10, 10));
  EXPECT_EQ(driver.reply(client, ids.back()).error.code, ErrorCode::ok);
}

}  // namespace
}  // namespace kv::core
