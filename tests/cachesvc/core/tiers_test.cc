// Saving downward: write-through, Demote and Flush, and eviction in small tiers.
#include <algorithm>

#include <gtest/gtest.h>

#include "allocator/block_key.h"
#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr BlockOutcome kOk = BlockOutcome::ok;

Engine::Options without_write_through(std::uint32_t device, std::uint32_t host,
                                      std::uint32_t disk) {
  Engine::Options options = options_with_slots(device, host, disk);
  options.write_through = false;
  return options;
}

Reply demote(EngineDriver& driver, ClientId client, Tier tier) {
  return driver.call(client, Demote{.header = {}, .tier = tier});
}

void expect_demoted(const Reply& reply, std::uint64_t saved, std::uint64_t dropped,
                    std::uint64_t kept) {
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  const auto& body = std::get<DemoteReply>(reply.body);
  EXPECT_EQ(body.saved_blocks, saved);
  EXPECT_EQ(body.dropped_blocks, dropped);
  EXPECT_EQ(body.kept_blocks, kept);
}

void expect_flushed(const Reply& reply, std::uint64_t durable, std::uint64_t unsaved) {
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks, durable);
  EXPECT_EQ(std::get<FlushReply>(reply.body).unsaved_blocks, unsaved);
}

TEST(WriteThrough, PublishedBlocksGoToTheHostAndThenToTheDisk) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  driver.step(client, StepScript().publish(kFirst, 8));
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  EXPECT_EQ(driver.transfers().pending()[0].start.from, Tier::device);
  EXPECT_EQ(driver.transfers().pending()[0].start.to, Tier::host);
  EXPECT_EQ(driver.transfers().pending()[0].blocks.size(), 2U);
  driver.finish_transfer(0);
  driver.settle();
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  const ScriptedTransfers::Pending& save = driver.transfers().pending()[0];
  EXPECT_EQ(save.start.from, Tier::host);
  EXPECT_EQ(save.start.to, Tier::disk);
  EXPECT_EQ(save.tokens, numbered_tokens(1, 8));
  // The checksum of the copy out goes along.
  EXPECT_EQ(save.blocks.at(1).checksum, ScriptedTransfers::checksum_of(save.blocks.at(1).key));
  driver.finish_transfer(0);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::host).cached, 2U);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 2U);
  EXPECT_EQ(driver.status().counters.saved_blocks[1], 2U);
  EXPECT_EQ(driver.status().counters.saved_blocks[2], 2U);
  EXPECT_EQ(driver.status().counters.transfers_started, 2U);
  EXPECT_EQ(driver.status().counters.transfers_done, 2U);
}

TEST(WriteThrough, BlocksOfAnUnfinishedStepAreNotRead) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  driver.call(client, StepScript().publish(kFirst, 8).at(1, 0));
  EXPECT_EQ(driver.status().counters.transfers_started, 0U);
  driver.call(client, StepScript().at(2, 1));
  EXPECT_EQ(driver.status().counters.saved_blocks[1], 2U);
}

TEST(WriteThrough, FailedSaveGivesItsSlotBack) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  driver.step(client, StepScript().publish(kFirst, 8));
  const std::vector<BlockOutcome> outcomes{kOk, BlockOutcome::io_error};
  driver.finish_transfer(0, outcomes);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::host).cached, 1U);
  EXPECT_EQ(driver.tier(Tier::host).held, 0U);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 1U);
  EXPECT_EQ(driver.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver.status().counters.saved_blocks[1], 1U);
}

TEST(WriteThrough, BlockWhoseParentFailedIsNotKeptBelow) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  driver.step(client, StepScript().publish(kFirst, 8));
  const std::vector<BlockOutcome> outcomes{BlockOutcome::io_error, kOk};
  driver.finish_transfer(0, outcomes);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::host).free, 8U);
  EXPECT_TRUE(driver.transfers().pending().empty());
  // On the way to the disk its entry is taken out of the index again.
  driver.call(client, StepScript().free(kFirst).at(2, 2));
  driver.send(client, Flush{});
  driver.settle();
  driver.finish_transfer(0);
  driver.settle();
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  ASSERT_EQ(driver.transfers().pending()[0].start.to, Tier::disk);
  const TransferBlock child = driver.transfers().pending()[0].blocks.at(1);
  driver.finish_transfer(0, outcomes);
  ASSERT_EQ(driver.transfers().erases().size(), 1U);
  EXPECT_EQ(driver.transfers().erases()[0].key, child.key);
  EXPECT_EQ(driver.transfers().erases()[0].slot, child.to_slot);
  EXPECT_EQ(driver.tier(Tier::disk).free, 8U);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::disk).cached, 2U);
}

TEST(WriteThrough, DiskWithoutSpaceLeavesTheHostCopy) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 4));
  driver.step(client, StepScript().publish(kFirst, 4));
  driver.finish_transfer(0);
  driver.settle();
  const std::vector<BlockOutcome> outcomes{BlockOutcome::no_space};
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  driver.finish_transfer(0, outcomes);
  driver.settle();
  EXPECT_EQ(driver.tier(Tier::host).cached, 1U);
  EXPECT_EQ(driver.tier(Tier::disk).free, 8U);
}

TEST(WriteThrough, HostCopyFoundCorruptOnTheWayDownIsQuarantined) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  driver.allow_quarantine();
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 4));
  driver.step(client, StepScript().publish(kFirst, 4));
  driver.finish_transfer(0);
  driver.settle();
  const std::vector<BlockOutcome> outcomes{BlockOutcome::corrupt};
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  driver.finish_transfer(0, outcomes);
  EXPECT_EQ(driver.status().counters.corrupt_blocks[1], 1U);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 0U);
  EXPECT_EQ(driver.tier(Tier::host).cached, 0U);
  EXPECT_EQ(driver.tier(Tier::device).cached, 1U);
}

TEST(WriteThrough, ChainLongerThanTheHostIsSavedFromItsStart) {
  EngineDriver driver(options_with_slots(16, 3, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 20));  // 5 blocks
  EXPECT_EQ(driver.tier(Tier::host).cached, 3U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[1], 0U);
  driver.cache_prompt(client, numbered_tokens(500, 8));  // 2 leaves of the first chain go
  EXPECT_EQ(driver.tier(Tier::host).cached, 3U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[1], 2U);
  EXPECT_EQ(driver.status().counters.saved_blocks[1], 5U);
  EXPECT_EQ(driver.status().counters.dropped_unsaved_blocks, 0U);  // the device has them
  demote(driver, client, Tier::device);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(500, 9)).hit_tokens, 8U);
}

TEST(WriteThrough, UnsavedHostCopyIsNotGivenUpWhileTheWayToTheDiskIsBusy) {
  Engine::Options options = options_with_slots(8, 3, 8);  // a host slot of these is for loads
  options.host_disk_transfers = 1;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.cache_prompt(client, numbered_tokens(1, 4));
  driver.finish_transfer(0);
  driver.settle();
  ASSERT_EQ(driver.transfers().pending().size(), 1U);  // on its way to the disk
  driver.cache_prompt(client, numbered_tokens(101, 4));
  driver.finish_transfer(1);
  driver.settle();
  ASSERT_EQ(driver.tier(Tier::host).cached, 2U);  // the second one waits for its turn
  driver.cache_prompt(client, numbered_tokens(201, 4));
  EXPECT_EQ(driver.transfers().pending().size(), 1U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[1], 0U);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.status().counters.saved_blocks[2], 3U);
}

TEST(WriteThrough, FullDiskEvictsAndErasesBeforeItWrites) {
  EngineDriver driver(options_with_slots(8, 8, 2));
  const ClientId client = driver.attach_with_pool();
  for (const Token first : {1U, 100U, 200U}) driver.cache_prompt(client, numbered_tokens(first, 4));
  EXPECT_EQ(driver.tier(Tier::disk).cached, 2U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[2], 1U);
  ASSERT_EQ(driver.transfers().erases().size(), 1U);
  // The oldest went: what the index holds is the second and the third.
  const auto index = driver.transfers().disk_index();
  ASSERT_EQ(index.size(), 2U);
  std::vector<Token> firsts{index[0].tokens.at(0), index[1].tokens.at(0)};
  std::ranges::sort(firsts);
  EXPECT_EQ(firsts, (std::vector<Token>{100, 200}));
}

TEST(Demotion, SavesWhatTheTierBelowLacksAndDropsTheCopies) {
  EngineDriver driver(without_write_through(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 12));
  EXPECT_EQ(driver.tier(Tier::host).cached, 0U);
  driver.hold_transfers(true);
  const RequestId id = driver.send(client, Demote{.header = {}, .tier = Tier::device});
  driver.settle();
  EXPECT_EQ(driver.reply_count(client, id), 0U);  // the reply comes last
  driver.hold_transfers(false);
  driver.settle();
  ASSERT_EQ(driver.reply_count(client, id), 1U);
  expect_demoted(driver.reply(client, id), 3, 3, 0);
  EXPECT_EQ(driver.tier(Tier::device).free, 8U);
  EXPECT_EQ(driver.tier(Tier::host).cached, 3U);
  EXPECT_EQ(driver.status().counters.dropped_unsaved_blocks, 0U);
  expect_demoted(demote(driver, client, Tier::host), 3, 3, 0);
  EXPECT_EQ(driver.tier(Tier::host).free, 8U);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 3U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 13)).hit_tokens_by_tier[2], 12U);
  EXPECT_EQ(driver.status().tree_blocks, 3U);
}

TEST(Demotion, BlocksInUseAreSavedButKept) {
  EngineDriver driver(without_write_through(8, 8, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(100, 8));
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  driver.step(client, StepScript().publish(kFirst, 4));
  expect_demoted(demote(driver, client, Tier::device), 3, 2, 1);
  EXPECT_EQ(driver.tier(Tier::device).cached, 1U);
  EXPECT_EQ(driver.tier(Tier::device).held, 1U);
  EXPECT_EQ(driver.tier(Tier::host).cached, 3U);
}

TEST(Demotion, WhatCannotBeSavedIsKept) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  expect_demoted(demote(driver, client, Tier::device), 0, 0, 2);
  EXPECT_EQ(driver.status().counters.dropped_unsaved_blocks, 0U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 9)).hit_tokens, 8U);
}

TEST(Demotion, OfTheDiskIsUnsupported) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  EXPECT_EQ(demote(driver, client, Tier::disk).error.code, ErrorCode::unsupported);
}

TEST(Demotion, TwoAtOnceBothEnd) {
  EngineDriver driver(without_write_through(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 12));
  driver.hold_transfers(true);
  const RequestId one = driver.send(client, Demote{.header = {}, .tier = Tier::device});
  const RequestId two = driver.send(client, Demote{.header = {}, .tier = Tier::device});
  const RequestId flush = driver.send(client, Flush{});
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.reply(client, one).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.reply(client, two).error.code, ErrorCode::ok);
  expect_flushed(driver.reply(client, flush), 3, 0);
  EXPECT_EQ(driver.tier(Tier::device).cached, 0U);
}

TEST(Flushing, MakesEverythingDurableAndCountsItAfterTheSync) {
  EngineDriver driver(without_write_through(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 12));
  driver.hold_syncs(true);
  const RequestId id = driver.send(client, Flush{});
  driver.settle();
  EXPECT_EQ(driver.reply_count(client, id), 0U);
  ASSERT_EQ(driver.pending_syncs().size(), 1U);
  EXPECT_EQ(driver.transfers().disk_index().size(), 3U);
  driver.finish_sync(true);
  driver.settle();
  ASSERT_EQ(driver.reply_count(client, id), 1U);
  expect_flushed(driver.reply(client, id), 3, 0);
  EXPECT_EQ(driver.tier(Tier::device).cached, 3U);  // nothing was dropped
  EXPECT_EQ(driver.tier(Tier::host).cached, 3U);
}

// A key says which namespace a block is of.
TEST(Flushing, WritesEachBlockUnderItsOwnNamespace) {
  EngineDriver driver(without_write_through(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 4));
  driver.admit(client, kFirst, numbered_tokens(1, 4), 0, NamespaceFields{.salt = "other"});
  driver.step(client, StepScript().publish(kFirst, 4).free(kFirst));
  expect_flushed(driver.call(client, Flush{}), 2, 0);
  const auto index = driver.transfers().disk_index();
  ASSERT_EQ(index.size(), 2U);
  EXPECT_NE(index[0].entry.namespace_digest, index[1].entry.namespace_digest);
  for (const auto& found : index) {
    EXPECT_EQ(next_block_key(found.entry.namespace_digest, found.tokens), found.entry.key);
  }
}

TEST(Flushing, BlocksInUseAreSavedToo) {
  EngineDriver driver(without_write_through(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 8), 4);
  driver.step(client, StepScript().publish(kFirst, 8));
  expect_flushed(driver.call(client, Flush{}), 2, 0);
}

TEST(Flushing, WithoutADiskNothingIsDurable) {
  EngineDriver driver(options_with_slots(8, 8, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  const Reply reply = driver.call(client, Flush{});
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks, 0U);
}

// One host slot of these is kept for loads from the disk.
TEST(Flushing, GoesThroughASmallHostInRounds) {
  EngineDriver driver(without_write_through(16, 3, 16));
  const ClientId client = driver.attach_with_pool();
  for (const Token first : {1U, 100U, 200U}) driver.cache_prompt(client, numbered_tokens(first, 8));
  expect_flushed(driver.call(client, Flush{}), 6, 0);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 6U);
  EXPECT_EQ(driver.tier(Tier::host).cached, 2U);
}

// The second block of each chain needs the first in the host, and there is one slot for both.
TEST(Flushing, EndsWhenChainsDoNotFitTheHost) {
  EngineDriver driver(without_write_through(16, 2, 16));
  const ClientId client = driver.attach_with_pool();
  for (const Token first : {1U, 100U, 200U}) driver.cache_prompt(client, numbered_tokens(first, 8));
  expect_flushed(driver.call(client, Flush{}), 3, 3);
}

// What the disk gives up for one block is saved again for another: that must end too.
TEST(Flushing, EndsWhenTheDiskIsSmallerThanWhatThereIs) {
  EngineDriver driver(without_write_through(16, 8, 2));
  const ClientId client = driver.attach_with_pool();
  for (const Token first : {1U, 100U, 200U}) driver.cache_prompt(client, numbered_tokens(first, 4));
  expect_flushed(driver.call(client, Flush{}), 2, 1);
  EXPECT_EQ(driver.transfers().disk_index().size(), 2U);
}

// Copies in a tier are prefix-closed: the third block of a chain can't pass two host slots (of
// three, one is kept for loads).
TEST(Flushing, ChainLongerThanTheHostLeavesItsEndUnsaved) {
  EngineDriver driver(without_write_through(16, 3, 16));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 12));
  expect_flushed(driver.call(client, Flush{}), 2, 1);
}

TEST(Flushing, BlocksThatTheDiskCannotHoldAreUnsaved) {
  EngineDriver driver(without_write_through(16, 8, 2));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 16));  // one chain of 4: no leaf may be evicted
  expect_flushed(driver.call(client, Flush{}), 2, 2);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 2U);
}

// A disk that takes nothing; what goes to the host arrives.
void settle_without_the_disk(EngineDriver& driver, BlockOutcome outcome) {
  driver.settle();
  while (!driver.transfers().pending().empty()) {
    const ScriptedTransfers::Pending& next = driver.transfers().pending()[0];
    const bool to_disk = next.start.to == Tier::disk;
    const std::vector<BlockOutcome> outcomes(next.blocks.size(), to_disk ? outcome : kOk);
    driver.finish_transfer(0, outcomes);
    driver.settle();
  }
}

class DiskThatTakesNothing : public testing::TestWithParam<BlockOutcome> {
 protected:
  static constexpr std::uint32_t kBlocks = 20;
  DiskThatTakesNothing() : driver_(options_with_slots(32, 32, 32)) {
    client_ = driver_.attach_with_pool();
    driver_.hold_transfers(true);
    driver_.admit(client_, kFirst, numbered_tokens(1, kBlocks * 4));
    for (std::uint32_t i = 1; i <= kBlocks; ++i) {
      driver_.step(client_, StepScript().publish(kFirst, i * 4));
      settle_without_the_disk(driver_, GetParam());
    }
    driver_.step(client_, StepScript().free(kFirst));
  }
  EngineDriver driver_;
  ClientId client_;
};

TEST_P(DiskThatTakesNothing, IsNotAskedAgainForAllAncestorsOfEveryBlock) {
  EXPECT_EQ(driver_.tier(Tier::host).cached, kBlocks);
  EXPECT_GE(driver_.status().counters.failed_blocks[2], 1U);
  EXPECT_LE(driver_.status().counters.failed_blocks[2], kBlocks);
  const std::uint64_t before = driver_.status().counters.failed_blocks[2];
  const RequestId id = driver_.send(client_, Flush{});
  settle_without_the_disk(driver_, GetParam());
  expect_flushed(driver_.reply(client_, id), 0, kBlocks);
  EXPECT_LE(driver_.status().counters.failed_blocks[2] - before, 2 * kBlocks);
}

TEST_P(DiskThatTakesNothing, GetsEverythingByAFlushOnceItTakesAgain) {
  driver_.hold_transfers(false);
  expect_flushed(driver_.call(client_, Flush{}), kBlocks, 0);
}

INSTANTIATE_TEST_SUITE_P(Outcomes, DiskThatTakesNothing,
                         testing::Values(BlockOutcome::no_space, BlockOutcome::io_error),
                         [](const auto& outcome) {
                           return outcome.param == BlockOutcome::no_space ? "Full" : "Broken";
                         });

}  // namespace
}  // namespace kv::core
