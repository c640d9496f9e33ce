// Step: append, publish, truncate, free, each item alone, and what waits for completed_step.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr SequenceId kUnknown(99);

const StepReply& body_of(const Reply& reply) { return std::get<StepReply>(reply.body); }

std::vector<std::pair<std::uint32_t, ErrorCode>> failures_of(const Reply& reply) {
  std::vector<std::pair<std::uint32_t, ErrorCode>> failures;
  for (const StepReply::Failure& failure : body_of(reply).failures) {
    failures.emplace_back(failure.item, failure.error.code);
  }
  return failures;
}
using Failures = std::vector<std::pair<std::uint32_t, ErrorCode>>;

class Stepping : public testing::Test {
 protected:
  explicit Stepping(std::uint32_t device_slots = 8)
      : driver_(options_with_slots(device_slots, 0, 0)), client_(driver_.attach_with_pool()) {}
  std::uint64_t hits(std::span<const Token> tokens) {
    return driver_.lookup(client_, tokens).hit_tokens;
  }
  EngineDriver driver_;
  ClientId client_;
};

TEST_F(Stepping, AppendWithinTheReservationGrantsNothing) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 5), 7);  // 3 blocks
  const Reply reply =
      driver_.step(client_, StepScript().append(kFirst, numbered_tokens(6, 7)));  // 12 tokens
  EXPECT_TRUE(body_of(reply).failures.empty());
  EXPECT_TRUE(body_of(reply).deltas.empty());
  EXPECT_TRUE(body_of(reply).slots.empty());
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  const Engine::SequenceView view = driver_.live(client_, kFirst);
  EXPECT_EQ(std::vector<Token>(view.tokens.begin(), view.tokens.end()), numbered_tokens(1, 12));
}

TEST_F(Stepping, AppendBeyondTheReservationGrantsSlotsAndTellsThem) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 4));  // 1 block
  const Reply reply =
      driver_.step(client_, StepScript().append(kFirst, numbered_tokens(5, 5)));  // 9 tokens
  ASSERT_TRUE(body_of(reply).failures.empty());
  const Engine::SequenceView view = driver_.live(client_, kFirst);
  ASSERT_EQ(view.block_count, 3U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  std::vector<SlotId> told(3);
  for (const TableDelta& delta : body_of(reply).deltas) {
    EXPECT_EQ(delta.sequence, kFirst);
    EXPECT_EQ(delta.group, GroupId(0));
    EXPECT_GE(delta.first_block, 1U);
    for (std::uint32_t i = 0; i < delta.slot_count; ++i) {
      told.at(delta.first_block + i) = body_of(reply).slots.at(delta.slot_offset + i);
    }
  }
  EXPECT_EQ(told[1], view.table[1]);
  EXPECT_EQ(told[2], view.table[2]);
}

class SteppingInTwoSlots : public Stepping {
 protected:
  SteppingInTwoSlots() : Stepping(2) {}
};

TEST_F(SteppingInTwoSlots, AppendWithoutASlotFailsAloneAndWorksAfterARelease) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 4));
  driver_.admit(client_, kSecond, numbered_tokens(100, 4));
  StepScript script;
  script.append(kFirst, numbered_tokens(5, 1)).publish(kSecond, 4);
  EXPECT_EQ(failures_of(driver_.step(client_, script)), (Failures{{0, ErrorCode::exhausted}}));
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 4U);
  EXPECT_EQ(driver_.live(client_, kFirst).block_count, 1U);
  EXPECT_EQ(driver_.status().counters.published_blocks, 1U);
  driver_.step(client_, StepScript().free(kSecond));
  const Reply granted = driver_.step(client_, StepScript().append(kFirst, numbered_tokens(5, 1)));
  EXPECT_TRUE(body_of(granted).failures.empty());
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 5U);
  EXPECT_EQ(driver_.status().counters.evicted_blocks[0], 1U);  // the block of the second
}

TEST_F(Stepping, EachFailureNamesItsItemAndOthersGoOn) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 4), 4);
  driver_.open(client_, kSecond, numbered_tokens(1, 4));
  StepScript script;
  script
      .append(kUnknown, numbered_tokens(5, 1))  // 0: not found
      .append(kFirst, numbered_tokens(5, 1))    // 1
      .append(kSecond, numbered_tokens(5, 1))   // 2: not admitted
      .publish(kFirst, 6)                       // 3: there are 5 tokens
      .publish(kUnknown, 1)                     // 4: not found
      .free(kUnknown)                           // 5: not found
      .truncate(kUnknown, 1)                    // 6: not found
      .append(kFirst, numbered_tokens(6, 1));   // 7
  EXPECT_EQ(failures_of(driver_.step(client_, script)), (Failures{{0, ErrorCode::not_found},
                                                                  {2, ErrorCode::invalid},
                                                                  {3, ErrorCode::invalid},
                                                                  {4, ErrorCode::not_found},
                                                                  {5, ErrorCode::not_found},
                                                                  {6, ErrorCode::not_found}}));
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 6U);
}

TEST_F(Stepping, StepNumbersMustRiseAndCompletionMustNotRunAhead) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 4), 4);
  StepScript script;
  script.append(kFirst, numbered_tokens(5, 1));
  EXPECT_EQ(driver_.call(client_, script.at(5, 6)).error.code, ErrorCode::invalid);
  EXPECT_EQ(driver_.call(client_, script.at(5, 4)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.call(client_, script.at(5, 4)).error.code, ErrorCode::invalid);
  EXPECT_EQ(driver_.call(client_, script.at(4, 4)).error.code, ErrorCode::invalid);
  EXPECT_EQ(driver_.call(client_, script.at(9, 5)).error.code, ErrorCode::ok);  // gaps are fine
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 6U);
}

TEST_F(Stepping, OnlyFullBlocksArePublished) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 7));
  driver_.step(client_, StepScript().publish(kFirst, 3));
  EXPECT_EQ(driver_.status().counters.published_blocks, 0U);
  driver_.step(client_, StepScript().publish(kFirst, 7));
  EXPECT_EQ(driver_.status().counters.published_blocks, 1U);
  EXPECT_EQ(driver_.status().tree_blocks, 1U);
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 4U);
  EXPECT_EQ(driver_.live(client_, kFirst).published_blocks, 1U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 1U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);
}

TEST_F(Stepping, GeneratedTokensArePublishedToo) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 6), 6);
  StepScript script;
  script.append(kFirst, numbered_tokens(7, 3)).publish(kFirst, 8);
  driver_.step(client_, script);
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 8U);
  EXPECT_EQ(driver_.status().counters.published_blocks, 2U);
}

TEST_F(Stepping, PublishMustNotGoBack) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 12));
  driver_.step(client_, StepScript().publish(kFirst, 8));
  EXPECT_EQ(failures_of(driver_.step(client_, StepScript().publish(kFirst, 4))),
            (Failures{{0, ErrorCode::invalid}}));
  EXPECT_EQ(driver_.live(client_, kFirst).published_blocks, 2U);
}

TEST_F(Stepping, PublishedBlocksAreHitsOnceTheirStepIsCompleted) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  driver_.call(client_, StepScript().publish(kFirst, 8).at(5, 4));
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 0U);
  driver_.call(client_, StepScript().at(6, 4));
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 0U);
  driver_.call(client_, StepScript().at(7, 5));
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 8U);
  EXPECT_EQ(driver_.status().counters.published_blocks, 2U);
}

TEST_F(Stepping, PublishAndFreeInOneStepKeepTheBlocks) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8), 4);
  driver_.call(client_, StepScript().publish(kFirst, 8).free(kFirst).at(5, 4));
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 0U);
  driver_.call(client_, StepScript().at(6, 5));
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 8U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).evictable, 2U);
}

TEST_F(Stepping, TruncateGivesBackBlocksWhenTheStepIsCompleted) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 4), 12);  // 4 blocks
  driver_.call(client_, StepScript().append(kFirst, numbered_tokens(5, 6)).at(1, 0));
  driver_.call(client_, StepScript().truncate(kFirst, 5).at(2, 1));
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 5U);
  EXPECT_EQ(driver_.live(client_, kFirst).block_count, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 4U);
  EXPECT_EQ(driver_.engine().waiting_slots(Tier::device, GroupId(0)).size(), 2U);
  driver_.call(client_, StepScript().at(3, 1));
  EXPECT_EQ(driver_.tier(Tier::device).held, 4U);
  driver_.call(client_, StepScript().at(4, 2));
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
  EXPECT_EQ(driver_.engine().waiting_slots(Tier::device, GroupId(0)).size(), 0U);
}

TEST_F(Stepping, TruncateBeyondTheTokensOrIntoThePublishedIsInvalid) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 10));
  driver_.step(client_, StepScript().publish(kFirst, 8));
  EXPECT_EQ(failures_of(driver_.step(client_, StepScript().truncate(kFirst, 11))),
            (Failures{{0, ErrorCode::invalid}}));
  EXPECT_EQ(failures_of(driver_.step(client_, StepScript().truncate(kFirst, 7))),
            (Failures{{0, ErrorCode::invalid}}));
  EXPECT_EQ(failures_of(driver_.step(client_, StepScript().truncate(kFirst, 8))), Failures{});
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 8U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
}

TEST_F(Stepping, TokensAppendedAfterATruncateReplaceTheOldOnes) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 6), 6);
  StepScript script;
  script.truncate(kFirst, 5).append(kFirst, numbered_tokens(600, 3)).publish(kFirst, 8);
  EXPECT_EQ(failures_of(driver_.step(client_, script)), Failures{});
  std::vector<Token> kept = numbered_tokens(1, 5);
  for (const Token token : numbered_tokens(600, 4)) kept.push_back(token);
  EXPECT_EQ(hits(kept), 8U);
  EXPECT_EQ(hits(numbered_tokens(1, 9)), 4U);
}

TEST_F(Stepping, TokensThatWereTakenBackAreNotInTheAccount) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 6), 3);
  driver_.step(client_, StepScript().append(kFirst, numbered_tokens(7, 3)));
  driver_.step(client_, StepScript().truncate(kFirst, 7));
  const Reply reply = driver_.step(client_, StepScript().free(kFirst));
  ASSERT_EQ(body_of(reply).ended.size(), 1U);
  EXPECT_EQ(body_of(reply).ended[0].account.generated_tokens, 1U);
}

TEST_F(Stepping, FreeTellsTheAccountAndReleasesSlotsWhenTheStepIsCompleted) {
  driver_.cache_prompt(client_, numbered_tokens(1, 4));      // step 1
  driver_.admit(client_, kFirst, numbered_tokens(1, 6), 3);  // 4 hits, 2 computed
  driver_.call(client_, StepScript().append(kFirst, numbered_tokens(7, 3)).at(2, 1));
  const Reply reply = driver_.call(client_, StepScript().free(kFirst).at(3, 2));
  ASSERT_EQ(body_of(reply).ended.size(), 1U);
  EXPECT_EQ(body_of(reply).ended[0].sequence, kFirst);
  Account expected;
  expected.prompt_tokens = 6;
  expected.hit_tokens[0] = 4;
  expected.computed_tokens = 2;
  expected.generated_tokens = 3;
  EXPECT_EQ(body_of(reply).ended[0].account, expected);
  // Step 3 may still read everything, also the cached block.
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).covered, 1U);
  driver_.call(client_, StepScript().at(4, 3));
  EXPECT_EQ(driver_.status().sequences, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).covered, 0U);
  EXPECT_EQ(driver_.status().counters.generated_tokens, 3U);
}

TEST_F(Stepping, IdOfAFreedSequenceCanBeUsedAtOnce) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 9));
  driver_.call(client_, StepScript().free(kFirst).at(1, 0));
  EXPECT_EQ(driver_.admit(client_, kFirst, numbered_tokens(1, 5)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).held, 5U);
  driver_.call(client_, StepScript().at(2, 1));
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 5U);
}

TEST_F(Stepping, FreeOfACompletedStepReleasesAtOnce) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 9));
  driver_.call(client_, StepScript().free(kFirst).at(1, 1));
  EXPECT_EQ(driver_.tier(Tier::device).free, 8U);
}

TEST_F(Stepping, SecondFreeOfASequenceIsNotFound) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 9));
  const Reply reply = driver_.step(client_, StepScript().free(kFirst).free(kFirst));
  EXPECT_EQ(failures_of(reply), (Failures{{1, ErrorCode::not_found}}));
  EXPECT_EQ(body_of(reply).ended.size(), 1U);
  EXPECT_EQ(driver_.tier(Tier::device).free, 8U);
}

TEST_F(Stepping, SlotsThatWaitAreGivenToNobody) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 32));  // all 8
  driver_.call(client_, StepScript().free(kFirst).at(1, 0));
  EXPECT_EQ(driver_.admit(client_, kSecond, numbered_tokens(100, 4)).error.code,
            ErrorCode::exhausted);
  driver_.call(client_, StepScript().at(2, 1));
  EXPECT_EQ(driver_.call(client_, Admit{.header = {}, .sequence = kSecond}).error.code,
            ErrorCode::ok);
}

TEST_F(Stepping, TreeListsTheRunsOfBlocks) {
  driver_.cache_prompt(client_, numbered_tokens(1, 8));
  std::vector<Token> other = numbered_tokens(1, 4);
  for (const Token token : numbered_tokens(700, 4)) other.push_back(token);
  driver_.cache_prompt(client_, other);
  const Reply reply = driver_.call(client_, Tree{});
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  const auto& tree = std::get<TreeReply>(reply.body);
  ASSERT_EQ(tree.nodes.size(), 3U);  // the shared block, and one below it for each
  EXPECT_FALSE(tree.truncated);
  EXPECT_EQ(tree.nodes[0].depth, 0U);
  EXPECT_EQ(tree.nodes[0].block_count, 1U);
  EXPECT_EQ(tree.nodes[0].parent, 0xFFFFFFFFU);
  EXPECT_EQ(tree.nodes[1].parent, 0U);
  EXPECT_EQ(tree.nodes[2].parent, 0U);
  EXPECT_EQ(tree.nodes[1].depth, 1U);
  EXPECT_EQ(tree.nodes[1].copies[0], 1U);
  Tree limited;
  limited.node_limit = 2;
  const Reply cut = driver_.call(client_, limited);
  EXPECT_EQ(std::get<TreeReply>(cut.body).nodes.size(), 2U);
  EXPECT_TRUE(std::get<TreeReply>(cut.body).truncated);
}

}  // namespace
}  // namespace kv::core
