// Requests that come while another of the same client or sequence goes on.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

// Two blocks in the host only; transfers are held back.
class Interruptions : public testing::Test {
 protected:
  Interruptions() : driver_(options()), client_(driver_.attach_with_pool()) {
    driver_.cache_prompt(client_, numbered_tokens(1, 8));  // step 1
    driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
    driver_.hold_transfers(true);
  }
  static Engine::Options options() {
    Engine::Options options = options_with_slots(8, 8, 8);
    options.notices_per_client = 1;
    options.write_through = false;
    return options;
  }
  void load(SequenceId sequence) {
    const Reply reply = driver_.admit(client_, sequence, numbered_tokens(1, 9));
    ASSERT_EQ(reply.error.code, ErrorCode::ok);
    ASSERT_FALSE(std::get<AdmitReply>(reply.body).ready);
  }
  void finish_all() {
    driver_.hold_transfers(false);
    driver_.settle();
  }
  void expect_nothing_in_use() {
    for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
      EXPECT_EQ(driver_.tier(tier).held, 0U) << tier_name(tier);
      EXPECT_EQ(driver_.tier(tier).covered, 0U) << tier_name(tier);
    }
    EXPECT_EQ(driver_.status().sequences, 0U);
    EXPECT_EQ(driver_.engine().transfer_count(), 0U);
  }

  EngineDriver driver_;
  ClientId client_;
};

TEST_F(Interruptions, FreeWhileLoadingEndsTheSequenceWhenTheLoadEnds) {
  load(kFirst);
  const Reply reply = driver_.step(client_, StepScript().free(kFirst));
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<StepReply>(reply.body).ended.size(), 1U);
  EXPECT_GE(driver_.tier(Tier::device).held, 2U);
  finish_all();
  expect_nothing_in_use();
  EXPECT_TRUE(driver_.notices(client_).empty());
}

TEST_F(Interruptions, IdOfASequenceFreedWhileLoadingCanBeUsedAtOnce) {
  load(kFirst);
  driver_.step(client_, StepScript().free(kFirst));
  EXPECT_EQ(driver_.open(client_, kFirst, numbered_tokens(500, 4)).error.code, ErrorCode::ok);
  finish_all();
  ASSERT_TRUE(driver_.view(client_, kFirst).has_value());
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 4U);
  EXPECT_FALSE(driver_.live(client_, kFirst).admitted);
}

TEST_F(Interruptions, FreeOfASequenceThatWaitsForTheLoadOfAnotherAnswersItsAdmit) {
  load(kFirst);
  driver_.open(client_, kSecond, numbered_tokens(1, 9));
  const RequestId id = driver_.send(client_, Admit{.header = {}, .sequence = kSecond});
  driver_.step(client_, StepScript().free(kSecond));
  finish_all();
  EXPECT_EQ(driver_.reply_count(client_, id), 1U);
  EXPECT_FALSE(driver_.view(client_, kSecond).has_value());
  driver_.step(client_, StepScript().free(kFirst));
  expect_nothing_in_use();
}

TEST_F(Interruptions, AdmitAndOpenOfALoadingSequenceAreInvalid) {
  load(kFirst);
  EXPECT_EQ(driver_.call(client_, Admit{.header = {}, .sequence = kFirst}).error.code,
            ErrorCode::invalid);
  EXPECT_EQ(driver_
                .call(client_, Open{.header = {},
                                    .sequence = kFirst,
                                    .first = false,
                                    .fields = nullptr,
                                    .tokens = numbered_tokens(10, 1)})
                .error.code,
            ErrorCode::invalid);
  finish_all();
  EXPECT_TRUE(driver_.live(client_, kFirst).admitted);
}

TEST_F(Interruptions, OnlyTheNewestNoticesAreKept) {
  load(kFirst);
  finish_all();
  driver_.step(client_, StepScript().free(kFirst));
  driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
  driver_.hold_transfers(true);
  load(kSecond);
  finish_all();
  ASSERT_EQ(driver_.notices(client_).size(), 2U);
  ASSERT_EQ(driver_.engine().unacknowledged(client_).size(), 1U);
  EXPECT_EQ(driver_.engine().unacknowledged(client_)[0].number, 2U);
  EXPECT_EQ(driver_.engine().unacknowledged(client_)[0].sequence, kSecond);
}

TEST_F(Interruptions, DeathDuringAFlushLeavesNothing) {
  driver_.hold_syncs(true);
  const RequestId id = driver_.send(client_, Flush{});
  driver_.settle();
  ASSERT_FALSE(driver_.transfers().pending().empty());
  driver_.input(ClientGone{client_});
  finish_all();
  driver_.hold_syncs(false);
  driver_.settle();
  EXPECT_EQ(driver_.reply_count(client_, id), 0U);
  expect_nothing_in_use();
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 2U);
}

TEST_F(Interruptions, DeathBetweenTheFlushAndItsSyncLeavesNothing) {
  driver_.hold_syncs(true);
  driver_.hold_transfers(false);
  driver_.send(client_, Flush{});
  driver_.settle();
  ASSERT_EQ(driver_.pending_syncs().size(), 1U);
  driver_.input(ClientGone{client_});
  driver_.hold_syncs(false);
  driver_.settle();
  expect_nothing_in_use();
}

TEST_F(Interruptions, FailedSyncIsAnErrorOfTheFlush) {
  driver_.hold_syncs(true);
  driver_.hold_transfers(false);
  const RequestId id = driver_.send(client_, Flush{});
  driver_.settle();
  driver_.finish_sync(false);
  driver_.settle();
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  EXPECT_EQ(driver_.reply(client_, id).error.code, ErrorCode::unavailable);
}

// On a disk with less room than they want, one's saves evict what another counts.
class FlushesAtOnce : public testing::TestWithParam<int> {};

TEST_P(FlushesAtOnce, EachTellHowManyBlocksLieOnTheDiskWhenTheySync) {
  Engine::Options options = options_with_slots(8, 8, 2);
  options.write_through = false;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  for (const Token first : {100U, 200U, 300U}) {
    driver.cache_prompt(client, numbered_tokens(first, 4));
  }
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  driver.hold_syncs(true);
  std::vector<RequestId> flushes;
  std::vector<std::uint64_t> lying;  // on the disk at each sync
  for (int step = 0; step < 1'000 && lying.size() < 3; ++step) {
    if (step % GetParam() == 0 && flushes.size() < 3) {
      flushes.push_back(driver.send(client, Flush{}));
    } else if (!driver.transfers().pending().empty()) {
      driver.finish_transfer(0);
    } else if (driver.continue_wanted()) {
      driver.input(Continue{});
    }
    lying.resize(driver.pending_syncs().size(), driver.transfers().disk_index().size());
  }
  ASSERT_EQ(lying.size(), 3U);
  driver.hold_syncs(false);
  driver.hold_transfers(false);
  driver.settle();
  std::vector<std::uint64_t> told;
  for (const RequestId flush : flushes) {
    const Reply reply = driver.reply(client, flush);
    told.push_back(std::get<FlushReply>(reply.body).durable_blocks);
  }
  std::ranges::sort(told);
  std::ranges::sort(lying);
  EXPECT_EQ(told, lying);
}

INSTANTIATE_TEST_SUITE_P(StepsBetweenThem, FlushesAtOnce, ::testing::Range(1, 8));

TEST_F(Interruptions, DeathDuringADemotionLeavesNothing) {
  driver_.send(client_, Demote{.header = {}, .tier = Tier::host});
  driver_.settle();
  ASSERT_FALSE(driver_.transfers().pending().empty());
  driver_.input(ClientGone{client_});
  finish_all();
  expect_nothing_in_use();
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 2U);
}

TEST_F(Interruptions, SecondAttachOfAClientChangesNothing) {
  load(kFirst);
  driver_.input(ClientAttached{
      .client = client_, .role = ClientRole::observer, .tenant = "tenant", .process_id = 7});
  finish_all();
  EXPECT_TRUE(driver_.live(client_, kFirst).admitted);
  EXPECT_EQ(driver_.status().clients, 1U);
  EXPECT_EQ(driver_.step(client_, StepScript().free(kFirst)).error.code, ErrorCode::ok);
}

TEST_F(Interruptions, ContinueAndTickWithoutNeedChangeNothing) {
  load(kFirst);
  const StatusReply before = driver_.status();
  driver_.input(Continue{});
  driver_.tick();
  EXPECT_FALSE(driver_.continue_wanted());
  EXPECT_EQ(driver_.status().tiers, before.tiers);
  EXPECT_EQ(driver_.status().counters, before.counters);
  EXPECT_TRUE(driver_.last_actions().transfers.empty());
}

// A step of 20,000 blocks goes on in Continue; the next step of the client must wait for it.
TEST(SuspendedStep, NextStepIsBusyUntilItIsDoneAndThenTheSameIdWorks) {
  constexpr std::uint32_t kBlocks = 20'000;
  EngineDriver driver(options_with_slots(kBlocks, 0, 0, 1));
  const ClientId client = driver.attach_with_pool(1);
  driver.admit(client, kFirst, numbered_tokens(1, kBlocks - 1), 1);
  const RequestId first = driver.send(client, StepScript().publish(kFirst, kBlocks - 1).at(1, 1));
  ASSERT_EQ(driver.reply_count(client, first), 0U);
  StepScript script;
  script.append(kFirst, numbered_tokens(900'000, 1));
  const RequestId second = driver.send(client, script.at(2, 2));
  ASSERT_EQ(driver.reply_count(client, second), 1U);
  EXPECT_EQ(driver.reply(client, second).error.code, ErrorCode::busy);
  EXPECT_GT(driver.reply(client, second).retry_after_us, 0U);
  driver.settle();
  EXPECT_EQ(driver.reply(client, first).error.code, ErrorCode::ok);
  driver.send_as(client, second, script.at(2, 2));
  driver.settle();
  EXPECT_EQ(driver.reply(client, second).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.live(client, kFirst).tokens.size(), kBlocks);
}

}  // namespace
}  // namespace kv::core
