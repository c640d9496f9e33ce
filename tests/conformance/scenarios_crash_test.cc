// Rows CRASH and DEAD of the scenarios, with their numbers, on one Engine: blocks of 4 tokens.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr SequenceId kThird(3);

// What a client gets for the end of a sequence: ok, or not_found when it has ended already.
ErrorCode end_of(EngineDriver& driver, ClientId client, SequenceId sequence) {
  const Reply reply = driver.step(client, StepScript().free(sequence));
  EXPECT_EQ(reply.error.code, ErrorCode::ok);
  const auto& failures = std::get<StepReply>(reply.body).failures;
  return failures.empty() ? ErrorCode::ok : failures.front().error.code;
}

class Scenarios : public testing::Test {
 protected:
  // Nothing is held, pinned or under way; what is not cached is free.
  static void expect_at_rest(EngineDriver& driver) {
    driver.hold_transfers(false);
    driver.settle();
    const StatusReply status = driver.status();
    EXPECT_EQ(status.sequences, 0U);
    EXPECT_EQ(status.transfers_in_flight, 0U);
    for (const TierStatus& tier : status.tiers) {
      EXPECT_EQ(tier.held + tier.fenced + tier.covered + tier.arriving, 0U);
      EXPECT_EQ(tier.free + tier.cached, tier.slots);
    }
  }
};

// SCENARIOS CRASH-01
TEST_F(Scenarios, Crash01ASequenceCanBeEndedInEveryState) {
  const std::vector<Token> prompt = numbered_tokens(1, 9);
  EngineDriver driver(options_with_slots(8, 8, 0));
  const ClientId client = driver.attach_with_pool();
  // Unknown, and looked up only: there is nothing to end.
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::not_found);
  driver.lookup(client, prompt);
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::not_found);
  // Queued: opened, without a block.
  driver.open(client, kFirst, prompt);
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  expect_at_rest(driver);
  // Allocated.
  driver.admit(client, kFirst, prompt);
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  expect_at_rest(driver);
  // Running.
  driver.admit(client, kFirst, prompt, 4);
  driver.step(client, StepScript().append(kFirst, numbered_tokens(10, 2)));
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  expect_at_rest(driver);
  // Storing: both blocks are on their way to the host.
  driver.hold_transfers(true);
  driver.admit(client, kFirst, prompt);
  driver.step(client, StepScript().publish(kFirst, 8));
  ASSERT_GT(driver.status().transfers_in_flight, 0U);
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  expect_at_rest(driver);
  // Loading, and waiting for what another one loads.
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  driver.admit(client, kFirst, prompt);
  driver.open(client, kSecond, prompt);
  const RequestId waiting = driver.send(client, Admit{.header = {}, .sequence = kSecond});
  driver.settle();
  ASSERT_TRUE(driver.live(client, kFirst).loading);
  EXPECT_EQ(end_of(driver, client, kSecond), ErrorCode::ok);
  EXPECT_EQ(driver.reply_count(client, waiting), 1U) << "its admission was answered, too";
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  expect_at_rest(driver);
  // Finished: again, and again.
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::not_found);
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::not_found);
  expect_at_rest(driver);
}

// SCENARIOS CRASH-07
TEST_F(Scenarios, Crash07AParentIsNeverTakenBeforeItsChild) {
  EngineDriver driver(options_with_slots(4, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 12));  // a chain of 3; 1 slot is free
  driver.open(client, kFirst, numbered_tokens(1, 13));
  ASSERT_EQ(driver.call(client, Admit{.header = {}, .sequence = kFirst}).error.code, ErrorCode::ok);
  driver.open(client, kSecond, numbered_tokens(100, 8));
  EXPECT_EQ(driver.call(client, Admit{.header = {}, .sequence = kSecond}).error.code,
            ErrorCode::exhausted);
  EXPECT_EQ(driver.status().counters.evicted_blocks[0], 0U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 13)).hit_tokens, 12U);
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  // Of the chain only its end goes: 2 blocks are wanted and 1 is free.
  EXPECT_EQ(driver.call(client, Admit{.header = {}, .sequence = kSecond}).error.code,
            ErrorCode::ok);
  EXPECT_EQ(driver.status().counters.evicted_blocks[0], 1U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 13)).hit_tokens, 8U);
}

// SCENARIOS CRASH-07: 5,000 random steps; the driver looks at every node after each.
TEST_F(Scenarios, Crash07NoNodeIsEverWithoutItsParent) {
  EngineDriver driver(options_with_slots(12, 6, 0));
  const ClientId client = driver.attach_with_pool();
  Prng prng(7);
  std::uint32_t live = 0;
  for (std::uint32_t round = 0; round < 1'250; ++round) {  // at least 4 inputs each
    const SequenceId sequence(1 + round % 3);
    if (live >= 3) {
      EXPECT_EQ(end_of(driver, client, sequence), ErrorCode::ok);
      --live;
    }
    std::vector<Token> prompt;  // of few kinds, so that prefixes are shared
    for (std::uint64_t block = 1 + prng.below(4); block > 0; --block) {
      prompt.insert(prompt.end(), 4, static_cast<Token>(prng.below(3)));
    }
    prompt.push_back(9);
    driver.open(client, sequence, prompt);
    if (driver.call(client, Admit{.header = {}, .sequence = sequence}).error.code ==
        ErrorCode::ok) {
      driver.step(client,
                  StepScript().publish(sequence, static_cast<std::uint32_t>(prompt.size())));
    }
    ++live;
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(driver.status().counters.evicted_blocks[0], 100U) << "it was about evictions";
}

// SCENARIOS CRASH-11
TEST_F(Scenarios, Crash11AnIdInUseExistsAndIsFreeAgainAndAnotherClientsOwn) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const ClientId other = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 8));  // running with 2 blocks
  const Engine::SequenceView before = driver.live(client, kFirst);
  const std::vector<SlotId> table(before.table.begin(), before.table.end());
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(50, 4)).error.code, ErrorCode::exists);
  const Engine::SequenceView after = driver.live(client, kFirst);
  EXPECT_EQ(std::vector<SlotId>(after.table.begin(), after.table.end()), table);
  EXPECT_EQ(std::vector<Token>(after.tokens.begin(), after.tokens.end()), numbered_tokens(1, 8));
  EXPECT_EQ(driver.open(other, kFirst, numbered_tokens(50, 4)).error.code, ErrorCode::ok);
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(50, 4)).error.code, ErrorCode::ok);
}

// SCENARIOS CRASH-13: the unit of a store is the block: what is no whole one is left alone.
TEST_F(Scenarios, Crash13AllWholeUnitsAreStoredAndTheTailIsNoError) {
  EngineDriver driver(options_with_slots(80, 80, 0));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 68 * 4 + 3));
  const Reply reply = driver.step(client, StepScript().publish(kFirst, 68 * 4 + 3));
  EXPECT_TRUE(std::get<StepReply>(reply.body).failures.empty());
  EXPECT_EQ(driver.status().counters.published_blocks, 68U);
  EXPECT_EQ(driver.status().counters.saved_blocks[1], 68U);
  EXPECT_EQ(driver.tier(Tier::device).held, 1U);  // the tail
}

// SCENARIOS DEAD-04
TEST_F(Scenarios, Dead04WhatNeverFitsIsRefusedAtOnceAndTheOthersRunInTurn) {
  EngineDriver driver(options_with_slots(4, 0, 0));
  const ClientId client = driver.attach_with_pool();
  EXPECT_EQ(driver.admit(client, SequenceId(9), numbered_tokens(1, 20)).error.code,
            ErrorCode::too_large);
  for (std::uint32_t i = 0; i < 3; ++i) {
    driver.open(client, SequenceId(1 + i), numbered_tokens(100 * (1 + i), 12));
  }
  const auto admit = [&](SequenceId sequence) {
    return driver.call(client, Admit{.header = {}, .sequence = sequence});
  };
  EXPECT_EQ(admit(kFirst).error.code, ErrorCode::ok);
  const Reply refused = admit(kSecond);
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_GT(refused.retry_after_us, 0U);
  EXPECT_EQ(driver.tier(Tier::device).held, 3U) << "who waits holds nothing";
  EXPECT_EQ(end_of(driver, client, kFirst), ErrorCode::ok);
  EXPECT_EQ(admit(kSecond).error.code, ErrorCode::ok);
  EXPECT_EQ(admit(kThird).error.code, ErrorCode::exhausted);
  EXPECT_EQ(end_of(driver, client, kSecond), ErrorCode::ok);
  EXPECT_EQ(admit(kThird).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.status().counters.admissions, 3U) << "no one was put back and admitted anew";
}

}  // namespace
}  // namespace kv::core
