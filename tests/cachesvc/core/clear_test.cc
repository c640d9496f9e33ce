// Clear: after its reply nothing older is hit, what runs goes on, and the disk forgets for good.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

constexpr NamespaceFields kOther{.weights = "other"};

// One runner with a pool, one administrator.
struct Cleared {
  explicit Cleared(const Engine::Options& options)
      : driver(options),
        client(driver.attach_with_pool()),
        admin(driver.attach(ClientRole::admin)) {}
  EngineDriver driver;
  ClientId client, admin;

  ClearReply clear(const Clear& request = {}) {
    const Reply reply = driver.call(admin, request);
    EXPECT_EQ(reply.error.code, ErrorCode::ok) << reply.error.reason;
    const auto* body = std::get_if<ClearReply>(&reply.body);
    return body == nullptr ? ClearReply{} : *body;
  }
  ClearReply clear_tier(Tier tier, const NamespaceFields* fields = nullptr) {
    return clear({.header = {}, .all_tiers = false, .tier = tier, .fields = fields});
  }
  std::uint64_t hit_tokens(std::span<const Token> tokens, const NamespaceFields& fields = {}) {
    return driver.lookup(client, tokens, fields).hit_tokens;
  }
  void expect_empty(Tier tier) {
    const TierStatus& now = driver.tier(tier);
    EXPECT_EQ(now.free, now.slots) << tier_name(tier);
  }
};

TEST(Clear, LeavesNothingInAnyTier) {
  Cleared test(options_with_slots(8, 8, 8));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 16));
  test.driver.cache_prompt(test.client, numbered_tokens(101, 8));
  ASSERT_EQ(test.hit_tokens(numbered_tokens(1, 17)), 16U);
  ASSERT_EQ(test.driver.tier(Tier::disk).cached, 6U);
  const ClearReply reply = test.clear();
  EXPECT_EQ(reply.cleared_blocks, 6U);
  EXPECT_EQ(reply.kept_blocks, 0U);
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 17)), 0U);
  EXPECT_EQ(test.hit_tokens(numbered_tokens(101, 9)), 0U);
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) test.expect_empty(tier);
  EXPECT_TRUE(test.driver.transfers().disk_index().empty());
  EXPECT_EQ(test.driver.status().tree_blocks, 0U);
  EXPECT_EQ(test.driver.status().counters.cleared_blocks, 6U);
}

TEST(Clear, IsForAdministratorsOnly) {
  Cleared test(options_with_slots(8, 8, 8));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  const ClientId observer = test.driver.attach(ClientRole::observer);
  for (const ClientId client : {test.client, observer}) {
    const Reply reply = test.driver.call(client, Clear{});
    EXPECT_EQ(reply.error.code, ErrorCode::denied);
    EXPECT_EQ(reply.error.field, "role");
  }
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 8U);
}

TEST(Clear, BeforeAnyPoolHasNothingToDo) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const Reply reply = driver.call(driver.attach(ClientRole::admin), Clear{});
  EXPECT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<ClearReply>(reply.body).cleared_blocks, 0U);
}

TEST(Clear, OfOneNamespaceLeavesTheOthers) {
  Cleared test(options_with_slots(16, 16, 16));
  const std::vector<Token> prompt = numbered_tokens(1, 9);
  test.driver.admit(test.client, kFirst, prompt, 0, kOther);
  test.driver.step(test.client, StepScript().publish(kFirst, 8).free(kFirst));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  const ClearReply reply = test.clear({.header = {}, .fields = &kOther});
  EXPECT_EQ(reply.cleared_blocks, 2U);
  EXPECT_EQ(reply.epoch, 1U);
  EXPECT_EQ(test.hit_tokens(prompt, kOther), 0U);
  EXPECT_EQ(test.hit_tokens(prompt), 8U);
  EXPECT_EQ(test.driver.transfers().disk_index().size(), 2U);
}

TEST(Clear, DoesNotMatchBeforeItsReplyEither) {
  Cleared test(options_with_slots(8, 8, 8));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.driver.hold_syncs(true);
  const RequestId id = test.driver.send(test.admin, Clear{});
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 0U);
  test.driver.settle();
  EXPECT_EQ(test.driver.reply_count(test.admin, id), 0U);  // the disk has not confirmed
  ASSERT_EQ(test.driver.pending_syncs().size(), 1U);
  EXPECT_TRUE(test.driver.transfers().disk_index().empty());  // the erases went out before
  test.driver.finish_sync(true);
  EXPECT_EQ(test.driver.reply(test.admin, id).error.code, ErrorCode::ok);
}

TEST(Clear, SaysSoWhenTheDiskMayBringItBack) {
  Cleared test(options_with_slots(8, 8, 8));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.driver.hold_syncs(true);
  const RequestId id = test.driver.send(test.admin, Clear{});
  test.driver.settle();
  ASSERT_EQ(test.driver.pending_syncs().size(), 1U);
  test.driver.finish_sync(false);
  EXPECT_EQ(test.driver.reply(test.admin, id).error.code, ErrorCode::unavailable);
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 0U);
}

// SCENARIOS COR-35 and COR-37: what runs is not disturbed, and publishes nothing afterwards.
// What lies on it is not known, and may be served when the disk can be opened again.
TEST(Clear, SaysSoWhenTheDiskCannotBeOpened) {
  Cleared test(options_with_slots(8, 8, 8));
  test.driver.input(DiskOff{});
  ASSERT_EQ(test.driver.tier(Tier::disk).slots, 0U);
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.driver.hold_syncs(true);
  const Clear of_disk{.header = {}, .all_tiers = false, .tier = Tier::disk};
  for (const Clear& request : {Clear{}, of_disk}) {
    const RequestId id = test.driver.send(test.admin, request);
    test.driver.settle();
    ASSERT_EQ(test.driver.reply_count(test.admin, id), 0U);
    test.driver.finish_sync(false);
    test.driver.settle();
    EXPECT_EQ(test.driver.reply(test.admin, id).error.code, ErrorCode::unavailable);
    EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 0U);
  }
}

TEST(Clear, RunningSequenceKeepsItsSlotsAndPublishesNothing) {
  Cleared test(options_with_slots(8, 8, 8));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.driver.admit(test.client, kFirst, numbered_tokens(1, 12), 8);
  test.driver.step(test.client, StepScript().publish(kFirst, 12));
  const Engine::SequenceView before = test.driver.live(test.client, kFirst);
  const std::vector<SlotId> table(before.table.begin(), before.table.end());
  const ClearReply reply = test.clear();
  EXPECT_EQ(reply.cleared_blocks, 3U);
  EXPECT_EQ(reply.kept_blocks, 3U);
  const Engine::SequenceView after = test.driver.live(test.client, kFirst);
  EXPECT_EQ(std::vector<SlotId>(after.table.begin(), after.table.end()), table);
  EXPECT_EQ(test.driver.tier(Tier::device).cached, 3U);
  EXPECT_TRUE(test.driver.transfers().disk_index().empty());
  test.expect_empty(Tier::host);  // nobody but the running sequence's device slots is left

  const Reply step = test.driver.step(
      test.client, StepScript().append(kFirst, numbered_tokens(50, 4)).publish(kFirst, 16));
  EXPECT_TRUE(std::get<StepReply>(step.body).failures.empty());
  EXPECT_EQ(test.driver.status().counters.uncacheable_blocks, 1U);
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 13)), 0U);
  test.driver.step(test.client, StepScript().free(kFirst));
  test.expect_empty(Tier::device);
  EXPECT_EQ(test.driver.status().tree_blocks, 0U);
  EXPECT_EQ(test.driver.status().counters.uncacheable_blocks, 1U);
}

TEST(Clear, PublishThatWaitsForItsStepComesTooLate) {
  Cleared test(options_with_slots(8, 8, 0));
  test.driver.admit(test.client, kFirst, numbered_tokens(1, 8));
  test.driver.call(test.client, StepScript().publish(kFirst, 8).at(1, 0));
  test.clear();
  test.driver.call(test.client, StepScript().at(2, 1));
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 0U);
  EXPECT_EQ(test.driver.status().counters.uncacheable_blocks, 2U);
}

TEST(Clear, NewSequencesFillTheCacheAnewWhileOldOnesRun) {
  Cleared test(options_with_slots(16, 16, 16));
  const std::vector<Token> prompt = numbered_tokens(1, 8);
  test.driver.admit(test.client, kFirst, prompt);
  test.driver.step(test.client, StepScript().publish(kFirst, 8));
  test.clear();
  const Reply admitted = test.driver.admit(test.client, kSecond, prompt);
  EXPECT_EQ(std::get<AdmitReply>(admitted.body).account.computed_tokens, 8U);
  test.driver.step(test.client, StepScript().publish(kSecond, 8));
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 8U);
  EXPECT_EQ(test.driver.transfers().disk_index().size(), 2U);
  test.driver.step(test.client, StepScript().free(kFirst).free(kSecond));
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 8U);
  EXPECT_EQ(test.driver.tier(Tier::device).cached, 2U);
}

TEST(Clear, SequenceOpenedBeforeReadsAndPublishesNothing) {
  Cleared test(options_with_slots(8, 8, 0));
  const std::vector<Token> prompt = numbered_tokens(1, 12);
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.driver.open(test.client, kFirst, prompt);
  test.clear();
  const Reply reply = test.driver.call(test.client, Admit{.header = {}, .sequence = kFirst});
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(reply.body).account.computed_tokens, 12U);
  test.driver.step(test.client, StepScript().publish(kFirst, 12).free(kFirst));
  EXPECT_EQ(test.driver.status().tree_blocks, 0U);
}

TEST(Clear, LoadUnderWayIsUndoneAndTheSlotsComeBackWithItsEnd) {
  Cleared test(options_with_slots(4, 8, 0));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.driver.call(test.client, Demote{.header = {}, .tier = Tier::device});
  test.driver.hold_transfers(true);
  const Reply admitted = test.driver.admit(test.client, kFirst, numbered_tokens(1, 12));
  ASSERT_FALSE(std::get<AdmitReply>(admitted.body).ready);
  ASSERT_EQ(test.driver.transfers().pending().size(), 1U);
  const RequestId id = test.driver.send(test.admin, Clear{});
  test.driver.settle();
  EXPECT_EQ(test.driver.tier(Tier::device).held, 3U);
  EXPECT_EQ(test.driver.reply_count(test.admin, id), 0U);
  EXPECT_TRUE(test.driver.notices(test.client).empty());
  test.driver.finish_transfer(0);
  test.driver.settle();
  ASSERT_EQ(test.driver.notices(test.client).size(), 1U);
  EXPECT_EQ(test.driver.notices(test.client)[0].code, ErrorCode::busy);
  EXPECT_EQ(test.driver.reply(test.admin, id).error.code, ErrorCode::ok);
  test.expect_empty(Tier::device);
  test.expect_empty(Tier::host);
  EXPECT_EQ(test.driver.status().tree_blocks, 0U);
  const Reply again = test.driver.call(test.client, Admit{.header = {}, .sequence = kFirst});
  EXPECT_EQ(std::get<AdmitReply>(again.body).account.computed_tokens, 12U);
}

TEST(Clear, SaveUnderWayEndsWithoutACopy) {
  for (const bool to_disk : {false, true}) {
    SCOPED_TRACE(to_disk);
    Cleared test(options_with_slots(8, 8, 8));
    test.driver.hold_transfers(true);
    test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
    if (to_disk) {
      test.driver.finish_transfer(0);
      test.driver.settle();
    }
    ASSERT_EQ(test.driver.transfers().pending().size(), 1U);
    ASSERT_EQ(test.driver.transfers().pending()[0].start.to, to_disk ? Tier::disk : Tier::host);
    const RequestId id = test.driver.send(test.admin, Clear{});
    test.driver.settle();
    EXPECT_EQ(test.driver.reply_count(test.admin, id), 0U);
    // What the transfer reads is nobody else's before it has ended.
    EXPECT_EQ(test.driver.tier(to_disk ? Tier::host : Tier::device).free, 6U);
    test.driver.finish_transfer(0);
    test.driver.settle();
    EXPECT_EQ(test.driver.reply(test.admin, id).error.code, ErrorCode::ok);
    EXPECT_TRUE(test.driver.transfers().pending().empty());
    EXPECT_TRUE(test.driver.transfers().disk_index().empty());
    for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) test.expect_empty(tier);
  }
}

// More than one step gives up: the rest is still there when the slots are wanted.
TEST(Clear, AllocationTakesClearedBlocksFirst) {
  constexpr std::uint32_t kOlder = 100, kCleared = 4'900;
  Cleared test(options_with_slots(kOlder + kCleared, 0, 0));
  test.driver.cache_prompt(test.client, numbered_tokens(100'001, kOlder * 4));  // older, and stays
  test.driver.admit(test.client, kFirst, numbered_tokens(1, kCleared * 4), 0, kOther);
  test.driver.step(test.client, StepScript().publish(kFirst, kCleared * 4).free(kFirst));
  test.driver.open(test.client, kSecond, numbered_tokens(200'001, 4'000 * 4));
  ASSERT_EQ(test.driver.tier(Tier::device).free, 0U);
  test.driver.send(test.admin, Clear{.header = {}, .fields = &kOther});
  ASSERT_LT(test.driver.tier(Tier::device).free, 4'000U);
  const Reply admitted = test.driver.call(test.client, Admit{.header = {}, .sequence = kSecond});
  EXPECT_EQ(admitted.error.code, ErrorCode::ok);
  EXPECT_EQ(test.hit_tokens(numbered_tokens(100'001, kOlder * 4 + 1)), kOlder * 4);
  EXPECT_EQ(test.driver.status().counters.evicted_blocks[0], 0U);
}

TEST(Clear, GoesOnWhenItsClientLeaves) {
  Cleared test(options_with_slots(8, 8, 8));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.driver.hold_syncs(true);
  test.driver.send(test.admin, Clear{});
  test.driver.input(ClientGone{test.admin});
  test.driver.settle();
  test.driver.finish_sync(true);
  EXPECT_TRUE(test.driver.transfers().disk_index().empty());
  EXPECT_EQ(test.driver.status().tree_blocks, 0U);
}

TEST(Clear, OfOneTierLeavesTheCopiesOfOthers) {
  Cleared test(options_with_slots(8, 8, 8));
  const std::vector<Token> prompt = numbered_tokens(1, 9);
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  const ClearReply device = test.clear_tier(Tier::device);
  EXPECT_EQ(device.cleared_blocks, 2U);
  EXPECT_EQ(device.kept_blocks, 0U);
  EXPECT_EQ(device.epoch, 0U);
  test.expect_empty(Tier::device);
  EXPECT_EQ(test.driver.lookup(test.client, prompt).hit_tokens_by_tier[1], 8U);
  EXPECT_EQ(test.clear_tier(Tier::host).cleared_blocks, 2U);
  EXPECT_EQ(test.driver.lookup(test.client, prompt).hit_tokens_by_tier[2], 8U);
  EXPECT_EQ(test.clear_tier(Tier::disk).cleared_blocks, 2U);
  EXPECT_EQ(test.hit_tokens(prompt), 0U);
  EXPECT_TRUE(test.driver.transfers().disk_index().empty());
}

TEST(Clear, OfTheDeviceTierTellsWhatRunningSequencesHold) {
  Cleared test(options_with_slots(8, 0, 0));
  test.driver.cache_prompt(test.client, numbered_tokens(101, 8));
  test.driver.admit(test.client, kFirst, numbered_tokens(1, 8));
  test.driver.step(test.client, StepScript().publish(kFirst, 8));
  const ClearReply reply = test.clear_tier(Tier::device);
  EXPECT_EQ(reply.cleared_blocks, 2U);
  EXPECT_EQ(reply.kept_blocks, 2U);
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 8U);
}

TEST(Clear, OfOneTierAndNamespaceLeavesTheOthers) {
  Cleared test(options_with_slots(8, 8, 0));
  test.driver.admit(test.client, kFirst, numbered_tokens(1, 8), 0, kOther);
  test.driver.step(test.client, StepScript().publish(kFirst, 8).free(kFirst));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  EXPECT_EQ(test.clear_tier(Tier::host, &kOther).cleared_blocks, 2U);
  EXPECT_EQ(test.driver.tier(Tier::host).cached, 2U);
  EXPECT_EQ(test.driver.tier(Tier::device).cached, 4U);
}

TEST(Clear, OfTheRemoteTierIsUnsupported) {
  Cleared test(options_with_slots(8, 8, 0));
  const Reply reply =
      test.driver.call(test.admin, Clear{.header = {}, .all_tiers = false, .tier = Tier::remote});
  EXPECT_EQ(reply.error.code, ErrorCode::unsupported);
  EXPECT_EQ(reply.error.field, "tier");
}

TEST(Clear, CanBeRepeatedManyTimesWhileSequencesRun) {
  Engine::Options options = options_with_slots(64, 0, 0);
  options.root_capacity = 2;
  Cleared test(options);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    SCOPED_TRACE(round);
    const SequenceId sequence(round);
    ASSERT_EQ(test.driver.admit(test.client, sequence, numbered_tokens(1, 8)).error.code,
              ErrorCode::ok);
    test.driver.step(test.client, StepScript().publish(sequence, 8));
    ASSERT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 8U);
    test.clear();
    ASSERT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 0U);
    if (round > 2) {
      test.driver.step(test.client, StepScript().free(SequenceId(round - 2)));
    }
  }
  EXPECT_EQ(test.driver.tier(Tier::device).cached, 4U);
  EXPECT_LE(test.driver.status().namespaces, 2U);
}

}  // namespace
}  // namespace kv::core
