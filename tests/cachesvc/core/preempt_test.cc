// Preempt gives slots back and keeps tokens; drop gives up blocks, and caching with them.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

const StepReply& body_of(const Reply& reply) {
  EXPECT_EQ(reply.error.code, ErrorCode::ok) << reply.error.reason;
  return std::get<StepReply>(reply.body);
}

class Preempt : public testing::Test {
 protected:
  ErrorCode code_of(const StepScript& script) {
    const Reply reply = driver_.step(client_, script);
    const auto& failures = body_of(reply).failures;
    return failures.empty() ? ErrorCode::ok : failures[0].error.code;
  }
  AdmitReply admit_again(std::uint32_t max_new_tokens = 0) {
    const Reply reply = driver_.call(
        client_, Admit{.header = {}, .sequence = kFirst, .max_new_tokens = max_new_tokens});
    EXPECT_EQ(reply.error.code, ErrorCode::ok) << reply.error.reason;
    const auto* body = std::get_if<AdmitReply>(&reply.body);
    return body == nullptr ? AdmitReply{} : *body;
  }

  EngineDriver driver_{options_with_slots(8, 0, 0)};
  ClientId client_ = driver_.attach_with_pool();
};

// SCENARIOS MET-01: what a request finds of itself again is no hit.
TEST_F(Preempt, Met01ResumesWithItsOwnBlocksWhichAreNoHitsOfTheRequest) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 16));
  driver_.step(client_, StepScript().publish(kFirst, 16));
  ASSERT_EQ(code_of(StepScript().preempt(kFirst)), ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).covered, 0U);
  const AdmitReply again = admit_again();
  EXPECT_EQ(again.account.prompt_tokens, 16U);
  EXPECT_EQ(again.account.hit_tokens[0], 12U);
  const Counters& counters = driver_.status().counters;
  EXPECT_EQ(counters.prompt_tokens, 16U);
  EXPECT_EQ(counters.computed_tokens, 16U);
  EXPECT_EQ(counters.hit_tokens[0], 0U);
  EXPECT_EQ(counters.resumed_tokens, 16U);
  EXPECT_EQ(counters.resumed_hit_tokens, 12U);
  EXPECT_EQ(counters.preempted_sequences, 1U);
  const Reply reply = driver_.step(client_, StepScript().free(kFirst));
  EXPECT_EQ(body_of(reply).ended[0].account, (Account{.prompt_tokens = 16, .computed_tokens = 16}));
}

TEST_F(Preempt, KeepsGeneratedTokensAndTheirCount) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 6), 6);
  driver_.step(client_, StepScript().append(kFirst, numbered_tokens(7, 3)).publish(kFirst, 8));
  driver_.step(client_, StepScript().preempt(kFirst));
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  const AdmitReply again = admit_again(4);
  EXPECT_EQ(again.account.prompt_tokens, 9U);
  EXPECT_EQ(again.account.hit_tokens[0], 8U);
  EXPECT_EQ(again.block_count, 4U);  // 13 tokens
  driver_.step(client_, StepScript().append(kFirst, numbered_tokens(10, 2)));
  const auto view = driver_.live(client_, kFirst);
  EXPECT_EQ(std::vector(view.tokens.begin(), view.tokens.end()), numbered_tokens(1, 11));
  const Reply reply = driver_.step(client_, StepScript().free(kFirst));
  EXPECT_EQ(body_of(reply).ended[0].account.prompt_tokens, 6U);
  EXPECT_EQ(body_of(reply).ended[0].account.generated_tokens, 5U);
}

TEST_F(Preempt, WaitsForItsStepBeforeItGivesSlotsBack) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  driver_.call(client_, StepScript().publish(kFirst, 8).preempt(kFirst).at(1, 0));
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
  const Reply early = driver_.call(client_, Admit{.header = {}, .sequence = kFirst});
  EXPECT_EQ(early.error.code, ErrorCode::busy);
  driver_.call(client_, StepScript().at(2, 1));
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);  // published first
  EXPECT_EQ(admit_again().account.hit_tokens[0], 4U);
}

TEST_F(Preempt, ThatWaitsCanBecomeAnEnd) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  driver_.call(client_, StepScript().preempt(kFirst).at(1, 0));
  driver_.call(client_, StepScript().free(kFirst).at(2, 0));
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
  driver_.call(client_, StepScript().at(3, 2));
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.status().sequences, 0U);
}

TEST_F(Preempt, MakesRoomForAnother) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 20));
  EXPECT_EQ(driver_.admit(client_, kSecond, numbered_tokens(101, 20)).error.code,
            ErrorCode::exhausted);
  driver_.step(client_, StepScript().preempt(kFirst));
  EXPECT_EQ(driver_.call(client_, Admit{.header = {}, .sequence = kSecond}).error.code,
            ErrorCode::ok);
}

// What was generated takes memory that no slot bounds any more.
TEST_F(Preempt, CountsWhatWasGeneratedAgainstTheLimitOfPrompts) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.client_prompt_tokens_max = 10;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 8), 8);
  driver.step(client, StepScript().append(kFirst, numbered_tokens(9, 3)));
  const Reply reply = driver.step(client, StepScript().preempt(kFirst));
  ASSERT_EQ(body_of(reply).failures.size(), 1U);
  EXPECT_EQ(body_of(reply).failures[0].error.code, ErrorCode::too_large);
  EXPECT_EQ(driver.tier(Tier::device).held, 4U);
  driver.step(client, StepScript().truncate(kFirst, 10));
  EXPECT_TRUE(body_of(driver.step(client, StepScript().preempt(kFirst))).failures.empty());
}

// ---- drop

using Drop = Preempt;

TEST_F(Drop, GivesItsSlotsBackAndTaintsWhatIsComputedAfterwards) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 12), 8);
  driver_.step(client_, StepScript().publish(kFirst, 8));
  ASSERT_EQ(driver_.tier(Tier::device).held, 3U);
  ASSERT_EQ(code_of(StepScript().drop(kFirst, 8, 4)), ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
  EXPECT_TRUE(driver_.live(client_, kFirst).table[2].is_none());
  driver_.step(client_, StepScript().append(kFirst, numbered_tokens(13, 4)));
  driver_.step(client_, StepScript().publish(kFirst, 16));
  EXPECT_EQ(driver_.status().tree_blocks, 2U);
  EXPECT_EQ(driver_.status().counters.uncacheable_blocks, 2U);
  EXPECT_EQ(driver_.status().counters.dropped_blocks, 1U);
  const ClientId observer = driver_.attach(ClientRole::observer);
  const NamespaceFields fields;
  const std::vector<Token> prompt = numbered_tokens(1, 16);
  const Reply reply =
      driver_.call(observer, Why{.header = {}, .fields = &fields, .tokens = prompt});
  const auto& why = std::get<WhyReply>(reply.body);
  ASSERT_EQ(why.spans.size(), 1U);
  EXPECT_EQ(why.spans[0].first_token, 8U);
  EXPECT_EQ(why.spans[0].reason, MissReason::not_cacheable);
  EXPECT_EQ(why.spans[0].cause, MissCause::dropped);
}

// Of what was computed before the drop the blocks in front of it can still be published.
TEST_F(Drop, LeavesWhatWasComputedBeforeCacheable) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 16));
  driver_.step(client_, StepScript().publish(kFirst, 8));
  ASSERT_EQ(code_of(StepScript().drop(kFirst, 0, 4)), ErrorCode::ok);  // published: stays cached
  driver_.step(client_, StepScript().publish(kFirst, 16));
  EXPECT_EQ(driver_.status().tree_blocks, 2U);
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(1, 9)).hit_tokens, 8U);
}

TEST_F(Drop, IsOfWholeBlocksOfTheSequence) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 10));
  EXPECT_EQ(code_of(StepScript().drop(kFirst, 1, 4)), ErrorCode::invalid);
  EXPECT_EQ(code_of(StepScript().drop(kFirst, 0, 3)), ErrorCode::invalid);
  EXPECT_EQ(code_of(StepScript().drop(kFirst, 0, 0)), ErrorCode::invalid);
  EXPECT_EQ(code_of(StepScript().drop(kFirst, 8, 4)), ErrorCode::invalid);
  EXPECT_EQ(code_of(StepScript().drop(kFirst, 0xFFFFFFFCU, 0xFFFFFFFCU)), ErrorCode::invalid);
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  EXPECT_EQ(code_of(StepScript().drop(kFirst, 0, 8)), ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);
}

TEST_F(Drop, WaitsForAPublishThatWaitsForItsStep) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  const Reply reply =
      driver_.call(client_, StepScript().publish(kFirst, 8).drop(kFirst, 0, 4).at(1, 0));
  ASSERT_EQ(body_of(reply).failures.size(), 1U);
  EXPECT_EQ(body_of(reply).failures[0].error.code, ErrorCode::busy);
  driver_.call(client_, StepScript().drop(kFirst, 0, 4).at(2, 1));
  EXPECT_EQ(driver_.status().counters.dropped_blocks, 1U);
}

TEST_F(Drop, IsForgottenByAPreemptionWhichComputesAllAnew) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 12));
  driver_.step(client_, StepScript().drop(kFirst, 0, 4));
  driver_.step(client_, StepScript().preempt(kFirst));
  EXPECT_EQ(admit_again().account.hit_tokens[0], 0U);
  driver_.step(client_, StepScript().publish(kFirst, 12));
  EXPECT_EQ(driver_.status().tree_blocks, 3U);
}

TEST_F(Drop, IsInheritedByAChild) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 12));
  driver_.step(client_, StepScript().drop(kFirst, 0, 4));
  const Reply reply = driver_.step(client_, StepScript().fork(kFirst, kSecond));
  ASSERT_TRUE(body_of(reply).failures.empty());
  EXPECT_TRUE(driver_.live(client_, kSecond).table[0].is_none());
  EXPECT_EQ(body_of(reply).copies.size(), 2U);
  driver_.step(client_, StepScript().publish(kSecond, 12));
  EXPECT_EQ(driver_.status().tree_blocks, 0U);
}

TEST_F(Drop, LeavesNoBlockToAppendInto) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8), 16);
  ASSERT_EQ(code_of(StepScript().drop(kFirst, 0, 4)), ErrorCode::ok);
  EXPECT_EQ(code_of(StepScript().truncate(kFirst, 3)), ErrorCode::invalid);
  EXPECT_EQ(driver_.live(client_, kFirst).tokens.size(), 8U);
  EXPECT_EQ(code_of(StepScript().truncate(kFirst, 4)), ErrorCode::ok);  // at its end
  EXPECT_EQ(code_of(StepScript().append(kFirst, numbered_tokens(50, 2))), ErrorCode::ok);
}

// More blocks than a step can look at wait for the step before: the drop goes on, and ends.
TEST(LongDrop, OfMoreBlocksThanAStepCanLookAtEnds) {
  constexpr std::uint32_t kTokens = 140'000;
  EngineDriver driver(options_with_slots(kTokens, 0, 0, 1));
  driver.check_every(100'000);
  const ClientId client = driver.attach_with_pool(1);
  driver.admit(client, kFirst, numbered_tokens(1, kTokens));
  const StepItem all = {
      .sequence = kFirst, .op = StepOp::drop, .token_offset = 0, .token_count = kTokens};
  const std::uint64_t before = driver.continue_count();
  const Reply reply = driver.call(
      client,
      Step{.header = {}, .step_seq = 1, .completed_step = 0, .items = {&all, 1}, .tokens = {}});
  EXPECT_TRUE(body_of(reply).failures.empty());
  EXPECT_EQ(driver.status().counters.dropped_blocks, kTokens);
  // A step's share each, and a few to begin and end.
  EXPECT_LE(driver.continue_count() - before, kTokens / (kStepBlocksMax / 4));
  // And what is dropped already costs no more than looking at it, once for each of many items.
  const std::vector<StepItem> again(100, all);
  (void)driver.call(
      client, Step{.header = {}, .step_seq = 2, .completed_step = 2, .items = again, .tokens = {}});
  EXPECT_EQ(driver.status().counters.dropped_blocks, kTokens);
  EXPECT_EQ(driver.tier(Tier::device).held, 0U);
}

}  // namespace
}  // namespace kv::core
