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

TEST_F(LongAppend, ThatFitsGetsEverything) {
  const RequestId step = driver_.send(client_, script_.at(1, 1));
  driver_.settle();
  EXPECT_TRUE(std::get<StepReply>(driver_.reply(client_, step).body).failures.empty());
  EXPECT_EQ(driver_.live(client_, kFirst).block_count, 4'004U);
}

}  // namespace
}  // namespace kv::core
