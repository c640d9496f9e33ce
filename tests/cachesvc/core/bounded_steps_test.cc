// No step does more than kStepBlocksMax block operations, however long the work is.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr std::uint32_t kBlocks = 20'000;
// The first step and these: 10 steps of 2,048 hold 20,000 operations.
constexpr std::uint64_t kContinuesMin = kBlocks / kStepBlocksMax;
// Each block may take several operations (evict, take, insert, ...), but not any number.
constexpr std::uint64_t kContinuesMax = 6 * (kContinuesMin + 1);

static_assert(kContinuesMin == 9);

// One token a block, and a pool of exactly kBlocks.
class BoundedSteps : public testing::Test {
 protected:
  explicit BoundedSteps(std::uint32_t host_slots = 0)
      : driver_(options_with_slots(kBlocks, host_slots, 0, 1)),
        client_(driver_.attach_with_pool(1)) {}

  // Goes on to the end. Returns the number of Continues; each step is looked at.
  std::uint64_t go_on() {
    std::uint64_t continues = 0;
    while (driver_.continue_wanted() && continues <= kContinuesMax) {
      observe([&] { driver_.input(Continue{}); });
      ++continues;
    }
    EXPECT_LE(continues, kContinuesMax);
    return continues;
  }
  // One step may change no more facts than it has block operations.
  template <class Action>
  void observe(const Action& action) {
    const StatusReply before = driver_.status();
    action();
    const StatusReply after = driver_.status();
    const auto difference = [](std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; };
    const TierStatus& then = before.tiers[0];
    const TierStatus& now = after.tiers[0];
    EXPECT_LE(difference(then.free, now.free), kStepBlocksMax);
    EXPECT_LE(difference(then.held, now.held), kStepBlocksMax);
    EXPECT_LE(difference(then.cached, now.cached), kStepBlocksMax);
    EXPECT_LE(difference(then.fenced, now.fenced), kStepBlocksMax);
    EXPECT_LE(difference(before.tree_blocks, after.tree_blocks), kStepBlocksMax);
    EXPECT_LE(after.counters.evicted_blocks[0] - before.counters.evicted_blocks[0], kStepBlocksMax);
  }
  template <class Request>
  RequestId send(const Request& request) {
    RequestId id;
    observe([&] { id = driver_.send(client_, request); });
    return id;
  }
  void hold_all(SequenceId sequence) {
    ASSERT_EQ(driver_.admit(client_, sequence, numbered_tokens(1, kBlocks)).error.code,
              ErrorCode::ok);
    ASSERT_EQ(driver_.tier(Tier::device).held, kBlocks);
  }

  EngineDriver driver_;
  ClientId client_;
};

TEST_F(BoundedSteps, LongAdmissionGoesOnAndRepliesLast) {
  driver_.open(client_, kFirst, numbered_tokens(1, kBlocks));
  const RequestId id = send(Admit{.header = {}, .sequence = kFirst, .max_new_tokens = 0});
  EXPECT_EQ(driver_.reply_count(client_, id), 0U);
  EXPECT_GE(go_on(), kContinuesMin);
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  const Reply reply = driver_.reply(client_, id);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_TRUE(std::get<AdmitReply>(reply.body).ready);
  EXPECT_EQ(std::get<AdmitReply>(reply.body).slots.size(), kBlocks);
  EXPECT_EQ(driver_.tier(Tier::device).held, kBlocks);
}

TEST_F(BoundedSteps, OthersAreAnsweredWhileALongAdmissionGoesOn) {
  const ClientId other = driver_.attach_with_pool(1);
  driver_.open(client_, kFirst, numbered_tokens(1, kBlocks));
  send(Admit{.header = {}, .sequence = kFirst, .max_new_tokens = 0});
  driver_.input(Continue{});
  const RequestId beat = driver_.send(other, Heartbeat{});
  EXPECT_EQ(driver_.reply_count(other, beat), 1U);
  EXPECT_TRUE(driver_.continue_wanted());
}

TEST_F(BoundedSteps, WhatALongAdmissionTookIsNotGivenToOthers) {
  const ClientId other = driver_.attach_with_pool(1);
  driver_.open(client_, kFirst, numbered_tokens(1, kBlocks));
  const RequestId id = send(Admit{.header = {}, .sequence = kFirst, .max_new_tokens = 0});
  driver_.input(Continue{});
  driver_.open(other, kFirst, numbered_tokens(1, 10));
  const RequestId late = driver_.send(other, Admit{.header = {}, .sequence = kFirst});
  driver_.settle();
  EXPECT_EQ(driver_.reply(client_, id).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.reply(other, late).error.code, ErrorCode::exhausted);
}

TEST_F(BoundedSteps, DeathInTheMiddleOfALongAdmissionGivesEverythingBack) {
  driver_.open(client_, kFirst, numbered_tokens(1, kBlocks));
  send(Admit{.header = {}, .sequence = kFirst, .max_new_tokens = 0});
  for (int i = 0; i < 4; ++i) driver_.input(Continue{});
  ASSERT_LT(driver_.tier(Tier::device).free, kBlocks);
  observe([&] { driver_.input(ClientGone{client_}); });
  go_on();
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks);
  EXPECT_EQ(driver_.status().sequences, 0U);
  EXPECT_EQ(driver_.status().clients, 0U);
}

TEST_F(BoundedSteps, FreeOfManyPrivateBlocksGoesOn) {
  hold_all(kFirst);
  const RequestId id = send(StepScript().free(kFirst).at(1, 1));
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.reply(client_, id).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks);
}

TEST_F(BoundedSteps, ReleaseOfManyBlocksThatWaitedForAStepGoesOn) {
  hold_all(kFirst);
  driver_.call(client_, StepScript().free(kFirst).at(1, 0));
  EXPECT_EQ(driver_.tier(Tier::device).held, kBlocks);
  send(StepScript().at(2, 1));
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks);
}

TEST_F(BoundedSteps, TruncateOfManyBlocksGoesOn) {
  hold_all(kFirst);
  const RequestId id = send(StepScript().truncate(kFirst, 1).at(1, 1));
  go_on();
  EXPECT_EQ(driver_.reply(client_, id).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);
}

TEST_F(BoundedSteps, PublishOfManyBlocksGoesOn) {
  hold_all(kFirst);
  const RequestId id = send(StepScript().publish(kFirst, kBlocks).at(1, 1));
  EXPECT_GE(go_on(), kContinuesMin);
  const Reply reply = driver_.reply(client_, id);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_TRUE(std::get<StepReply>(reply.body).failures.empty());
  EXPECT_EQ(driver_.status().tree_blocks, kBlocks);
  EXPECT_EQ(driver_.tier(Tier::device).cached, kBlocks);
  EXPECT_EQ(driver_.tier(Tier::device).covered, kBlocks);
}

TEST_F(BoundedSteps, PublishOfManyBlocksThatWaitedForAStepGoesOn) {
  hold_all(kFirst);
  driver_.call(client_, StepScript().publish(kFirst, kBlocks).at(1, 0));
  EXPECT_EQ(driver_.status().tree_blocks, 0U);
  send(StepScript().at(2, 1));
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.status().tree_blocks, kBlocks);
  EXPECT_EQ(driver_.tier(Tier::device).cached, kBlocks);
}

TEST_F(BoundedSteps, PublishAndFreeOfManyBlocksInOneStepKeepThem) {
  hold_all(kFirst);
  send(StepScript().publish(kFirst, kBlocks).free(kFirst).at(1, 1));
  go_on();
  EXPECT_EQ(driver_.status().tree_blocks, kBlocks);
  EXPECT_EQ(driver_.tier(Tier::device).evictable, kBlocks);
  EXPECT_EQ(driver_.status().sequences, 0U);
}

TEST_F(BoundedSteps, AdmissionThatEvictsManyBlocksGoesOn) {
  driver_.cache_prompt(client_, numbered_tokens(1, kBlocks));
  ASSERT_EQ(driver_.tier(Tier::device).evictable, kBlocks);
  driver_.open(client_, kSecond, numbered_tokens(100'000, kBlocks));
  const RequestId id = send(Admit{.header = {}, .sequence = kSecond, .max_new_tokens = 0});
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.reply(client_, id).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.status().counters.evicted_blocks[0], kBlocks);
  EXPECT_EQ(driver_.tier(Tier::device).held, kBlocks);
  EXPECT_EQ(driver_.status().tree_blocks, 0U);
}

TEST_F(BoundedSteps, DeathOfAClientWithManyBlocksGoesOn) {
  hold_all(kFirst);
  observe([&] { driver_.input(ClientGone{client_}); });
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks);
  EXPECT_EQ(driver_.status().clients, 0U);
}

TEST_F(BoundedSteps, ExpiryOfAClientWithManyBlocksGoesOn) {
  hold_all(kFirst);
  driver_.advance(std::chrono::seconds(11));
  observe([&] { driver_.tick(); });
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, kBlocks);
  send(Bye{});
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks);
}

TEST_F(BoundedSteps, EndOfAClientWithManySlotsThatWaitForAStepGoesOn) {
  hold_all(kFirst);
  driver_.call(client_, StepScript().truncate(kFirst, 1).at(1, 0));
  ASSERT_EQ(driver_.engine().waiting_slots(Tier::device, GroupId(0)).size(), kBlocks - 1);
  driver_.advance(std::chrono::seconds(11));
  observe([&] { driver_.tick(); });
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, kBlocks);
  observe([&] { driver_.input(ClientGone{client_}); });
  EXPECT_GE(go_on(), kContinuesMin);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks);
}

TEST_F(BoundedSteps, EndOfASequenceWithManyReplacedSlotsGoesOn) {
  const std::vector<Token> prompt = numbered_tokens(1, kBlocks / 2);
  driver_.admit(client_, kFirst, prompt);
  driver_.admit(client_, kSecond, prompt);
  driver_.call(client_, StepScript().publish(kFirst, kBlocks / 2).at(1, 1));
  driver_.call(client_, StepScript().publish(kSecond, kBlocks / 2).at(2, 2));
  ASSERT_EQ(driver_.status().counters.rewritten_blocks, kBlocks / 2);
  send(StepScript().free(kSecond).at(3, 3));
  EXPECT_GE(go_on(), kContinuesMin / 2);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks / 2);
}

TEST_F(BoundedSteps, AcknowledgementOfManyReplacedSlotsGoesOn) {
  const std::vector<Token> prompt = numbered_tokens(1, kBlocks / 2);
  driver_.admit(client_, kFirst, prompt);
  driver_.admit(client_, kSecond, prompt);
  driver_.call(client_, StepScript().publish(kFirst, kBlocks / 2).at(1, 1));
  const Reply reply = driver_.call(client_, StepScript().publish(kSecond, kBlocks / 2).at(2, 2));
  const std::uint32_t version = std::get<StepReply>(reply.body).deltas.back().version;
  send(StepScript().acknowledge(kSecond, version).at(3, 3));
  EXPECT_GE(go_on(), kContinuesMin / 2);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks / 2);
}

class BoundedStepsWithAHost : public BoundedSteps {
 protected:
  BoundedStepsWithAHost() : BoundedSteps(kBlocks) {}
};

TEST_F(BoundedStepsWithAHost, DemotionOfManyBlocksGoesOn) {
  driver_.cache_prompt(client_, numbered_tokens(1, kBlocks));
  const RequestId id = send(Demote{.header = {}, .tier = Tier::device});
  EXPECT_GE(go_on(), kContinuesMin);
  const Reply reply = driver_.reply(client_, id);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<DemoteReply>(reply.body).dropped_blocks, kBlocks);
  EXPECT_EQ(driver_.tier(Tier::device).free, kBlocks);
  EXPECT_EQ(driver_.tier(Tier::host).cached, kBlocks);
}

TEST_F(BoundedStepsWithAHost, LoadOfManyBlocksGoesOn) {
  driver_.cache_prompt(client_, numbered_tokens(1, kBlocks));
  driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
  driver_.hold_transfers(true);
  driver_.open(client_, kSecond, numbered_tokens(1, kBlocks));
  send(Admit{.header = {}, .sequence = kSecond, .max_new_tokens = 0});
  go_on();
  EXPECT_EQ(driver_.tier(Tier::device).held, kBlocks);
  while (!driver_.transfers().pending().empty()) {
    observe([&] { driver_.finish_transfer(0); });
    go_on();
  }
  EXPECT_TRUE(driver_.live(client_, kSecond).admitted);
  EXPECT_EQ(driver_.status().counters.loaded_blocks[1], kBlocks - 1);
}

TEST_F(BoundedSteps, AdmissionThatWasRefusedHalfwayIsBusyUntilAllIsGivenBack) {
  const ClientId other = driver_.attach_with_pool(1);
  driver_.admit(other, kFirst, numbered_tokens(1, 10));
  driver_.open(client_, kFirst, numbered_tokens(100, kBlocks - 1'000));
  const RequestId id = send(Admit{.header = {}, .sequence = kFirst, .max_new_tokens = 0});
  const auto grown = numbered_tokens(1, 2'000);
  const RequestId step = driver_.send(other, StepScript().append(kFirst, grown).at(1, 1));
  ASSERT_EQ(driver_.reply(other, step).error.code, ErrorCode::ok);
  while (driver_.reply_count(client_, id) == 0) driver_.input(Continue{});
  ASSERT_EQ(driver_.reply(client_, id).error.code, ErrorCode::exhausted);
  ASSERT_GT(driver_.tier(Tier::device).held, 2'010U);  // not yet all given back
  const RequestId again = send(Admit{.header = {}, .sequence = kFirst, .max_new_tokens = 0});
  EXPECT_EQ(driver_.reply(client_, again).error.code, ErrorCode::busy);
  Open more;
  more.sequence = kFirst;
  more.first = false;
  EXPECT_EQ(driver_.reply(client_, send(more)).error.code, ErrorCode::busy);
  go_on();
  EXPECT_EQ(driver_.tier(Tier::device).held, 2'010U);
  driver_.call(other, StepScript().free(kFirst).at(2, 2));
  EXPECT_EQ(driver_.call(client_, Admit{.header = {}, .sequence = kFirst}).error.code,
            ErrorCode::ok);
}

// Everything of a long prompt lies in the host but what one step can admit.
class BoundedLoads : public BoundedSteps {
 protected:
  BoundedLoads() : BoundedSteps(kBlocks) {
    driver_.cache_prompt(client_, numbered_tokens(1, kLong));
    driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
    driver_.admit(client_, SequenceId(9), numbered_tokens(1, kStepBlocksMax + 101));
    driver_.settle();
    driver_.step(client_, StepScript().free(SequenceId(9)));
    driver_.settle();
  }
  static constexpr std::uint32_t kLong = 3'000;
};

TEST_F(BoundedLoads, TwoLongAdmissionsOfOnePromptLoadItOnce) {
  ASSERT_EQ(driver_.tier(Tier::device).cached, kStepBlocksMax + 100);
  const ClientId other = driver_.attach_with_pool(1);
  driver_.open(client_, kFirst, numbered_tokens(1, kLong + 1));
  driver_.open(other, kFirst, numbered_tokens(1, kLong + 1));
  const std::uint64_t loaded = driver_.status().counters.loaded_blocks[1];
  const RequestId first = driver_.send(client_, Admit{.header = {}, .sequence = kFirst});
  const RequestId second = driver_.send(other, Admit{.header = {}, .sequence = kFirst});
  driver_.settle();
  EXPECT_EQ(driver_.reply(client_, first).error.code, ErrorCode::ok);
  ASSERT_EQ(driver_.reply(other, second).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.status().counters.loaded_blocks[1] - loaded, kLong - kStepBlocksMax - 100);
  EXPECT_EQ(driver_.tier(Tier::device).cached, kLong);
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
}

}  // namespace
}  // namespace kv::core
