// Rows of SCENARIOS of the classes DEAD and CRASH: everybody gets on, and nothing falls over.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr SequenceId kThird(3);
constexpr BlockOutcome kOk = BlockOutcome::ok;
constexpr BlockOutcome kError = BlockOutcome::io_error;

ErrorCode admit_again(EngineDriver& driver, ClientId client, SequenceId sequence,
                      std::uint32_t max_new_tokens = 0) {
  return driver
      .call(client, Admit{.header = {}, .sequence = sequence, .max_new_tokens = max_new_tokens})
      .error.code;
}

// SCENARIOS DEAD-01
TEST(ScenarioProgress, Dead01TwoThatEachNeedMostOfThePoolBothFinish) {
  EngineDriver driver(options_with_slots(16, 16, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 16));    // 4 blocks of A
  driver.cache_prompt(client, numbered_tokens(101, 24));  // 6 blocks of B
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  ASSERT_EQ(driver.admit(client, kFirst, numbered_tokens(1, 48)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.tier(Tier::device).held, 12U);  // all it will ever need
  const Reply second = driver.admit(client, kSecond, numbered_tokens(101, 40));
  EXPECT_EQ(second.error.code, ErrorCode::exhausted);
  EXPECT_GT(second.retry_after_us, 0U);
  EXPECT_EQ(driver.tier(Tier::device).held, 12U);  // B holds nothing while it waits
  driver.hold_transfers(false);
  driver.settle();
  ASSERT_TRUE(driver.live(client, kFirst).admitted);
  driver.step(client, StepScript().publish(kFirst, 48).free(kFirst));
  EXPECT_EQ(admit_again(driver, client, kSecond), ErrorCode::ok);
  EXPECT_TRUE(driver.live(client, kSecond).admitted);
}

// SCENARIOS DEAD-02
TEST(ScenarioProgress, Dead02WhoDoesNotFitWithItsLookAheadWaitsWithNothing) {
  EngineDriver driver(options_with_slots(7, 0, 0));
  const ClientId client = driver.attach_with_pool();
  ASSERT_EQ(driver.admit(client, kFirst, numbered_tokens(1, 16), 4).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.tier(Tier::device).held, 5U);
  EXPECT_EQ(driver.admit(client, kSecond, numbered_tokens(101, 12), 4).error.code,
            ErrorCode::exhausted);
  EXPECT_EQ(driver.tier(Tier::device).held, 5U);
  // A uses its look-ahead without asking, and ends.
  const Reply step = driver.step(client, StepScript().append(kFirst, numbered_tokens(50, 4)));
  EXPECT_TRUE(std::get<StepReply>(step.body).failures.empty());
  driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(admit_again(driver, client, kSecond, 4), ErrorCode::ok);
}

// SCENARIOS DEAD-03: A waits for what another sequence loads, and holds nothing meanwhile.
TEST(ScenarioProgress, Dead03NobodyWithoutBlocksStandsInTheWayOfAHolder) {
  EngineDriver driver(options_with_slots(8, 16, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));     // 2 blocks
  driver.cache_prompt(client, numbered_tokens(101, 16));  // 4 blocks
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  ASSERT_EQ(driver.admit(client, kFirst, numbered_tokens(1, 9)).error.code, ErrorCode::ok);
  driver.open(client, kSecond, numbered_tokens(1, 16));  // A: needs 4, of which 2 arrive
  const RequestId waits = driver.send(client, Admit{.header = {}, .sequence = kSecond});
  driver.settle();
  EXPECT_EQ(driver.reply_count(client, waits), 0U);
  EXPECT_EQ(driver.tier(Tier::device).held, 3U);
  // B goes past it, with all its blocks.
  ASSERT_EQ(driver.admit(client, kThird, numbered_tokens(101, 17)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.tier(Tier::device).held, 8U);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_TRUE(driver.live(client, kThird).admitted);
  ASSERT_EQ(driver.reply_count(client, waits), 1U);  // it did not fit now, and knows
  EXPECT_EQ(driver.reply(client, waits).error.code, ErrorCode::exhausted);
  driver.step(client, StepScript().free(kFirst).free(kThird));
  EXPECT_EQ(admit_again(driver, client, kSecond), ErrorCode::ok);
  EXPECT_TRUE(driver.live(client, kSecond).admitted);
}

// SCENARIOS DEAD-13
TEST(ScenarioProgress, Dead13WhatCannotBeSavedIsDroppedAndCounted) {
  EngineDriver driver(options_with_slots(4, 2, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));   // both host slots
  driver.admit(client, kFirst, numbered_tokens(1, 9));  // locks them; 3 device slots in use
  driver.cache_prompt(client, numbered_tokens(101, 4));
  ASSERT_EQ(driver.tier(Tier::device).evictable, 1U);
  ASSERT_EQ(driver.tier(Tier::host).evictable, 0U);
  ASSERT_EQ(driver.status().counters.saved_blocks[1], 2U);
  EXPECT_EQ(driver.admit(client, kSecond, numbered_tokens(201, 4)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.status().counters.dropped_unsaved_blocks, 1U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(101, 5)).known_tokens, 0U);
}

// SCENARIOS DEAD-14
TEST(ScenarioProgress, Dead14AllInUseIsExhaustedAndPasses) {
  EngineDriver driver(options_with_slots(2, 4, 0));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  const Reply refused = driver.admit(client, kSecond, numbered_tokens(101, 4));
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_GT(refused.retry_after_us, 0U);
  driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(admit_again(driver, client, kSecond), ErrorCode::ok);
}

// SCENARIOS DEAD-15
TEST(ScenarioProgress, Dead15OnePartOfThreeThatFailsEndsTheLoadWithoutADeadline) {
  EngineDriver driver(options_with_slots(4, 4, 0));
  driver.allow_quarantine();
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 12));
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 13));
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  const std::vector<BlockOutcome> outcomes{kOk, kError, kOk};
  driver.finish_transfer(0, outcomes);
  driver.settle();
  ASSERT_EQ(driver.notices(client).size(), 1U);
  EXPECT_EQ(driver.notices(client)[0].code, ErrorCode::busy);
  EXPECT_EQ(driver.tier(Tier::device).held, 0U);
  driver.hold_transfers(false);
  EXPECT_EQ(admit_again(driver, client, kFirst), ErrorCode::ok);
  EXPECT_TRUE(driver.live(client, kFirst).admitted);
  EXPECT_EQ(driver.status().counters.hit_tokens[0], 4U);  // the first part had arrived
}

// SCENARIOS CRASH-02: preempted by ending it and opening it again.
TEST(ScenarioProgress, Crash02AdmittedAgainWhileItsSavesRunReadsTheSameBlocks) {
  EngineDriver driver(options_with_slots(8, 8, 0));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 28));
  driver.step(client, StepScript().publish(kFirst, 28));
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  ASSERT_EQ(driver.transfers().pending()[0].blocks.size(), 7U);
  const Engine::SequenceView before = driver.live(client, kFirst);
  const std::vector<SlotId> slots(before.table.begin(), before.table.begin() + 7);
  driver.step(client, StepScript().free(kFirst));
  const Reply again = driver.admit(client, kSecond, numbered_tokens(1, 29));
  ASSERT_EQ(again.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(again.body).account.hit_tokens[0], 28U);
  const Engine::SequenceView after = driver.live(client, kSecond);
  EXPECT_EQ(std::vector<SlotId>(after.table.begin(), after.table.begin() + 7), slots);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.status().counters.saved_blocks[1], 7U);
  EXPECT_EQ(driver.status().transfers_in_flight, 0U);
}

// SCENARIOS CRASH-03: a look-up reserves nothing; what an admission gets is told.
TEST(ScenarioProgress, Crash03WhatALookupFoundMayBeGoneAndTheAdmissionSaysSo) {
  for (const bool revoked : {false, true}) {
    SCOPED_TRACE(revoked);
    EngineDriver driver(options_with_slots(8, 8, 0));
    const ClientId client = driver.attach_with_pool();
    const ClientId admin = driver.attach(ClientRole::admin);
    driver.cache_prompt(client, numbered_tokens(1, 8));
    driver.call(client, Demote{.header = {}, .tier = Tier::device});
    ASSERT_EQ(driver.lookup(client, numbered_tokens(1, 9)).hit_tokens_by_tier[1], 8U);
    if (revoked) {
      driver.call(admin, Clear{.header = {}, .all_tiers = false, .tier = Tier::host});
    }
    const Reply reply = driver.admit(client, kFirst, numbered_tokens(1, 9));
    ASSERT_EQ(reply.error.code, ErrorCode::ok);
    const Account& account = std::get<AdmitReply>(reply.body).account;
    EXPECT_EQ(account.hit_tokens[1], revoked ? 0U : 8U);
    EXPECT_EQ(account.computed_tokens, revoked ? 9U : 1U);
  }
}

// SCENARIOS CRASH-08
TEST(ScenarioProgress, Crash08AThousandForcedOffloadsKeepEveryGaugeInItsRange) {
  EngineDriver driver(options_with_slots(2, 2, 0));
  const ClientId client = driver.attach_with_pool();
  driver.check_every(13);
  for (Token round = 0; round < 1'000; ++round) {
    driver.cache_prompt(client, numbered_tokens(round * 8, 8));
    for (const Tier tier : {Tier::device, Tier::host}) {
      const TierStatus& now = driver.tier(tier);
      ASSERT_LE(now.free, 2U);
      ASSERT_EQ(now.free + now.held + now.cached + now.fenced, 2U) << round;
      ASSERT_LE(now.covered, now.cached);
    }
  }
  EXPECT_EQ(driver.status().counters.saved_blocks[1], 2'000U);
}

// SCENARIOS CRASH-15: both compute, both publish; one is there already.
TEST(ScenarioProgress, Crash15TwoClientsThatPublishTheSameBlocksKeepOneCopyOfEach) {
  EngineDriver driver(options_with_slots(16, 0, 0));
  const ClientId one = driver.attach_with_pool();
  const ClientId other = driver.attach_with_pool();
  driver.check_every(29);
  for (std::uint32_t round = 0; round < 1'000; ++round) {
    const std::vector<Token> tokens = numbered_tokens(round * 8, 8);
    const SequenceId sequence(round + 1);
    for (const ClientId client : {one, other}) {
      ASSERT_EQ(driver.admit(client, sequence, tokens).error.code, ErrorCode::ok);
    }
    for (const ClientId client : {one, other}) {
      const Reply reply = driver.step(client, StepScript().publish(sequence, 8));
      ASSERT_TRUE(std::get<StepReply>(reply.body).failures.empty());
    }
    for (const ClientId client : {one, other}) {
      driver.step(client, StepScript().acknowledge(sequence, 3).free(sequence));
    }
    const Counters& counters = driver.status().counters;
    ASSERT_EQ(counters.published_blocks, 2 * (round + 1U));
    ASSERT_EQ(counters.rewritten_blocks, 2 * (round + 1U));
  }
  EXPECT_EQ(driver.tier(Tier::device).held, 0U);
}

// SCENARIOS CRASH-17
TEST(ScenarioProgress, Crash17LessLoadedThanPromisedIsAFailureAndCountersOnlyGrow) {
  EngineDriver driver(options_with_slots(8, 8, 0));
  driver.allow_quarantine();
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  const Reply promised = driver.admit(client, kFirst, numbered_tokens(1, 9));
  ASSERT_EQ(std::get<AdmitReply>(promised.body).account.hit_tokens[1], 8U);
  const std::vector<BlockOutcome> outcomes{kError, kError};
  driver.finish_transfer(0, outcomes);
  driver.settle();
  ASSERT_EQ(driver.notices(client).size(), 1U);
  EXPECT_EQ(driver.notices(client)[0].code, ErrorCode::busy);
  const Counters& counters = driver.status().counters;
  EXPECT_EQ(counters.failed_blocks[1], 2U);
  EXPECT_EQ(counters.hit_tokens[1], 0U);  // nothing is counted as hit that was not delivered
  EXPECT_EQ(counters.loaded_blocks[1], 0U);
  EXPECT_EQ(admit_again(driver, client, kFirst), ErrorCode::ok);
  EXPECT_EQ(driver.status().counters.computed_tokens, 8U + 9U);
}

}  // namespace
}  // namespace kv::core
