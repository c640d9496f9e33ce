// Rows of SCENARIOS of the class LEAK: whatever ends how, each slot comes back once.
#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

void expect_nothing_in_use(EngineDriver& driver) {
  for (const Tier tier : {Tier::device, Tier::host}) {
    const TierStatus& now = driver.tier(tier);
    EXPECT_EQ(now.free + now.cached, now.slots) << tier_name(tier);
    EXPECT_EQ(now.evictable, now.cached) << tier_name(tier);
  }
}

std::size_t failures_of(const Reply& reply) {
  const auto* body = std::get_if<StepReply>(&reply.body);
  return body == nullptr ? 999 : body->failures.size();
}

// SCENARIOS LEAK-02
TEST(ScenarioLeaks, Leak02AbortWhileLoadingKeepsTheBlocksUntilTheLoadHasEnded) {
  EngineDriver driver(options_with_slots(4, 4, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 9));
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  const Reply aborted = driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(failures_of(aborted), 0U);
  EXPECT_EQ(driver.tier(Tier::device).held, 3U);  // the load may still write
  EXPECT_EQ(driver.tier(Tier::host).evictable, 0U);
  driver.advance(std::chrono::milliseconds(5));
  driver.finish_transfer(0);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::device).free, 4U);
  EXPECT_FALSE(driver.view(client, kFirst).has_value());
  EXPECT_EQ(driver.status().sequences, 0U);
  expect_nothing_in_use(driver);
}

// SCENARIOS LEAK-04: ALREADY_DONE is not_found here: an ended sequence has no name any more.
TEST(ScenarioLeaks, Leak04EndedTwiceWithALateCompletionIsReleasedOnce) {
  EngineDriver driver(options_with_slots(4, 4, 0));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  driver.step(client, StepScript().publish(kFirst, 8));
  ASSERT_EQ(driver.transfers().pending().size(), 1U);  // its save reads both blocks
  EXPECT_EQ(failures_of(driver.step(client, StepScript().free(kFirst))), 0U);
  EXPECT_EQ(driver.tier(Tier::device).evictable, 0U);
  const Reply again = driver.step(client, StepScript().free(kFirst));
  ASSERT_EQ(failures_of(again), 1U);
  EXPECT_EQ(std::get<StepReply>(again.body).failures[0].error.code, ErrorCode::not_found);
  driver.finish_transfer(0);
  driver.settle();
  driver.tick();
  EXPECT_EQ(driver.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver.tier(Tier::device).evictable, 2U);
  expect_nothing_in_use(driver);
}

// SCENARIOS LEAK-07
TEST(ScenarioLeaks, Leak07TenThousandStoresNeverTakeMoreThanTheHostHas) {
  EngineDriver driver(options_with_slots(8, 8, 0));
  const ClientId client = driver.attach_with_pool();
  driver.check_every(101);
  Prng prng(7);
  Token next = 1;
  for (int cycle = 0; cycle < 10'000; ++cycle) {
    const auto blocks = static_cast<std::uint32_t>(1 + prng.below(4));
    driver.cache_prompt(client, numbered_tokens(next, 4 * blocks));
    next += 4 * blocks;
    const TierStatus& host = driver.tier(Tier::host);
    ASSERT_LE(host.held + host.cached, 8U) << cycle;
  }
  driver.cache_prompt(client, numbered_tokens(next, 16));
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  expect_nothing_in_use(driver);
  EXPECT_EQ(driver.tier(Tier::host).evictable, driver.tier(Tier::host).cached);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(next, 17)).hit_tokens_by_tier[1], 16U);
}

// SCENARIOS LEAK-09
TEST(ScenarioLeaks, Leak09StoreThatFindsPinnedBlocksKeepsWhatFitsAndAllOfItLater) {
  EngineDriver driver(options_with_slots(32, 8, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 24));   // 6 blocks
  driver.cache_prompt(client, numbered_tokens(101, 8));  // 2 blocks
  ASSERT_EQ(driver.tier(Tier::host).cached, 8U);
  driver.admit(client, kFirst, numbered_tokens(1, 25));  // pins the six
  ASSERT_EQ(driver.tier(Tier::host).evictable, 2U);
  const auto saved = [&] { return driver.status().counters.saved_blocks[1]; };
  ASSERT_EQ(saved(), 8U);
  driver.cache_prompt(client, numbered_tokens(201, 16));
  EXPECT_EQ(saved(), 10U);  // two of four
  EXPECT_EQ(driver.lookup(client, numbered_tokens(201, 17)).hit_tokens, 16U);
  driver.step(client, StepScript().free(kFirst));
  driver.advance(std::chrono::seconds(1));
  driver.cache_prompt(client, numbered_tokens(301, 16));
  EXPECT_EQ(saved(), 14U);  // all four
  expect_nothing_in_use(driver);
}

// SCENARIOS LEAK-14: the driver counts the owners of every slot after each input.
TEST(ScenarioLeaks, Leak14RandomStepsCountEveryBlockInOnePlace) {
  EngineDriver driver(options_with_slots(20, 6, 0));
  const ClientId client = driver.attach_with_pool();
  Prng prng(14);
  std::uint64_t next = 1;
  std::vector<SequenceId> live;
  for (int step = 0; step < 5'000 && !testing::Test::HasFailure(); ++step) {
    if (live.size() < 4 && prng.chance(1, 2)) {
      std::vector<Token> tokens(1 + prng.below(24), 7);
      tokens[prng.below(tokens.size())] = static_cast<Token>(prng.below(3));
      const SequenceId sequence(next++);
      const Reply reply = driver.admit(client, sequence, tokens);
      if (reply.error.code == ErrorCode::ok && prng.chance(2, 3)) {
        driver.step(client,
                    StepScript().publish(sequence, static_cast<std::uint32_t>(tokens.size())));
      }
      live.push_back(sequence);
    } else if (!live.empty()) {
      const std::size_t which = prng.below(live.size());
      driver.step(client, StepScript().free(live[which]));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const TierStatus& device = driver.tier(Tier::device);
    ASSERT_EQ(device.free + device.cached + device.held, 20U) << step;
  }
  EXPECT_GT(driver.status().counters.evicted_blocks[0], 100U);
}

// SCENARIOS LEAK-20: slots are released by their sequence: it is what can be listed twice.
TEST(ScenarioLeaks, Leak20OneSequenceNamedTwiceInOneReleaseIsReleasedOnce) {
  EngineDriver driver(options_with_slots(6, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 4));
  ASSERT_EQ(driver.tier(Tier::device).free, 5U);
  const Reply reply = driver.step(client, StepScript().free(kFirst).free(kFirst));
  ASSERT_EQ(failures_of(reply), 1U);
  EXPECT_EQ(std::get<StepReply>(reply.body).failures[0].item, 1U);
  EXPECT_EQ(std::get<StepReply>(reply.body).ended.size(), 1U);
  EXPECT_EQ(driver.tier(Tier::device).free, 6U);
}

// SCENARIOS LEAK-21
TEST(ScenarioLeaks, Leak21FreedTwiceThenGivenOutAreTwoDifferentBlocks) {
  EngineDriver driver(options_with_slots(6, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 4));
  EXPECT_EQ(failures_of(driver.step(client, StepScript().free(kFirst))), 0U);
  const Reply again = driver.step(client, StepScript().free(kFirst));
  ASSERT_EQ(failures_of(again), 1U);
  EXPECT_EQ(std::get<StepReply>(again.body).failures[0].error.code, ErrorCode::not_found);
  driver.admit(client, kFirst, numbered_tokens(1, 4));
  driver.admit(client, kSecond, numbered_tokens(1, 4));
  EXPECT_NE(driver.live(client, kFirst).table[0], driver.live(client, kSecond).table[0]);
  EXPECT_EQ(driver.tier(Tier::device).free, 4U);
}

}  // namespace
}  // namespace kv::core
