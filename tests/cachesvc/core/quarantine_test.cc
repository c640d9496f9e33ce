// A copy that one reader finds corrupt while another reads it: it is not given up under the other
// one, whose outcome is its own, and goes when the last reader finds it.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr BlockOutcome kOk = BlockOutcome::ok;
constexpr BlockOutcome kCorrupt = BlockOutcome::corrupt;

// Two blocks in the host only; a save to the disk (pending 0) and a load to the device (pending 1)
// read both. The host has one slot more, and one kept for loads: what came free would be taken at
// once.
class Quarantine : public testing::Test {
 protected:
  Quarantine() : driver_(options()), client_(driver_.attach_with_pool()) {
    driver_.allow_quarantine();
    driver_.cache_prompt(client_, numbered_tokens(1, 8));
    EXPECT_EQ(driver_.call(client_, Demote{.header = {}, .tier = Tier::device}).error.code,
              ErrorCode::ok);
    driver_.hold_transfers(true);
    demotion_ = driver_.send(client_, Demote{.header = {}, .tier = Tier::host});
    driver_.settle();
    EXPECT_EQ(driver_.admit(client_, kFirst, numbered_tokens(1, 9)).error.code, ErrorCode::ok);
    EXPECT_EQ(driver_.transfers().pending().size(), 2U);
    EXPECT_EQ(pending(kSave).start.to, Tier::disk);
    EXPECT_EQ(pending(kLoad).start.to, Tier::device);
    host_slot_ = pending(kSave).blocks.at(1).from_slot;
    EXPECT_EQ(pending(kLoad).blocks.at(1).from_slot, host_slot_) << "both read one slot";
  }
  static Engine::Options options() {
    Engine::Options options = options_with_slots(16, 4, 8);
    options.write_through = false;
    return options;
  }
  const ScriptedTransfers::Pending& pending(std::size_t index) {
    return driver_.transfers().pending().at(index);
  }
  void finish(std::size_t index, const std::vector<BlockOutcome>& outcomes) {
    driver_.finish_transfer(index, outcomes);
    driver_.settle();
  }
  // Others ask for host slots as long as they get any. The driver's transfers fail the test when
  // one of them writes a slot that is being read.
  void press_on_the_host() {
    driver_.cache_prompt(client_, numbered_tokens(500 + pressed_, 8));
    pressed_ += 100;
    driver_.send(client_, Demote{.header = {}, .tier = Tier::device});
    driver_.settle();
  }
  SlotState host_state() {
    return driver_.engine().cache()->pool(Tier::host, GroupId(0)).state(host_slot_);
  }
  Counters counters() { return driver_.status().counters; }

  static constexpr std::size_t kSave = 0, kLoad = 1;
  EngineDriver driver_;
  ClientId client_;
  RequestId demotion_;
  SlotId host_slot_;
  Token pressed_ = 0;
};

TEST_F(Quarantine, FoundByALoadLeavesTheSlotToTheSaveThatReadsIt) {
  finish(kLoad, {kOk, kCorrupt});
  EXPECT_EQ(counters().corrupt_blocks[1], 1U);
  EXPECT_EQ(driver_.notices(client_).back().code, ErrorCode::busy);
  EXPECT_EQ(host_state(), SlotState::cached) << "the save still reads it";
  press_on_the_host();
  EXPECT_EQ(host_state(), SlotState::cached);
  finish(kSave, {kOk, kCorrupt});  // it finds the same, and is the last one
  EXPECT_EQ(counters().corrupt_blocks[1], 2U);
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 1U);
  driver_.hold_transfers(false);
  driver_.settle();
  const Reply again = driver_.call(client_, Admit{.header = {}, .sequence = kFirst});
  ASSERT_EQ(again.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(again.body).account.computed_tokens, 5U) << "never served";
}

TEST_F(Quarantine, FoundByASaveLeavesTheSlotToTheLoadThatReadsIt) {
  finish(kSave, {kOk, kCorrupt});
  EXPECT_EQ(counters().corrupt_blocks[1], 1U);
  EXPECT_EQ(host_state(), SlotState::cached) << "the load still reads it";
  press_on_the_host();
  EXPECT_EQ(host_state(), SlotState::cached);
  // What the load verified is right, whatever the save read: it is served.
  const std::size_t load = [this] {
    const auto& all = driver_.transfers().pending();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].start.from == Tier::host && all[i].start.to == Tier::device) return i;
    }
    return all.size();
  }();
  finish(load, {kOk, kOk});
  EXPECT_EQ(driver_.notices(client_).back().code, ErrorCode::ok);
  EXPECT_TRUE(driver_.live(client_, kFirst).admitted);
}

TEST_F(Quarantine, FoundWhileASaveReadsIsFoundAgainByTheNextLoad) {
  finish(kLoad, {kOk, kCorrupt});
  finish(kSave, {kOk, kOk});  // the save verified what it read
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 2U);
  driver_.settle();
  const Reply again = driver_.call(client_, Admit{.header = {}, .sequence = kFirst});
  ASSERT_EQ(again.error.code, ErrorCode::ok);
  while (!driver_.transfers().pending().empty()) {
    const auto& next = pending(0);
    const bool from_host = next.start.from == Tier::host && next.blocks[0].depth == 1 &&
                           next.blocks[0].from_slot == host_slot_;
    finish(0, std::vector<BlockOutcome>(next.blocks.size(), from_host ? kCorrupt : kOk));
  }
  const Reply last = driver_.call(client_, Admit{.header = {}, .sequence = kFirst});
  driver_.hold_transfers(false);
  driver_.settle();
  EXPECT_TRUE(driver_.live(client_, kFirst).admitted);
  EXPECT_EQ(driver_.notices(client_).back().code, ErrorCode::ok);
}

// The load waits behind another one when a save finds the host copy corrupt that it was to read.
TEST(QuarantineOfASource, UndoesTheLoadThatStillWaitsForIt) {
  constexpr SequenceId kSecond(2);
  Engine::Options options = options_with_slots(16, 16, 8);
  options.write_through = false;
  options.device_host_transfers = 1;
  EngineDriver driver(options);
  driver.allow_quarantine();
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.cache_prompt(client, numbered_tokens(101, 8));
  driver.call(client, Demote{.header = {}, .tier = Tier::device});
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 9));
  driver.admit(client, kSecond, numbered_tokens(101, 9));
  ASSERT_EQ(driver.transfers().pending().size(), 1U);  // one load at a time
  driver.send(client, Demote{.header = {}, .tier = Tier::host});
  driver.settle();
  ASSERT_EQ(driver.transfers().pending().size(), 2U);
  const auto& save = driver.transfers().pending()[1];
  ASSERT_EQ(save.start.to, Tier::disk);
  ASSERT_EQ(save.blocks.size(), 4U);
  EXPECT_EQ(save.tokens[8], 101U) << "the third block is the first one of the load that waits";
  driver.finish_transfer(1, std::vector<BlockOutcome>{kOk, kOk, kCorrupt, kOk});
  driver.settle();
  ASSERT_EQ(driver.notices(client).size(), 1U);
  EXPECT_EQ(driver.notices(client)[0].sequence, kSecond);
  EXPECT_EQ(driver.notices(client)[0].code, ErrorCode::busy);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.notices(client).back().sequence, kFirst);
  EXPECT_EQ(driver.notices(client).back().code, ErrorCode::ok);
  const Reply again = driver.call(client, Admit{.header = {}, .sequence = kSecond});
  ASSERT_EQ(again.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(again.body).account.computed_tokens, 9U);
}

}  // namespace
}  // namespace kv::core
