// Fork: a child shares what is published, gets slots and copies for the rest, and neither changes
// the other.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kParent(1);
constexpr SequenceId kChild(2);
constexpr SequenceId kOther(3);

const StepReply& body_of(const Reply& reply) {
  EXPECT_EQ(reply.error.code, ErrorCode::ok) << reply.error.reason;
  return std::get<StepReply>(reply.body);
}

class Fork : public testing::Test {
 protected:
  // A parent of 10 tokens in 3 blocks of 4, two of them published; room for 2 tokens more.
  void admit_parent() {
    driver_.admit(client_, kParent, numbered_tokens(1, 10), 2);
    ASSERT_TRUE(body_of(driver_.step(client_, StepScript().publish(kParent, 10))).failures.empty());
    ASSERT_EQ(driver_.tier(Tier::device).held, 1U);
  }
  ErrorCode code_of(const StepScript& script) {
    const Reply reply = driver_.step(client_, script);
    const auto& failures = body_of(reply).failures;
    return failures.empty() ? ErrorCode::ok : failures[0].error.code;
  }

  EngineDriver driver_{options_with_slots(8, 0, 0)};
  ClientId client_ = driver_.attach_with_pool();
};

TEST_F(Fork, SharesPublishedBlocksAndCopiesTheTail) {
  admit_parent();
  const Reply reply = driver_.step(client_, StepScript().fork(kParent, kChild, 6));
  const StepReply& body = body_of(reply);
  ASSERT_TRUE(body.failures.empty());
  const auto parent = driver_.live(client_, kParent);
  const auto child = driver_.live(client_, kChild);
  // 10 tokens and 6 more: 4 blocks, of which 2 are shared.
  ASSERT_EQ(child.block_count, 4U);
  EXPECT_EQ(child.table[0], parent.table[0]);
  EXPECT_EQ(child.table[1], parent.table[1]);
  EXPECT_NE(child.table[2], parent.table[2]);
  EXPECT_EQ(std::vector(child.tokens.begin(), child.tokens.end()), numbered_tokens(1, 10));
  EXPECT_EQ(std::vector(child.owned.begin(), child.owned.end()),
            (std::vector<std::uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ(child.deepest, parent.deepest);
  EXPECT_EQ(driver_.engine().cache()->records().pins(child.deepest), 2U);
  ASSERT_EQ(body.deltas.size(), 1U);
  EXPECT_EQ(body.deltas[0].sequence, kChild);
  EXPECT_EQ(body.deltas[0].version, 1U);
  EXPECT_EQ(body.slots, std::vector(child.table.begin(), child.table.end()));
  ASSERT_EQ(body.copies.size(), 1U);
  EXPECT_EQ(body.copies[0].sequence, kChild);
  EXPECT_EQ(body.copies[0].from_slot, parent.table[2]);
  EXPECT_EQ(body.copies[0].to_slot, child.table[2]);
  EXPECT_EQ(body.copies[0].token_count, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  EXPECT_EQ(driver_.status().counters.forked_sequences, 1U);
}

TEST_F(Fork, ParentAndChildGoOnWithoutEachOther) {
  admit_parent();
  driver_.step(client_, StepScript().fork(kParent, kChild, 6));
  driver_.step(
      client_,
      StepScript().append(kParent, numbered_tokens(50, 2)).append(kChild, numbered_tokens(60, 2)));
  driver_.step(client_, StepScript().publish(kParent, 12).publish(kChild, 12));
  std::vector<Token> parents = numbered_tokens(1, 10);
  std::vector<Token> childs = parents;
  parents.insert(parents.end(), {50, 51, 9});
  childs.insert(childs.end(), {60, 61, 9});
  EXPECT_EQ(driver_.lookup(client_, parents).hit_tokens, 12U);
  EXPECT_EQ(driver_.lookup(client_, childs).hit_tokens, 12U);
  // The parent's end takes nothing from the child.
  driver_.step(client_, StepScript().free(kParent));
  EXPECT_EQ(code_of(StepScript().append(kChild, numbered_tokens(62, 3))), ErrorCode::ok);
  const auto child = driver_.live(client_, kChild);
  EXPECT_EQ(child.published_blocks, 3U);
  EXPECT_GT(driver_.tier(Tier::device).covered, 0U);
  driver_.step(client_, StepScript().free(kChild));
  driver_.step(client_, StepScript());
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).covered, 0U);
}

TEST_F(Fork, TheChildsAccountIsOfWhatItGeneratesAlone) {
  admit_parent();
  driver_.step(client_, StepScript().fork(kParent, kChild, 6));
  driver_.step(client_, StepScript().append(kChild, numbered_tokens(60, 3)));
  driver_.step(client_, StepScript().truncate(kChild, 12));
  const Reply reply = driver_.step(client_, StepScript().free(kChild));
  ASSERT_EQ(body_of(reply).ended.size(), 1U);
  EXPECT_EQ(body_of(reply).ended[0].account, (Account{.generated_tokens = 2}));
  EXPECT_EQ(driver_.status().counters.prompt_tokens, 10U);
}

// The copy is done before the next step's work: until that is completed both slots are held.
TEST_F(Fork, TheSlotsOfACopyStayHeldUntilTheNextStepIsCompleted) {
  admit_parent();
  driver_.step(client_, StepScript().fork(kParent, kChild).free(kParent).free(kChild));
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
  driver_.step(client_, StepScript());  // completed at once
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
}

TEST_F(Fork, ATailThatIsCopiedAndThenTruncatedStaysHeldAsWell) {
  driver_.admit(client_, kParent, numbered_tokens(1, 10));
  driver_.step(client_, StepScript().publish(kParent, 8));
  const SlotId tail = driver_.live(client_, kParent).table[2];
  const auto state = [&] {
    return driver_.engine().cache()->pool(Tier::device, GroupId(0)).state(tail);
  };
  driver_.step(client_, StepScript().fork(kParent, kChild).truncate(kParent, 8));
  EXPECT_EQ(driver_.live(client_, kParent).block_count, 2U);
  EXPECT_EQ(state(), SlotState::held);
  driver_.step(client_, StepScript());
  EXPECT_EQ(state(), SlotState::free);
}

TEST_F(Fork, IsRefusedWholeAndChangesNothing) {
  admit_parent();
  EXPECT_EQ(code_of(StepScript().fork(kParent, kParent)), ErrorCode::exists);
  EXPECT_EQ(code_of(StepScript().fork(kParent, kChild, 1'000)), ErrorCode::too_large);
  driver_.admit(client_, kOther, numbered_tokens(101, 16));  // 4 slots of the 5 that were free
  EXPECT_EQ(driver_.tier(Tier::device).free, 1U);
  EXPECT_EQ(code_of(StepScript().fork(kParent, kChild, 3)), ErrorCode::exhausted);
  EXPECT_FALSE(driver_.view(client_, kChild).has_value());
  EXPECT_EQ(driver_.tier(Tier::device).free, 1U);
  EXPECT_EQ(driver_.engine().cache()->records().pins(driver_.live(client_, kParent).deepest), 1U);
  EXPECT_EQ(code_of(StepScript().fork(kParent, kChild, 2)), ErrorCode::ok);
}

TEST_F(Fork, OfManySequencesIsBoundedByTheirNumber) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.sequence_capacity = 2;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kParent, numbered_tokens(1, 4));
  const Reply reply = driver.step(client, StepScript().fork(kParent, kChild).fork(kParent, kOther));
  ASSERT_EQ(body_of(reply).failures.size(), 1U);
  EXPECT_EQ(body_of(reply).failures[0].item, 1U);
  EXPECT_EQ(body_of(reply).failures[0].error.code, ErrorCode::exhausted);
}

// Prompts are bounded before slots are: a fork takes the memory of its parent's tokens again.
TEST_F(Fork, CountsItsTokensAgainstTheLimitOfPrompts) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.client_prompt_tokens_max = 15;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kParent, numbered_tokens(1, 8));
  Reply reply = driver.step(client, StepScript().fork(kParent, kChild));
  ASSERT_EQ(body_of(reply).failures.size(), 1U);
  EXPECT_EQ(body_of(reply).failures[0].error.code, ErrorCode::exhausted);
  EXPECT_EQ(driver.status().counters.refused_prompt_tokens, 1U);
}

TEST_F(Fork, WithATableOfManyBlocksGoesOnInBoundedSteps) {
  constexpr std::uint32_t kBlocks = 6'000;
  EngineDriver driver(options_with_slots(2 * kBlocks, 0, 0));
  driver.check_every(1'000);
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kParent, numbered_tokens(1, 4 * kBlocks));  // nothing is published
  const std::uint64_t before = driver.continue_count();
  const Reply reply = driver.step(client, StepScript().fork(kParent, kChild));
  EXPECT_GE(driver.continue_count() - before, kBlocks / kStepBlocksMax);
  EXPECT_EQ(body_of(reply).copies.size(), kBlocks);
  EXPECT_EQ(driver.tier(Tier::device).free, 0U);
  // Its client dies in the middle of another one.
  driver.step(client, StepScript().free(kChild));
  driver.step(client, StepScript());
  driver.send(client, StepScript().fork(kParent, kOther).at(10, 9));
  ASSERT_TRUE(driver.continue_wanted());
  driver.input(ClientGone{client});
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::device).free, 2 * kBlocks);
  EXPECT_EQ(driver.status().sequences, 0U);
}

}  // namespace
}  // namespace kv::core
