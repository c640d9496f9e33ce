// Loads: from host and disk to the device, shared by those who wait, and what a failure leaves.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr BlockOutcome kOk = BlockOutcome::ok;
constexpr BlockOutcome kCorrupt = BlockOutcome::corrupt;
constexpr BlockOutcome kIoError = BlockOutcome::io_error;

class Loads : public testing::Test {
 protected:
  explicit Loads(std::uint32_t disk_slots = 0)
      : driver_(options_with_slots(8, 8, disk_slots)), client_(driver_.attach_with_pool()) {
    driver_.cache_prompt(client_, numbered_tokens(1, 8));
    demote(Tier::device);
    driver_.hold_transfers(true);
  }
  void demote(Tier tier) {
    EXPECT_EQ(driver_.call(client_, Demote{.header = {}, .tier = tier}).error.code, ErrorCode::ok);
  }
  AdmitReply admit(SequenceId sequence) {  // 9 tokens: 2 hits, 1 token to compute
    const Reply reply = driver_.admit(client_, sequence, numbered_tokens(1, 9));
    EXPECT_EQ(reply.error.code, ErrorCode::ok);
    return std::get<AdmitReply>(reply.body);
  }
  AdmitReply admit_again(SequenceId sequence) {
    const Reply reply = driver_.call(client_, Admit{.header = {}, .sequence = sequence});
    EXPECT_EQ(reply.error.code, ErrorCode::ok);
    return std::get<AdmitReply>(reply.body);
  }
  void finish(std::vector<BlockOutcome> outcomes = {}) {
    ASSERT_FALSE(driver_.transfers().pending().empty());
    driver_.finish_transfer(0, outcomes);
    driver_.settle();
  }
  const ScriptedTransfers::Pending& pending(std::size_t index = 0) {
    return driver_.transfers().pending().at(index);
  }
  Counters counters() { return driver_.status().counters; }
  // Blocks 0 and 1 of the prompt cannot be loaded any more.
  void expect_opened(SequenceId sequence) {
    const Engine::SequenceView view = driver_.live(client_, sequence);
    EXPECT_FALSE(view.admitted);
    EXPECT_EQ(view.tokens.size(), 9U);
    EXPECT_TRUE(view.deepest.is_none());
  }

  EngineDriver driver_;
  ClientId client_;
};

TEST_F(Loads, AdmissionFromTheHostIsReadyWhenTheBlocksAreIn) {
  ASSERT_EQ(driver_.tier(Tier::device).cached, 0U);
  const AdmitReply reply = admit(kFirst);
  EXPECT_FALSE(reply.ready);
  EXPECT_EQ(reply.account.hit_tokens[1], 8U);
  EXPECT_EQ(reply.account.computed_tokens, 1U);
  ASSERT_EQ(reply.slots.size(), 3U);
  ASSERT_EQ(driver_.transfers().pending().size(), 1U);
  const auto& load = pending();
  EXPECT_EQ(load.start.from, Tier::host);
  EXPECT_EQ(load.start.to, Tier::device);
  ASSERT_EQ(load.blocks.size(), 2U);
  EXPECT_EQ(load.blocks[0].to_slot, reply.slots[0]);
  EXPECT_EQ(load.blocks[1].to_slot, reply.slots[1]);
  EXPECT_EQ(load.blocks[0].depth, 0U);
  EXPECT_EQ(load.blocks[1].depth, 1U);
  EXPECT_EQ(load.blocks[1].parent_key, load.blocks[0].key);
  EXPECT_EQ(load.blocks[0].parent_key, load.start.namespace_digest);
  EXPECT_TRUE(driver_.live(client_, kFirst).loading);
  EXPECT_EQ(counters().hit_tokens[1], 0U);
  finish();
  ASSERT_EQ(driver_.notices(client_).size(), 1U);
  const Notice& notice = driver_.notices(client_)[0];
  EXPECT_EQ(notice.kind, NoticeKind::sequence_ready);
  EXPECT_EQ(notice.code, ErrorCode::ok);
  EXPECT_EQ(notice.sequence, kFirst);
  EXPECT_EQ(notice.account.hit_tokens[1], 8U);
  EXPECT_EQ(counters().hit_tokens[1], 8U);
  EXPECT_EQ(counters().loaded_blocks[1], 2U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);
  EXPECT_FALSE(driver_.live(client_, kFirst).loading);
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(1, 9)).hit_tokens_by_tier[0], 8U);
}

TEST_F(Loads, AppendAndPublishWhileLoadingAreInvalid) {
  admit(kFirst);
  StepScript script;
  script.append(kFirst, numbered_tokens(10, 1)).publish(kFirst, 8);
  const Reply reply = driver_.step(client_, script);
  const auto& failures = std::get<StepReply>(reply.body).failures;
  ASSERT_EQ(failures.size(), 2U);
  EXPECT_EQ(failures[0].error.code, ErrorCode::invalid);
  EXPECT_EQ(failures[1].error.code, ErrorCode::invalid);
  finish();
  EXPECT_TRUE(std::get<StepReply>(driver_.step(client_, script).body).failures.empty());
}

TEST_F(Loads, NoticesAreKeptUntilAcknowledged) {
  admit(kFirst);
  finish();
  ASSERT_EQ(driver_.engine().unacknowledged(client_).size(), 1U);
  EXPECT_EQ(driver_.engine().unacknowledged(client_)[0].number, 1U);
  driver_.call(client_, Heartbeat{});
  EXPECT_EQ(driver_.engine().unacknowledged(client_).size(), 1U);
  driver_.acknowledge_notices(client_);
  driver_.call(client_, Heartbeat{});
  EXPECT_EQ(driver_.engine().unacknowledged(client_).size(), 0U);
}

TEST_F(Loads, SecondSequenceWaitsForTheLoadOfTheFirst) {
  const AdmitReply first = admit(kFirst);
  driver_.open(client_, kSecond, numbered_tokens(1, 9));
  const RequestId id = driver_.send(client_, Admit{.header = {}, .sequence = kSecond});
  driver_.settle();
  EXPECT_EQ(driver_.transfers().pending().size(), 1U);
  finish();
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  const AdmitReply second = std::get<AdmitReply>(driver_.reply(client_, id).body);
  EXPECT_EQ(second.slots[0], first.slots[0]);
  EXPECT_EQ(second.slots[1], first.slots[1]);
  EXPECT_NE(second.slots[2], first.slots[2]);
  EXPECT_EQ(second.account.computed_tokens, 1U);
  EXPECT_EQ(driver_.transfers().pending().size(), 0U);
  EXPECT_TRUE(driver_.live(client_, kFirst).admitted);
  EXPECT_TRUE(driver_.live(client_, kSecond).admitted);
  EXPECT_EQ(counters().loaded_blocks[1], 2U);
  EXPECT_EQ(counters().admissions, 3U);  // the prompt that was cached, and these two
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 2U);
}

TEST_F(Loads, CorruptBlockIsQuarantinedAndTheNextAdmissionIsShorter) {
  driver_.allow_quarantine();
  admit(kFirst);
  finish({kOk, kCorrupt});
  ASSERT_EQ(driver_.notices(client_).size(), 1U);
  EXPECT_EQ(driver_.notices(client_)[0].kind, NoticeKind::sequence_ready);
  EXPECT_EQ(driver_.notices(client_)[0].code, ErrorCode::busy);
  expect_opened(kFirst);
  EXPECT_EQ(counters().corrupt_blocks[1], 1U);
  EXPECT_EQ(counters().failed_blocks[1], 0U);
  EXPECT_EQ(counters().hit_tokens[0] + counters().hit_tokens[1], 0U);
  EXPECT_EQ(driver_.tier(Tier::host).cached, 1U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 1U);  // the good one
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  const AdmitReply again = admit_again(kFirst);
  EXPECT_TRUE(again.ready);
  EXPECT_EQ(again.account.hit_tokens[0], 4U);
  EXPECT_EQ(again.account.hit_tokens[1], 0U);
  EXPECT_EQ(again.account.computed_tokens, 5U);
}

TEST_F(Loads, ReadErrorDropsTheCopyAndCountsAsFailed) {
  driver_.allow_quarantine();
  admit(kFirst);
  finish({kOk, kIoError});
  EXPECT_EQ(counters().failed_blocks[1], 1U);
  EXPECT_EQ(counters().corrupt_blocks[1], 0U);
  EXPECT_EQ(driver_.notices(client_).at(0).code, ErrorCode::busy);
  EXPECT_EQ(admit_again(kFirst).account.computed_tokens, 5U);
}

TEST_F(Loads, BlocksBehindACorruptFirstOneAreNoHitsUntilItIsComputed) {
  driver_.allow_quarantine();
  admit(kFirst);
  finish({kCorrupt, kOk});
  expect_opened(kFirst);
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(1, 9)).hit_tokens, 0U);
  const AdmitReply again = admit_again(kFirst);
  EXPECT_TRUE(again.ready);
  EXPECT_EQ(again.account.computed_tokens, 9U);
  driver_.step(client_, StepScript().publish(kFirst, 8));
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(1, 9)).hit_tokens, 8U);
  EXPECT_EQ(driver_.status().holes, 0U);
}

TEST_F(Loads, FailureOfASharedLoadLeavesNobodyWaiting) {
  driver_.allow_quarantine();
  admit(kFirst);
  driver_.open(client_, kSecond, numbered_tokens(1, 9));
  const RequestId id = driver_.send(client_, Admit{.header = {}, .sequence = kSecond});
  finish({kIoError, kIoError});
  ASSERT_EQ(driver_.notices(client_).size(), 1U);
  EXPECT_EQ(driver_.notices(client_)[0].sequence, kFirst);
  EXPECT_EQ(driver_.notices(client_)[0].code, ErrorCode::busy);
  expect_opened(kFirst);
  // The second one is admitted with what is left: nothing.
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  const AdmitReply second = std::get<AdmitReply>(driver_.reply(client_, id).body);
  EXPECT_TRUE(second.ready);
  EXPECT_EQ(second.account.computed_tokens, 9U);
  EXPECT_EQ(driver_.tier(Tier::device).free, 5U);
  EXPECT_EQ(driver_.tier(Tier::host).free, 8U);
  EXPECT_EQ(driver_.status().tree_blocks, 0U);
}

TEST_F(Loads, DeathOfTheLoaderLetsTheWaiterGoOn) {
  const ClientId other = driver_.attach_with_pool();
  admit(kFirst);
  driver_.open(other, kSecond, numbered_tokens(1, 9));
  const RequestId id = driver_.send(other, Admit{.header = {}, .sequence = kSecond});
  driver_.input(ClientGone{client_});
  driver_.hold_transfers(false);
  driver_.settle();
  ASSERT_EQ(driver_.reply_count(other, id), 1U);
  EXPECT_TRUE(driver_.live(other, kSecond).admitted);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);
}

TEST_F(Loads, UnknownOrRepeatedTransferDoneChangesNothing) {
  admit(kFirst);
  const TransferId id = pending().start.id;
  const std::vector<BlockOutcome> outcomes{kOk, kOk};
  const StatusReply before = driver_.status();
  driver_.input(
      TransferDone{.id = TransferId(id.value + 1000), .outcomes = outcomes, .checksums = {}});
  EXPECT_EQ(driver_.status().tiers, before.tiers);
  EXPECT_EQ(driver_.engine().transfer_count(), 1U);
  finish();
  const StatusReply after = driver_.status();
  driver_.input(TransferDone{.id = id, .outcomes = outcomes, .checksums = {}});
  EXPECT_EQ(driver_.status().tiers, after.tiers);
  EXPECT_EQ(driver_.status().counters, after.counters);
}

TEST_F(Loads, WrongNumberOfOutcomesMeansThatAllFailed) {
  driver_.allow_quarantine();
  admit(kFirst);
  const TransferId id = pending().start.id;
  const std::vector<BlockOutcome> outcomes{kOk};
  driver_.input(TransferDone{.id = id, .outcomes = outcomes, .checksums = {}});
  driver_.settle();
  EXPECT_EQ(counters().failed_blocks[1], 2U);
  EXPECT_EQ(driver_.notices(client_).at(0).code, ErrorCode::busy);
  EXPECT_EQ(driver_.tier(Tier::device).free, 8U);
}

TEST_F(Loads, LoadedBlocksOfASequenceInUseAreNotEvicted) {
  admit(kFirst);
  finish();
  const Reply refused = driver_.admit(client_, kSecond, numbered_tokens(100, 24));  // 6 of 5 free
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_EQ(driver_.tier(Tier::device).covered, 2U);
}

class LoadsFromDisk : public Loads {
 protected:
  LoadsFromDisk() : Loads(16) {
    driver_.hold_transfers(false);
    driver_.settle();
    demote(Tier::host);
    driver_.hold_transfers(true);
  }
};

TEST_F(LoadsFromDisk, LandInTheHostFirst) {
  ASSERT_EQ(driver_.tier(Tier::disk).cached, 2U);
  ASSERT_EQ(driver_.tier(Tier::host).cached, 0U);
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(1, 9)).hit_tokens_by_tier[2], 8U);
  const AdmitReply reply = admit(kFirst);
  EXPECT_FALSE(reply.ready);
  EXPECT_EQ(reply.account.hit_tokens[2], 8U);
  EXPECT_EQ(reply.account.computed_tokens, 1U);
  ASSERT_EQ(driver_.transfers().pending().size(), 1U);
  EXPECT_EQ(pending().start.from, Tier::disk);
  EXPECT_EQ(pending().start.to, Tier::host);
  EXPECT_EQ(pending().blocks.size(), 2U);
  finish();
  ASSERT_EQ(driver_.transfers().pending().size(), 1U);
  EXPECT_TRUE(driver_.notices(client_).empty());
  EXPECT_EQ(pending().start.from, Tier::host);
  EXPECT_EQ(pending().start.to, Tier::device);
  EXPECT_EQ(pending().blocks.at(0).to_slot, reply.slots.at(0));
  finish();
  EXPECT_EQ(driver_.notices(client_).at(0).code, ErrorCode::ok);
  EXPECT_EQ(counters().loaded_blocks[2], 2U);
  EXPECT_EQ(counters().hit_tokens[2], 8U);
  EXPECT_EQ(driver_.tier(Tier::host).cached, 2U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 2U);
}

TEST_F(LoadsFromDisk, CorruptDiskBlockIsErasedFromTheIndex) {
  driver_.allow_quarantine();
  admit(kFirst);
  const TransferBlock bad = pending().blocks.at(1);
  const std::size_t erased_before = driver_.transfers().erases().size();
  finish({kOk, kCorrupt});
  driver_.hold_transfers(false);
  driver_.settle();
  EXPECT_EQ(counters().corrupt_blocks[2], 1U);
  ASSERT_EQ(driver_.transfers().erases().size(), erased_before + 1);
  const EraseDisk& erased = driver_.transfers().erases().back();
  EXPECT_EQ(erased.key, bad.key);
  EXPECT_EQ(erased.slot, bad.from_slot);
  EXPECT_EQ(erased.generation, bad.from_generation);
  EXPECT_EQ(driver_.notices(client_).at(0).code, ErrorCode::busy);
  expect_opened(kFirst);
  EXPECT_EQ(admit_again(kFirst).account.computed_tokens, 5U);
}

TEST_F(LoadsFromDisk, CorruptHostBlockIsServedFromTheDiskNextTime) {
  driver_.allow_quarantine();
  admit(kFirst);
  finish();                 // disk -> host
  finish({kOk, kCorrupt});  // host -> device
  EXPECT_EQ(counters().corrupt_blocks[1], 1U);
  const AdmitReply again = admit_again(kFirst);
  EXPECT_EQ(again.account.hit_tokens[0], 4U);
  EXPECT_EQ(again.account.hit_tokens[2], 4U);
  EXPECT_EQ(again.account.computed_tokens, 1U);
  driver_.hold_transfers(false);
  driver_.settle();
  EXPECT_EQ(driver_.notices(client_).back().code, ErrorCode::ok);
}

TEST(LoadsInWaves, LongLoadsAreCutToTransfersWithinTheCredits) {
  Engine::Options options = options_with_slots(128, 128, 0);
  options.device_host_transfers = 1;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 400);  // 100 blocks
  driver.cache_prompt(client, prompt);
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  const Reply reply = driver.admit(client, kFirst, prompt, 0);  // 99 hits
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(reply.body).account.hit_tokens[1], 396U);
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  EXPECT_EQ(driver.transfers().pending()[0].blocks.size(), 64U);
  driver.finish_transfer(0);
  driver.settle();
  ASSERT_EQ(driver.transfers().pending().size(), 1U);
  EXPECT_EQ(driver.transfers().pending()[0].blocks.size(), 35U);
  driver.finish_transfer(0);
  driver.settle();
  EXPECT_EQ(driver.notices(client).at(0).code, ErrorCode::ok);
  EXPECT_EQ(driver.tier(Tier::device).cached, 99U);
}

// SCENARIOS DEAD-17: a host full of other blocks makes room for what is read from disk.
TEST(LoadsInWaves, DiskBlocksThatDoNotFitTheHostTogetherComeInWaves) {
  // One host slot of these is kept for loads.
  EngineDriver driver(options_with_slots(16, 3, 16));
  const ClientId client = driver.attach_with_pool();
  // Chains of two blocks fit the host one after the other; four of them lie on the disk.
  for (Token chain = 0; chain < 4; ++chain) {
    driver.cache_prompt(client, numbered_tokens(1 + chain * 100, 8));
  }
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  ASSERT_EQ(driver.tier(Tier::disk).cached, 8U);
  ASSERT_EQ(driver.tier(Tier::host).cached, 2U);  // of the last chain
  for (Token chain = 0; chain < 3; ++chain) {
    const SequenceId sequence(10 + chain);
    const Reply reply = driver.admit(client, sequence, numbered_tokens(1 + chain * 100, 9));
    ASSERT_EQ(reply.error.code, ErrorCode::ok);
    EXPECT_EQ(std::get<AdmitReply>(reply.body).account.hit_tokens[2], 8U);
    EXPECT_FALSE(std::get<AdmitReply>(reply.body).ready);
  }
  const std::vector<Notice>& notices = driver.notices(client);
  ASSERT_EQ(notices.size(), 3U);
  for (const Notice& notice : notices) EXPECT_EQ(notice.code, ErrorCode::ok);
  EXPECT_EQ(driver.tier(Tier::device).cached, 6U);
}

}  // namespace
}  // namespace kv::core
