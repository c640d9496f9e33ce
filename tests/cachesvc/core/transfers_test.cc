// Transfers that misbehave: late, repeated, out of order, unknown, malformed, and those that end
// after what they were for is gone. Each gives back its slots once and changes nothing else.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr BlockOutcome kOk = BlockOutcome::ok;

// A sequence whose two-block prefix is being loaded from the host; it holds 3 device slots.
struct Loading {
  Loading() : driver(options_with_slots(8, 8, 0)), client(driver.attach_with_pool()) {
    driver.cache_prompt(client, numbered_tokens(1, 8));
    driver.call(client, Demote{.header = {}, .tier = Tier::device});
    driver.hold_transfers(true);
    driver.admit(client, kFirst, numbered_tokens(1, 9));
    EXPECT_EQ(driver.transfers().pending().size(), 1U);
    EXPECT_EQ(driver.tier(Tier::device).held, 3U);
  }
  void finish() {
    driver.finish_transfer(0);
    driver.settle();
  }
  void expect_all_free() {
    EXPECT_EQ(driver.tier(Tier::device).free, 8U);
    EXPECT_EQ(driver.tier(Tier::host).evictable, driver.tier(Tier::host).cached);
    EXPECT_EQ(driver.status().sequences, 0U);
    EXPECT_EQ(driver.status().transfers_in_flight, 0U);
  }
  EngineDriver driver;
  ClientId client;
};

TEST(Transfers, CompletionAfterItsOwnerDiedGivesTheSlotsBack) {
  Loading test;
  test.driver.input(ClientGone{test.client});
  test.driver.settle();
  EXPECT_EQ(test.driver.tier(Tier::device).held, 3U);  // the copy may still be written
  test.finish();
  test.expect_all_free();
}

TEST(Transfers, CompletionAfterTheLeaseExpiredLeavesTheSlotsFenced) {
  Loading test;
  test.driver.advance(std::chrono::seconds(11));
  test.driver.tick();
  test.driver.settle();
  EXPECT_EQ(test.driver.status().counters.expired_clients, 1U);
  test.finish();
  EXPECT_EQ(test.driver.tier(Tier::device).fenced, 3U);
  EXPECT_EQ(test.driver.tier(Tier::device).cached, 0U);
  test.driver.input(ClientGone{test.client});
  test.driver.settle();
  test.expect_all_free();
}

TEST(Transfers, CompletionAfterANewEpochMakesNoCopy) {
  Loading test;
  const ClientId admin = test.driver.attach(ClientRole::admin);
  const NamespaceFields fields;
  test.driver.send(admin, SetEpoch{.header = {}, .fields = &fields, .epoch = 2});
  test.driver.settle();
  test.finish();
  EXPECT_EQ(test.driver.status().counters.loaded_blocks[1], 2U);  // it was read, for nobody
  EXPECT_EQ(test.driver.status().tree_blocks, 0U);
  EXPECT_EQ(test.driver.tier(Tier::device).free, 8U);
  EXPECT_EQ(test.driver.tier(Tier::host).free, 8U);
  ASSERT_EQ(test.driver.notices(test.client).size(), 1U);
  EXPECT_EQ(test.driver.notices(test.client)[0].code, ErrorCode::busy);
}

TEST(Transfers, RepeatedCompletionChangesNothing) {
  Loading test;
  const ScriptedTransfers::Finished finished = test.driver.transfers().finish(0);
  test.driver.input(finished.input());
  test.driver.settle();
  ASSERT_TRUE(test.driver.live(test.client, kFirst).admitted);
  const StatusReply before = test.driver.status();
  std::vector<BlockOutcome> failed(finished.outcomes.size(), BlockOutcome::corrupt);
  test.driver.input(finished.input());
  test.driver.input(TransferDone{finished.id, failed, finished.checksums});
  const StatusReply after = test.driver.status();
  EXPECT_EQ(after.tiers, before.tiers);
  EXPECT_EQ(after.counters, before.counters);
  EXPECT_TRUE(test.driver.last_actions().erases.empty());
}

TEST(Transfers, UnknownCompletionChangesNothing) {
  Loading test;
  const StatusReply before = test.driver.status();
  const std::vector<BlockOutcome> outcomes{kOk, kOk};
  for (const TransferId id : {TransferId(0), TransferId(123'456'789), TransferId::none()}) {
    test.driver.input(TransferDone{id, outcomes, {}});
  }
  EXPECT_EQ(test.driver.status().tiers, before.tiers);
  EXPECT_EQ(test.driver.status().counters, before.counters);
  EXPECT_TRUE(test.driver.live(test.client, kFirst).loading);
}

// A report that names another number of blocks is no report of success.
TEST(Transfers, MalformedCompletionCountsAsFailed) {
  Loading test;
  test.driver.allow_quarantine();
  const ScriptedTransfers::Finished finished = test.driver.transfers().finish(0);
  const std::vector<BlockOutcome> too_many{kOk, kOk, kOk};
  test.driver.input(TransferDone{finished.id, too_many, finished.checksums});
  test.driver.settle();
  EXPECT_EQ(test.driver.status().counters.failed_blocks[1], 2U);
  EXPECT_EQ(test.driver.tier(Tier::device).free, 8U);
  ASSERT_EQ(test.driver.notices(test.client).size(), 1U);
  EXPECT_EQ(test.driver.notices(test.client)[0].code, ErrorCode::busy);
}

TEST(Transfers, OutOfOrderCompletionsMakeCopiesInPrefixOrder) {
  EngineDriver driver(options_with_slots(256, 256, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 400));  // 100 blocks: two transfers
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 401));
  ASSERT_EQ(driver.transfers().pending().size(), 2U);
  driver.finish_transfer(1);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::device).cached, 0U);  // the front is not there yet
  EXPECT_TRUE(driver.live(client, kFirst).loading);
  driver.finish_transfer(0);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::device).cached, 100U);
  EXPECT_TRUE(driver.live(client, kFirst).admitted);
}

// One block in the middle of a save is missing: what hangs on it is not kept below either.
TEST(Transfers, PartialSaveKeepsTheLeadingBlocksOnly) {
  EngineDriver driver(options_with_slots(8, 8, 0));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 12));
  driver.step(client, StepScript().publish(kFirst, 12));
  const std::vector<BlockOutcome> outcomes{kOk, BlockOutcome::cancelled, kOk};
  driver.finish_transfer(0, outcomes);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::host).cached, 1U);
  EXPECT_EQ(driver.tier(Tier::host).held, 0U);
}

// Over the longest time: no deadline takes a slot away from a copy that may still be written.
TEST(Transfers, LateCompletionFindsItsSlotsAsTheyWere) {
  Loading test;
  for (int i = 0; i < 100; ++i) {
    test.driver.advance(std::chrono::seconds(5));
    test.driver.call(test.client, Heartbeat{});
    test.driver.tick();
  }
  EXPECT_EQ(test.driver.tier(Tier::device).held, 3U);
  test.finish();
  EXPECT_TRUE(test.driver.live(test.client, kFirst).admitted);
  EXPECT_EQ(test.driver.tier(Tier::device).cached, 2U);
}

}  // namespace
}  // namespace kv::core
