// A disk without room: victims go and the blocks are saved once more; then nothing is tried until
// something changes. And a disk that is off.
#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr BlockOutcome kOk = BlockOutcome::ok;
constexpr BlockOutcome kNoSpace = BlockOutcome::no_space;
constexpr Duration kPause = std::chrono::seconds(1);  // of the Engine, after a retry that failed

// Prompts of two blocks, "old" on the disk before the disk is full, oldest first.
class DiskRoom : public testing::Test {
 protected:
  explicit DiskRoom(std::uint32_t old_prompts = 3, const Engine::Options& options = slots())
      : driver_(options), client_(driver_.attach_with_pool()) {
    for (Token i = 0; i < old_prompts; ++i) {
      driver_.cache_prompt(client_, numbered_tokens(100 * i + 100, 8));
    }
    EXPECT_EQ(driver_.tier(Tier::disk).cached, 2 * old_prompts);
    driver_.hold_transfers(true);
  }
  static Engine::Options slots() {
    Engine::Options options = options_with_slots(32, 32, 16);
    options.host_disk_transfers = 1;
    return options;
  }
  // Cached on the device and in the host; its save to the disk may be pending after that.
  void cache(Token first, std::uint32_t blocks = 2) {
    driver_.cache_prompt(client_, numbered_tokens(first, blocks * 4));
    while (Pending* save = pending(Tier::device, Tier::host)) finish(*save, {});
  }
  using Pending = const ScriptedTransfers::Pending;
  Pending* pending(Tier from, Tier to) {
    for (Pending& transfer : driver_.transfers().pending()) {
      if (transfer.start.from == from && transfer.start.to == to) return &transfer;
    }
    return nullptr;
  }
  Pending* disk_save() { return pending(Tier::host, Tier::disk); }
  void finish(Pending& transfer, const std::vector<BlockOutcome>& outcomes) {
    const auto& all = driver_.transfers().pending();
    driver_.finish_transfer(static_cast<std::size_t>(&transfer - all.data()), outcomes);
    driver_.settle();
  }
  void finish_disk_save(const std::vector<BlockOutcome>& outcomes) {
    Pending* save = disk_save();
    ASSERT_NE(save, nullptr);
    ASSERT_EQ(save->blocks.size(), outcomes.size());
    finish(*save, outcomes);
  }
  // No room, and none after the retry.
  void fill_the_disk(Token first) {
    cache(first);
    finish_disk_save({kNoSpace, kNoSpace});
    finish_disk_save({kNoSpace, kNoSpace});
    ASSERT_EQ(disk_save(), nullptr);
  }
  void wait(Duration time) {
    driver_.advance(time);
    driver_.tick();
    driver_.settle();
  }
  Counters counters() { return driver_.status().counters; }
  // First tokens of the blocks in the disk index.
  std::vector<Token> on_disk() {
    std::vector<Token> firsts;
    for (const auto& found : driver_.transfers().disk_index()) firsts.push_back(found.tokens.at(0));
    std::ranges::sort(firsts);
    return firsts;
  }

  EngineDriver driver_;
  ClientId client_;
};

TEST_F(DiskRoom, NoneForABlockEvictsTheNextVictimsErasesThemAndSavesItOnceMore) {
  cache(900);
  Pending* first = disk_save();
  ASSERT_NE(first, nullptr);
  const std::vector<TransferBlock> blocks = first->blocks;
  finish_disk_save({kNoSpace, kNoSpace});
  // The oldest prompt, its leaf first; erased before its slots are written again.
  const std::vector<EraseDisk>& erases = driver_.transfers().erases();
  ASSERT_EQ(erases.size(), 2U);
  EXPECT_EQ(erases[0].depth, 1U);
  EXPECT_EQ(erases[1].depth, 0U);
  EXPECT_EQ(on_disk(), (std::vector<Token>{200, 204, 300, 304}));
  Pending* retry = disk_save();
  ASSERT_NE(retry, nullptr);
  ASSERT_EQ(retry->blocks.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(retry->blocks[i].key, blocks[i].key);
    const SlotId slot = retry->blocks[i].to_slot;
    EXPECT_TRUE(slot == erases[0].slot || slot == erases[1].slot) << "a slot that has room";
  }
  EXPECT_EQ(retry->tokens, numbered_tokens(900, 8));
  EXPECT_EQ(counters().evicted_blocks[2], 2U);
  EXPECT_EQ(counters().no_space_blocks, 2U);
  EXPECT_EQ(counters().retried_blocks, 2U);
  EXPECT_EQ(counters().failed_blocks[2], 0U);
  finish_disk_save({kOk, kOk});
  EXPECT_EQ(on_disk(), (std::vector<Token>{200, 204, 300, 304, 900, 904}));
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 6U);
  EXPECT_EQ(driver_.tier(Tier::disk).held, 0U);
  EXPECT_EQ(counters().saved_blocks[2], 8U);
  // The disk has room again: the next save takes all its blocks at once.
  cache(950, 4);
  ASSERT_NE(disk_save(), nullptr);
  EXPECT_EQ(disk_save()->blocks.size(), 4U);
}

TEST_F(DiskRoom, NoneForOneBlockOfAChainSavesItAgainWithWhatHangsOnIt) {
  cache(900, 4);
  finish_disk_save({kOk, kNoSpace, kOk, kOk});
  // The two below it were written: their entries go again, beside the three victims.
  EXPECT_EQ(on_disk(), (std::vector<Token>{200, 300, 304, 900}));
  EXPECT_EQ(counters().evicted_blocks[2], 3U);
  EXPECT_EQ(counters().no_space_blocks, 1U);
  ASSERT_NE(disk_save(), nullptr);
  EXPECT_EQ(disk_save()->tokens, numbered_tokens(904, 12));
  finish_disk_save({kOk, kOk, kOk});
  EXPECT_EQ(driver_.lookup(client_, numbered_tokens(900, 17)).hit_tokens, 16U);
  const std::vector<Token> found = on_disk();
  for (const Token first : {900U, 904U, 908U, 912U}) {
    EXPECT_TRUE(std::ranges::binary_search(found, first)) << first;
  }
}

TEST_F(DiskRoom, AfterARetryThatFailsNothingIsTriedUntilTimePasses) {
  fill_the_disk(900);
  EXPECT_EQ(counters().no_space_blocks, 4U);
  EXPECT_EQ(counters().retried_blocks, 2U);
  EXPECT_EQ(counters().failed_blocks[2], 2U);
  EXPECT_EQ(counters().evicted_blocks[2], 2U);
  EXPECT_EQ(driver_.tier(Tier::host).cached, 8U) << "the host copies stay";
  cache(950);
  cache(1000);
  EXPECT_EQ(disk_save(), nullptr);
  wait(kPause - Duration(1));
  EXPECT_EQ(disk_save(), nullptr);
  wait(Duration(1));
  // One block finds out; it evicts nothing.
  ASSERT_NE(disk_save(), nullptr);
  EXPECT_EQ(disk_save()->tokens, numbered_tokens(950, 4));
  finish_disk_save({kNoSpace});
  EXPECT_EQ(disk_save(), nullptr);
  EXPECT_EQ(counters().evicted_blocks[2], 2U);
  EXPECT_EQ(counters().no_space_blocks, 5U);
  wait(kPause);
  finish_disk_save({kOk});  // room at last: all that waited follows
  while (disk_save() != nullptr) finish(*disk_save(), {});
  EXPECT_EQ(on_disk(), (std::vector<Token>{200, 204, 300, 304, 950, 954, 1000, 1004}));
  EXPECT_EQ(driver_.tier(Tier::disk).held, 0U);
}

TEST_F(DiskRoom, AnEraseIsAReasonToTryAgain) {
  driver_.allow_quarantine();
  fill_the_disk(900);
  cache(950);
  EXPECT_EQ(disk_save(), nullptr);
  driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
  const RequestId id = driver_.send(client_, Demote{.header = {}, .tier = Tier::host});
  driver_.settle();
  // The demotion of the host asks as well: its probe fails.
  finish_disk_save({kNoSpace});
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  ASSERT_EQ(disk_save(), nullptr);
  EXPECT_EQ(driver_.tier(Tier::host).cached, 6U) << "only what is not on the disk";
  // What the second old prompt has on the disk is found corrupt.
  driver_.admit(client_, kFirst, numbered_tokens(200, 9));
  Pending* land = pending(Tier::disk, Tier::host);
  ASSERT_NE(land, nullptr);
  finish(*land, {kOk, BlockOutcome::corrupt});
  EXPECT_EQ(counters().corrupt_blocks[2], 1U);
  ASSERT_NE(disk_save(), nullptr) << "a slot came free";
  EXPECT_EQ(disk_save()->blocks.size(), 1U);
}

TEST_F(DiskRoom, NoneForEverEndsAFlushWhichSaysWhatIsMissing) {
  cache(900);
  const RequestId id = driver_.send(client_, Flush{});
  driver_.settle();
  std::uint32_t tries = 0;
  while (driver_.reply_count(client_, id) == 0) {
    ASSERT_LT(++tries, 10U);
    Pending* save = disk_save();
    ASSERT_NE(save, nullptr);
    finish(*save, std::vector<BlockOutcome>(save->blocks.size(), kNoSpace));
  }
  const FlushReply reply = std::get<FlushReply>(driver_.reply(client_, id).body);
  EXPECT_EQ(reply.durable_blocks, 4U);
  EXPECT_EQ(reply.unsaved_blocks, 4U) << "two of the new prompt, and the two victims";
  EXPECT_EQ(counters().evicted_blocks[2], 2U) << "one round of victims, not all";
  EXPECT_EQ(driver_.status().transfers_in_flight, 0U);
}

TEST_F(DiskRoom, AFlushWaitsForTheSecondTry) {
  cache(900);
  const RequestId id = driver_.send(client_, Flush{});
  driver_.settle();
  finish_disk_save({kNoSpace, kNoSpace});
  EXPECT_EQ(driver_.reply_count(client_, id), 0U);
  finish_disk_save({kOk, kOk});
  // The victims are still on the device: the flush puts them back, where there is room.
  while (disk_save() != nullptr) finish(*disk_save(), {});
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  EXPECT_EQ(std::get<FlushReply>(driver_.reply(client_, id).body).durable_blocks, 8U);
}

TEST_F(DiskRoom, BlocksInUseAreNoVictims) {
  driver_.admit(client_, kFirst, numbered_tokens(100, 9));
  driver_.admit(client_, SequenceId(2), numbered_tokens(200, 9));
  driver_.admit(client_, SequenceId(3), numbered_tokens(300, 5));  // its second block may go
  cache(900);
  finish_disk_save({kNoSpace, kNoSpace});
  EXPECT_EQ(on_disk(), (std::vector<Token>{100, 104, 200, 204, 300}));
  finish_disk_save({kOk, kNoSpace});
  EXPECT_EQ(on_disk(), (std::vector<Token>{100, 104, 200, 204, 300, 900}));
  EXPECT_EQ(counters().failed_blocks[2], 1U);
}

TEST_F(DiskRoom, AFullDiskDoesNotHoldUpTheHost) {
  fill_the_disk(900);
  // 32 slots, 8 of them for loads: 24. Twice as many blocks pass, whatever waits for the disk.
  for (Token i = 0; i < 12; ++i) cache(2'000 + 100 * i, 4);
  EXPECT_EQ(disk_save(), nullptr);
  EXPECT_EQ(counters().saved_blocks[1], 8U + 48U);
  EXPECT_EQ(driver_.tier(Tier::host).cached, 24U);
}

class DiskRoomWithoutVictims : public DiskRoom {
 protected:
  DiskRoomWithoutVictims() : DiskRoom(0) {}
};

TEST_F(DiskRoomWithoutVictims, ABlockIsNotSavedAgain) {
  cache(900);
  finish_disk_save({kNoSpace, kNoSpace});
  EXPECT_EQ(disk_save(), nullptr);
  EXPECT_EQ(counters().no_space_blocks, 2U);
  EXPECT_EQ(counters().retried_blocks, 0U);
  EXPECT_EQ(counters().failed_blocks[2], 2U);
  EXPECT_EQ(driver_.tier(Tier::disk).free, 16U);
}

// ---------------------------------------------------------------- off

TEST(DiskOff, BeforeAFormatLeavesTheTierOut) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  driver.input(DiskOff{});
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  EXPECT_EQ(driver.tier(Tier::disk).slots, 0U);
  EXPECT_EQ(driver.tier(Tier::host).cached, 2U);
  EXPECT_EQ(driver.status().counters.transfers_started, 1U);
}

TEST(DiskOff, AfterAFormatShowsNoSlotsAndNothingIsTried) {
  EngineDriver driver(options_with_slots(8, 4, 8));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 16));
  driver.step(client, StepScript().publish(kFirst, 16));
  driver.input(DiskOff{});  // the first copies are on their way to the host
  EXPECT_EQ(driver.tier(Tier::disk), (TierStatus{.slot_bytes = 128}));
  driver.hold_transfers(false);
  driver.settle();
  driver.cache_prompt(client, numbered_tokens(500, 4));
  EXPECT_TRUE(driver.transfers().disk_index().empty());
  EXPECT_EQ(driver.status().counters.failed_blocks[2], 0U);
  const Reply flushed = driver.call(client, Flush{});
  EXPECT_EQ(std::get<FlushReply>(flushed.body).durable_blocks, 0U);
  // No host slot is kept for loads that cannot come.
  EXPECT_EQ(driver.tier(Tier::host).cached, 4U);
}

TEST(DiskOff, EndsARecoveryThatHasNotBegun) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const KvLayout layout = one_group_layout();
  driver.input(DiskFormat{.layout = &layout});
  ASSERT_TRUE(driver.status().recovering);
  driver.input(DiskOff{});
  EXPECT_FALSE(driver.status().recovering);
  EXPECT_EQ(driver.tier(Tier::disk).slots, 0U);
}

TEST(DiskOff, IsIgnoredOnceTheDiskHoldsABlock) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.input(DiskOff{});
  EXPECT_EQ(driver.tier(Tier::disk).slots, 8U);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 2U);
}

}  // namespace
}  // namespace kv::core
