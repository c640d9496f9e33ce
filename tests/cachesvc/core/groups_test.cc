// Several layer groups: a block is a hit when every group has its part.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr BlockOutcome kOk = BlockOutcome::ok;

// Blocks of 128 and of 64 bytes.
KvLayout two_group_layout() {
  KvLayout layout = one_group_layout();
  layout.groups.push_back(layout.groups[0]);
  layout.groups[1].head_dim_k = 2;
  layout.groups[1].head_dim_v = 2;
  return layout;
}

Engine::Options two_group_options() {
  Engine::Options options;
  options.tier_bytes = {std::uint64_t{8} * 192, std::uint64_t{8} * 192, std::uint64_t{8} * 8192, 0};
  options.write_through = false;
  return options;
}

class Groups : public testing::Test {
 protected:
  Groups() : driver_(two_group_options()), client_(attach(driver_)) {}
  static ClientId attach(EngineDriver& driver) {
    const ClientId client = driver.attach();
    const KvLayout layout = two_group_layout();
    EXPECT_EQ(driver.call(client, AttachPool{.header = {}, .layout = &layout}).error.code,
              ErrorCode::ok);
    return client;
  }
  void demote() {
    const Reply reply = driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
    ASSERT_EQ(reply.error.code, ErrorCode::ok);
    EXPECT_EQ(std::get<DemoteReply>(reply.body).dropped_blocks, 2U);
  }

  EngineDriver driver_;
  ClientId client_;
};

TEST_F(Groups, SaveIsDoneWhenTheTransfersOfAllGroupsAre) {
  driver_.cache_prompt(client_, numbered_tokens(1, 8));
  driver_.hold_transfers(true);
  const RequestId id = driver_.send(client_, Demote{.header = {}, .tier = Tier::device});
  driver_.settle();
  const auto& pending = driver_.transfers().pending();
  ASSERT_EQ(pending.size(), 2U);
  EXPECT_EQ(pending[0].start.group, GroupId(0));
  EXPECT_EQ(pending[1].start.group, GroupId(1));
  EXPECT_NE(pending[0].start.id, pending[1].start.id);
  EXPECT_EQ(pending[0].blocks.size(), 2U);
  EXPECT_EQ(pending[1].blocks.size(), 2U);
  driver_.finish_transfer(1);
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::host).cached, 0U);
  EXPECT_EQ(driver_.reply_count(client_, id), 0U);
  driver_.finish_transfer(0);
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::host).cached, 2U);
  EXPECT_EQ(driver_.reply_count(client_, id), 1U);
}

TEST_F(Groups, BlockOfWhichOneGroupIsCorruptIsNoHit) {
  driver_.allow_quarantine();
  driver_.cache_prompt(client_, numbered_tokens(1, 8));
  demote();
  driver_.hold_transfers(true);
  const Reply first = driver_.admit(client_, kFirst, numbered_tokens(1, 9));
  ASSERT_EQ(first.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(first.body).account.hit_tokens[1], 8U);
  ASSERT_EQ(driver_.transfers().pending().size(), 2U);
  driver_.finish_transfer(0);
  const std::vector<BlockOutcome> outcomes{kOk, BlockOutcome::corrupt};
  driver_.finish_transfer(0, outcomes);
  driver_.settle();
  ASSERT_EQ(driver_.notices(client_).size(), 1U);
  EXPECT_EQ(driver_.notices(client_)[0].code, ErrorCode::busy);
  EXPECT_EQ(driver_.status().counters.corrupt_blocks[1], 1U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  const Reply again = driver_.call(client_, Admit{.header = {}, .sequence = kFirst});
  ASSERT_EQ(again.error.code, ErrorCode::ok);
  EXPECT_TRUE(std::get<AdmitReply>(again.body).ready);
  EXPECT_EQ(std::get<AdmitReply>(again.body).account.hit_tokens[0], 4U);
  EXPECT_EQ(std::get<AdmitReply>(again.body).account.computed_tokens, 5U);
}

TEST_F(Groups, PartThatReachedTheDiskGoesAgainWhenTheOtherGroupFailed) {
  driver_.cache_prompt(client_, numbered_tokens(1, 4));
  driver_.hold_transfers(true);
  const RequestId id = driver_.send(client_, Flush{});
  driver_.settle();
  ASSERT_EQ(driver_.transfers().pending().size(), 2U);  // device -> host
  driver_.finish_transfer(0);
  driver_.finish_transfer(0);
  driver_.settle();
  ASSERT_EQ(driver_.transfers().pending().size(), 2U);  // host -> disk
  ASSERT_EQ(driver_.transfers().pending()[1].start.group, GroupId(1));
  const std::vector<BlockOutcome> failed{BlockOutcome::io_error};
  driver_.finish_transfer(1, failed);
  driver_.finish_transfer(0);
  driver_.hold_transfers(false);
  driver_.settle();
  ASSERT_GE(driver_.transfers().erases().size(), 1U);
  EXPECT_EQ(driver_.transfers().erases()[0].group, GroupId(0));
  EXPECT_EQ(driver_.reply_count(client_, id), 1U);
}

TEST_F(Groups, BlockWithoutRoomForOneGroupIsSavedAgainWhole) {
  driver_.cache_prompt(client_, numbered_tokens(100, 4));
  EXPECT_EQ(std::get<FlushReply>(driver_.call(client_, Flush{}).body).durable_blocks, 1U);
  driver_.cache_prompt(client_, numbered_tokens(1, 4));
  driver_.hold_transfers(true);
  const RequestId id = driver_.send(client_, Flush{});
  driver_.settle();
  ASSERT_EQ(driver_.transfers().pending().size(), 2U);  // device -> host
  driver_.finish_transfer(0);
  driver_.finish_transfer(0);
  driver_.settle();
  ASSERT_EQ(driver_.transfers().pending().size(), 2U);  // host -> disk
  const std::vector<BlockOutcome> none{BlockOutcome::no_space};
  driver_.finish_transfer(1, none);
  driver_.finish_transfer(0);
  // The part that was written goes, and the victim with both of its parts.
  EXPECT_EQ(driver_.transfers().erases().size(), 3U);
  EXPECT_TRUE(driver_.transfers().disk_index().empty());
  EXPECT_EQ(driver_.status().counters.evicted_blocks[2], 1U);
  EXPECT_EQ(driver_.status().counters.no_space_blocks, 1U);
  EXPECT_EQ(driver_.status().counters.retried_blocks, 1U);
  ASSERT_EQ(driver_.transfers().pending().size(), 2U) << "both groups again";
  EXPECT_EQ(driver_.reply_count(client_, id), 0U);
  driver_.hold_transfers(false);
  driver_.settle();
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  EXPECT_EQ(std::get<FlushReply>(driver_.reply(client_, id).body).durable_blocks, 2U);
  EXPECT_EQ(driver_.transfers().disk_index().size(), 4U);
}

TEST_F(Groups, ReportOfOneGroupThatComesTwiceDoesNotStandForTheOther) {
  driver_.cache_prompt(client_, numbered_tokens(1, 8));
  driver_.hold_transfers(true);
  const RequestId id = driver_.send(client_, Demote{.header = {}, .tier = Tier::device});
  driver_.settle();
  ASSERT_EQ(driver_.transfers().pending().size(), 2U);
  const ScriptedTransfers::Finished finished = driver_.transfers().finish(0);
  driver_.input(finished.input());
  driver_.input(finished.input());
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::host).cached, 0U);
  EXPECT_EQ(driver_.status().counters.transfers_done, 1U);
  EXPECT_EQ(driver_.reply_count(client_, id), 0U);
  driver_.finish_transfer(0);
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::host).cached, 2U);
}

TEST_F(Groups, TableThatGrowsKeepsTheEntriesOfEveryGroup) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  const auto table = [this] {
    const auto slots = driver_.live(client_, kFirst).table;
    return std::vector<SlotId>(slots.begin(), slots.end());
  };
  const std::vector<SlotId> before = table();
  ASSERT_EQ(before.size(), 4U);  // 2 blocks of 2 groups
  const Reply reply = driver_.step(client_, StepScript().append(kFirst, numbered_tokens(9, 4)));
  const auto& step = std::get<StepReply>(reply.body);
  ASSERT_EQ(step.slots.size(), 2U);  // a slot of each group for the third block
  const std::vector<SlotId> expected{before[0], before[1], step.slots[0],
                                     before[2], before[3], step.slots[1]};
  EXPECT_EQ(table(), expected);
}

class GroupsAfterARestart : public Groups {
 protected:
  GroupsAfterARestart() : restarted_(two_group_options()) {
    driver_.cache_prompt(client_, numbered_tokens(1, 8));
    const Reply reply = driver_.call(client_, Flush{});
    EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks, 2U);
    index_ = driver_.transfers().disk_index();
    EXPECT_EQ(index_.size(), 4U);  // an entry for each group
  }
  static void send_format(EngineDriver& driver) {
    const KvLayout layout = two_group_layout();
    driver.input(DiskFormat{.layout = &layout});
  }
  void send_index(EngineDriver& driver) const {
    std::vector<RecoveredEntry> entries;
    std::vector<Token> tokens;
    for (const auto& found : index_) {
      entries.push_back(found.entry);
      tokens.insert(tokens.end(), found.tokens.begin(), found.tokens.end());
    }
    driver.input(Recovered{.entries = entries, .tokens = tokens, .last = true});
    driver.settle();
  }
  std::uint64_t hits_after_recovery() {
    send_format(restarted_);
    send_index(restarted_);
    return restarted_.lookup(attach(restarted_), numbered_tokens(1, 9)).hit_tokens_by_tier[2];
  }
  void expect_saved_as_a_whole(std::uint32_t depth) {
    const ClientId client = attach(restarted_);
    restarted_.cache_prompt(client, numbered_tokens(1, 8));
    const Reply reply = restarted_.call(client, Flush{});
    ASSERT_EQ(reply.error.code, ErrorCode::ok);
    EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks, 2U);
    // The disk of the new Engine's world: what it wrote itself.
    for (const GroupId group : {GroupId(0), GroupId(1)}) {
      EXPECT_TRUE(std::ranges::any_of(restarted_.transfers().disk_index(), [&](const auto& found) {
        return found.entry.depth == depth && found.entry.group == group;
      }));
    }
    EXPECT_EQ(restarted_.lookup(client, numbered_tokens(1, 9)).hit_tokens, 8U);
  }
  EngineDriver restarted_;
  std::vector<ScriptedTransfers::DiskEntry> index_;
};

TEST_F(GroupsAfterARestart, BothGroupsOfABlockAreFound) {
  EXPECT_EQ(hits_after_recovery(), 8U);
  EXPECT_EQ(restarted_.status().counters.orphaned_blocks, 0U);
}

TEST_F(GroupsAfterARestart, BlockThatLacksAGroupIsNoHit) {
  ASSERT_EQ(index_.back().entry.depth, 1U);
  index_.pop_back();
  EXPECT_EQ(hits_after_recovery(), 4U);
}

TEST_F(GroupsAfterARestart, BlockThatLacksAGroupIsSavedWhole) {
  ASSERT_EQ(index_.back().entry.depth, 1U);
  index_.pop_back();
  EXPECT_EQ(hits_after_recovery(), 4U);
  const ClientId client = attach(restarted_);
  restarted_.cache_prompt(client, numbered_tokens(1, 8));
  const Reply reply = restarted_.call(client, Flush{});
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks, 2U);
  EXPECT_EQ(std::get<FlushReply>(reply.body).unsaved_blocks, 0U);
}

// Durable is what a restart serves.
TEST_F(GroupsAfterARestart, BlockThatLacksAGroupIsNotCountedAsDurable) {
  ASSERT_EQ(index_.back().entry.group, GroupId(1));
  index_.pop_back();
  EXPECT_EQ(hits_after_recovery(), 4U);
  const Reply reply = restarted_.call(attach(restarted_), Flush{});
  EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks, 1U);
}

TEST_F(GroupsAfterARestart, ParentThatLacksAGroupRefusesTheChildOfThatGroup) {
  std::erase_if(index_, [](const auto& found) {
    return found.entry.depth == 0 && found.entry.group == GroupId(1);
  });
  EXPECT_EQ(hits_after_recovery(), 0U);
  EXPECT_EQ(restarted_.status().counters.orphaned_blocks, 1U);
  ASSERT_EQ(restarted_.transfers().erases().size(), 1U);
  EXPECT_EQ(restarted_.transfers().erases()[0].group, GroupId(1));
  EXPECT_EQ(restarted_.transfers().erases()[0].depth, 1U);
}

TEST_F(GroupsAfterARestart, ParentThatLacksAGroupIsSavedAgain) {
  std::erase_if(index_, [](const auto& found) {
    return found.entry.depth == 0 && found.entry.group == GroupId(1);
  });
  ASSERT_EQ(hits_after_recovery(), 0U);
  restarted_.allow_quarantine();  // the child's copy of the other group
  expect_saved_as_a_whole(0);
}

// A disk of one slot a group. That of the second group is taken by what is left of a block in use.
TEST_F(GroupsAfterARestart, BlockThatFindsASlotInOneGroupOnlyTakesNone) {
  std::erase_if(index_, [](const auto& found) {
    return found.entry.depth == 1 || found.entry.group == GroupId(0);
  });
  ASSERT_EQ(index_.size(), 1U);
  Engine::Options options = two_group_options();
  options.tier_bytes[tier_index(Tier::disk)] = 8'192;
  EngineDriver driver(options);
  send_format(driver);
  const ClientId client = attach(driver);
  driver.cache_prompt(client, numbered_tokens(101, 4));  // known first, hence saved first
  send_index(driver);
  driver.admit(client, kFirst, numbered_tokens(1, 4));
  driver.step(client, StepScript().publish(kFirst, 4));
  const Reply reply = driver.call(client, Flush{});
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks, 1U);
  EXPECT_EQ(std::get<FlushReply>(reply.body).unsaved_blocks, 1U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 5)).hit_tokens, 4U);
  EXPECT_EQ(driver.transfers().disk_index().size(), 2U) << "both groups of the block in use";
}

}  // namespace
}  // namespace kv::core
