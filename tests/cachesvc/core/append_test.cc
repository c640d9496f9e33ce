// Append over several steps: all that it asked for, or nothing.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr std::uint32_t kSlots = 5'000;

class LongAppend : public testing::Test {
 protected:
  LongAppend()
      : driver_(options_with_slots(kSlots, 0, 0, 1)),
        client_(driver_.attach_with_pool(1)),
        other_(driver_.attach_with_pool(1)) {
    driver_.admit(client_, kFirst, numbered_tokens(1, 3));
    driver_.open(other_, kSecond, numbered_tokens(10'001, 2'500));
    script_.append(kFirst, numbered_tokens(101, 1)).append(kFirst, numbered_tokens(201, 4'000));
  }
  EngineDriver driver_;
  ClientId client_, other_;
  StepScript script_;
};

TEST_F(LongAppend, ThatEndsExhaustedLeavesTheSequenceAsItWas) {
  const RequestId step = driver_.send(client_, script_.at(1, 1));
  ASSERT_EQ(driver_.reply_count(client_, step), 0U);  // goes on
  ASSERT_GT(driver_.live(client_, kFirst).block_count, 2'000U);
  // Somebody else takes what is left meanwhile.
  const RequestId admit = driver_.send(other_, Admit{.header = {}, .sequence = kSecond});
  driver_.settle();
  ASSERT_EQ(driver_.reply(other_, admit).error.code, ErrorCode::ok);
  const Reply reply = driver_.reply(client_, step);
  const auto& body = std::get<StepReply>(reply.body);
  ASSERT_EQ(body.failures.size(), 1U);
  EXPECT_EQ(body.failures[0].item, 1U);
  EXPECT_EQ(body.failures[0].error.code, ErrorCode::exhausted);
  // The first item holds: one block, and the client is told of that one only.
  const Engine::SequenceView view = driver_.live(client_, kFirst);
  EXPECT_EQ(view.tokens.size(), 4U);
  EXPECT_EQ(view.block_count, 4U);
  ASSERT_EQ(body.deltas.size(), 1U);
  EXPECT_EQ(body.deltas[0].first_block, 3U);
  EXPECT_EQ(body.deltas[0].slot_count, 1U);
  ASSERT_EQ(body.slots.size(), 1U);
  EXPECT_EQ(body.slots[0], view.table[3]);
  EXPECT_EQ(driver_.tier(Tier::device).held, 4U + 2'500U);
  // And the next block gets the version that follows what the client saw.
  const Reply next =
      driver_.call(client_, StepScript().append(kFirst, numbered_tokens(300, 1)).at(2, 2));
  EXPECT_EQ(std::get<StepReply>(next.body).deltas.at(0).version, body.deltas[0].version + 1);
}

// What it gives back is block operations like any others.
class LongerAppend : public testing::Test {
 protected:
  LongerAppend()
      : driver_(options_with_slots(10'000, 0, 0, 1)),
        client_(driver_.attach_with_pool(1)),
        other_(driver_.attach_with_pool(1)) {
    driver_.admit(client_, kFirst, numbered_tokens(1, 3));
    driver_.cache_prompt(other_, numbered_tokens(10'001, 1'500));
    driver_.open(other_, kSecond, numbered_tokens(10'001, 1'501));
    script_.append(kFirst, numbered_tokens(201, 9'000)).append(kFirst, numbered_tokens(101, 1));
    step_ = driver_.send(client_, script_.at(1, 1));
    for (int i = 0; i < 2; ++i) driver_.input(Continue{});
    EXPECT_EQ(block_count(), 3U + 3 * kStepBlocksMax);
  }
  std::uint32_t block_count() { return driver_.live(client_, kFirst).block_count; }
  // One step may change no more blocks of the sequence than it has block operations.
  template <class Action>
  void observe(const Action& action) {
    const std::uint32_t before = block_count();
    action();
    const std::uint32_t after = block_count();
    EXPECT_LE(before > after ? before - after : after - before, kStepBlocksMax);
  }
  // Pins what may go until then, so that the append cannot go on.
  void admit_other() {
    observe([&] { driver_.send(other_, Admit{.header = {}, .sequence = kSecond}); });
  }
  void free_other() {
    const StepScript script = StepScript().free(kSecond);
    observe([&] { driver_.send(other_, script.at(9, 9)); });
  }
  EngineDriver driver_;
  ClientId client_, other_;
  StepScript script_;
  RequestId step_;
};

TEST_F(LongerAppend, ThatEndsExhaustedGivesBackAStepsShareAtATime) {
  admit_other();
  ASSERT_LT(block_count(), 3U + 3 * kStepBlocksMax);
  ASSERT_GT(block_count(), 3U);
  free_other();  // too late: it has ended, and is not begun again
  while (driver_.reply_count(client_, step_) == 0) {
    ASSERT_TRUE(driver_.continue_wanted());
    observe([&] { driver_.input(Continue{}); });
  }
  const Reply reply = driver_.reply(client_, step_);
  const auto& body = std::get<StepReply>(reply.body);
  ASSERT_EQ(body.failures.size(), 1U);
  EXPECT_EQ(body.failures[0].item, 0U);
  EXPECT_EQ(body.failures[0].error.code, ErrorCode::exhausted);
  // The second item is one of its own, and all that the client is told of.
  driver_.settle();
  const Engine::SequenceView view = driver_.live(client_, kFirst);
  EXPECT_EQ(view.tokens.size(), 4U);
  ASSERT_EQ(view.block_count, 4U);
  ASSERT_EQ(body.slots.size(), 1U);
  EXPECT_EQ(body.slots[0], view.table[3]);
  EXPECT_EQ(driver_.tier(Tier::device).held, 4U);
}

TEST_F(LongerAppend, WhoseClientDiesWhileItGivesBackLeavesNothing) {
  admit_other();
  ASSERT_GT(block_count(), 3U);
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);  // of the other
  EXPECT_EQ(driver_.status().sequences, 1U);
}

TEST_F(LongAppend, ThatFitsGetsEverything) {
  const RequestId step = driver_.send(client_, script_.at(1, 1));
  driver_.settle();
  EXPECT_TRUE(std::get<StepReply>(driver_.reply(client_, step).body).failures.empty());
  EXPECT_EQ(driver_.live(client_, kFirst).block_count, 4'004U);
}

}  // namespace
}  // namespace kv::core
