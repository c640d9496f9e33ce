// Two sequences that compute equal blocks: one copy is kept where the client agrees.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

// Both sequences compute `prompt` of 8 tokens (2 blocks); the first has published it.
class Dedupe : public testing::Test {
 protected:
  Dedupe()
      : driver_(options_with_slots(8, 8, 0)),
        client_(driver_.attach_with_pool()),
        prompt_(numbered_tokens(1, 8)) {}

  void admit_both(bool second_accepts) {
    first_slots_ = std::get<AdmitReply>(driver_.admit(client_, kFirst, prompt_).body).slots;
    const NamespaceFields fields;
    driver_.call(client_, Open{.header = {},
                               .sequence = kSecond,
                               .first = true,
                               .fields = &fields,
                               .tokens = prompt_,
                               .accept_rewrite = second_accepts});
    const Reply reply =
        driver_.call(client_, Admit{.header = {}, .sequence = kSecond, .max_new_tokens = 4});
    second_slots_ = std::get<AdmitReply>(reply.body).slots;
    second_version_ = std::get<AdmitReply>(reply.body).table_version;
    driver_.call(client_, StepScript().publish(kFirst, 8).at(1, 1));
  }
  // The second publishes in step 2.
  StepReply publish_second(std::uint64_t completed) {
    const Reply reply = driver_.call(client_, StepScript().publish(kSecond, 8).at(2, completed));
    EXPECT_EQ(reply.error.code, ErrorCode::ok);
    return std::get<StepReply>(reply.body);
  }
  std::vector<SlotId> table_of(SequenceId sequence) {
    const Engine::SequenceView view = driver_.live(client_, sequence);
    return {view.table.begin(), view.table.end()};
  }

  EngineDriver driver_;
  ClientId client_;
  std::vector<Token> prompt_;
  std::vector<SlotId> first_slots_, second_slots_;
  std::uint32_t second_version_ = 0;
};

std::uint32_t last_version(const StepReply& reply) {
  std::uint32_t version = 0;
  for (const TableDelta& delta : reply.deltas) version = std::max(version, delta.version);
  return version;
}

TEST_F(Dedupe, SecondPublisherIsMovedOntoTheCachedSlots) {
  admit_both(true);
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  const StepReply reply = publish_second(2);
  std::vector<SlotId> told = second_slots_;
  for (const TableDelta& delta : reply.deltas) {
    EXPECT_EQ(delta.sequence, kSecond);
    EXPECT_GT(delta.version, second_version_);
    for (std::uint32_t i = 0; i < delta.slot_count; ++i) {
      told.at(delta.first_block + i) = reply.slots.at(delta.slot_offset + i);
    }
  }
  const std::vector<SlotId> expected{first_slots_[0], first_slots_[1], second_slots_[2]};
  EXPECT_EQ(told, expected);
  EXPECT_EQ(table_of(kSecond), expected);
  EXPECT_EQ(driver_.status().counters.rewritten_blocks, 2U);
  EXPECT_EQ(driver_.status().counters.duplicate_blocks, 0U);
  EXPECT_EQ(driver_.status().tree_blocks, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
}

TEST_F(Dedupe, ReplacedSlotsWaitForTheAcknowledgement) {
  admit_both(true);
  const StepReply reply = publish_second(2);
  driver_.call(client_, StepScript().at(3, 3));
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  EXPECT_EQ(driver_.engine().waiting_slots(Tier::device, GroupId(0)).size(), 2U);
  driver_.call(client_, StepScript().acknowledge(kSecond, last_version(reply)).at(4, 4));
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);  // the block for new tokens
  EXPECT_EQ(driver_.engine().waiting_slots(Tier::device, GroupId(0)).size(), 0U);
}

TEST_F(Dedupe, ReplacedSlotsWaitForTheStepsThatMayReadThem) {
  admit_both(true);
  const StepReply reply = publish_second(2);
  driver_.call(client_, StepScript().at(3, 2));
  // Step 3 may still read the old slots: it is not completed.
  driver_.call(client_, StepScript().acknowledge(kSecond, last_version(reply)).at(4, 2));
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  driver_.call(client_, StepScript().at(5, 4));
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);
}

TEST_F(Dedupe, OlderVersionAcknowledgesNothing) {
  admit_both(true);
  publish_second(2);
  driver_.call(client_, StepScript().acknowledge(kSecond, second_version_).at(3, 3));
  driver_.call(client_, StepScript().at(4, 4));
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
}

TEST_F(Dedupe, FreeGivesBackReplacedSlotsThatNobodyAcknowledged) {
  admit_both(true);
  publish_second(2);
  driver_.call(client_, StepScript().free(kSecond).at(3, 2));
  driver_.call(client_, StepScript().at(4, 4));
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
}

TEST_F(Dedupe, WithoutConsentTheSlotsStayPrivate) {
  admit_both(false);
  const StepReply reply = publish_second(2);
  EXPECT_TRUE(reply.deltas.empty());
  EXPECT_EQ(table_of(kSecond), second_slots_);
  EXPECT_EQ(driver_.status().counters.duplicate_blocks, 2U);
  EXPECT_EQ(driver_.status().counters.rewritten_blocks, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  driver_.call(client_, StepScript().free(kSecond).at(3, 3));
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
}

TEST_F(Dedupe, PrivateDuplicateStillGivesLaterBlocksAParent) {
  admit_both(false);
  publish_second(2);
  driver_.call(client_, StepScript().append(kSecond, numbered_tokens(9, 4)).at(3, 2));
  driver_.call(client_, StepScript().publish(kSecond, 12).free(kFirst).at(4, 4));
  EXPECT_EQ(driver_.status().tree_blocks, 3U);
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(1, 13)).hit_tokens, 12U);
  // The second one pins the path, though the first one has ended.
  EXPECT_EQ(driver_.tier(Tier::device).covered, 3U);
}

TEST_F(Dedupe, EqualBlocksOfTwoClientsAreOneToo) {
  const ClientId other = driver_.attach_with_pool();
  driver_.admit(client_, kFirst, prompt_);
  driver_.admit(other, kFirst, prompt_);
  driver_.step(client_, StepScript().publish(kFirst, 8));
  driver_.step(other, StepScript().publish(kFirst, 8));
  EXPECT_EQ(driver_.status().counters.rewritten_blocks, 2U);
  EXPECT_EQ(driver_.status().tree_blocks, 2U);
}

TEST_F(Dedupe, SlotOfABlockThatIsOnlyBelowBecomesItsCopy) {
  driver_.cache_prompt(client_, prompt_);  // step 1; saved to the host at once
  driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
  ASSERT_EQ(driver_.tier(Tier::device).cached, 0U);
  ASSERT_EQ(driver_.tier(Tier::host).cached, 2U);
  const NamespaceFields fields;
  driver_.call(client_, Open{.header = {},
                             .sequence = kSecond,
                             .first = true,
                             .fields = &fields,
                             .tokens = prompt_,
                             .skip_read = true});
  driver_.call(client_, Admit{.header = {}, .sequence = kSecond});
  driver_.step(client_, StepScript().publish(kSecond, 8));
  EXPECT_EQ(driver_.status().counters.adopted_blocks, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.status().tree_blocks, 2U);
}

// It would be on the device before its parent, and be lost with it when the load fails.
TEST_F(Dedupe, BlockBelowAParentThatIsBeingLoadedStaysPrivate) {
  driver_.cache_prompt(client_, prompt_);
  driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
  driver_.hold_transfers(true);
  driver_.admit(client_, kFirst, numbered_tokens(1, 9));
  const NamespaceFields fields;
  const std::vector<Token> longer = numbered_tokens(1, 12);
  driver_.call(client_, Open{.header = {},
                             .sequence = kSecond,
                             .first = true,
                             .fields = &fields,
                             .tokens = longer,
                             .skip_read = true});
  driver_.call(client_, Admit{.header = {}, .sequence = kSecond});
  driver_.step(client_, StepScript().publish(kSecond, 12));
  EXPECT_EQ(driver_.status().counters.duplicate_blocks, 3U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 0U);
  driver_.hold_transfers(false);
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(1, 13)).hit_tokens, 8U);
}

}  // namespace
}  // namespace kv::core
