#include "tools/world/virtual_links.h"

#include <array>

#include <gtest/gtest.h>

#include "cachesvc/core/prefix_cache.h"
#include "tools/world/fingerprint.h"
#include "tools/world/virtual_tiers.h"

namespace kv::world {
namespace {

constexpr GroupId kGroup{0};
constexpr TimePoint kStart{};

core::PrefixCache::Options cache_options() {
  core::PrefixCache::Options options;
  LayerGroup group;
  group.layer_count = group.kv_head_count = group.head_dim_k = group.head_dim_v = 1;
  options.layout = {2, {group}};
  options.slot_count = {4, 4, 4};
  return options;
}

class VirtualLinksTest : public ::testing::Test {
 protected:
  VirtualLinksTest() : cache_(cache_options()), links_(tiers_, 1) { tiers_.start(cache_); }

  // One block from slot 1 to slot 2.
  void start(Tier from, Tier to, std::uint32_t checksum) {
    core::Actions actions;
    core::TransferBlock block;
    block.from_slot = SlotId{1};
    block.to_slot = SlotId{2};
    block.from_generation = 5;
    block.to_generation = 6;
    block.checksum = checksum;
    block.depth = 0;
    block.key.bytes[0] = std::byte{9};
    actions.transfer_blocks = {block};
    actions.tokens = {7, 8};
    actions.transfers = {{TransferId{3}, from, to, kGroup, 0, 1, 0, {}}};
    links_.start(kStart, actions.transfers[0], actions, 2, problems_);
  }

  core::PrefixCache cache_;
  VirtualTiers tiers_;
  VirtualLinks links_;
  std::vector<std::string> problems_;
};

TEST(Fingerprint, TellsNamespacesPrefixesAndGroupsApart) {
  Digest other;
  other.bytes[31] = std::byte{1};
  const std::array<Token, 2> tokens = {1, 2};
  const std::array<Token, 2> swapped = {2, 1};
  const Fingerprint prefix = extend(start_of(Digest{}), tokens);
  EXPECT_NE(prefix, extend(start_of(other), tokens));
  EXPECT_NE(prefix, extend(start_of(Digest{}), swapped));
  EXPECT_NE(prefix, extend(start_of(Digest{}), std::span(tokens).first(1)));
  EXPECT_NE(of_group(prefix, GroupId{0}), of_group(prefix, GroupId{1}));
  EXPECT_EQ(extend(extend(start_of(other), std::span(tokens).first(1)), std::span(tokens).last(1)),
            extend(start_of(other), tokens));
}

TEST_F(VirtualLinksTest, CopiesBytesOutAndTellsTheirChecksum) {
  tiers_.write(Tier::device, kGroup, SlotId{1}, 0x1122334455667788U);
  start(Tier::device, Tier::host, 0);
  EXPECT_NE(tiers_.read(Tier::host, kGroup, SlotId{2}), 0x1122334455667788U);
  const auto report = links_.finish_next(problems_);
  EXPECT_EQ(report.id, TransferId{3});
  EXPECT_EQ(report.outcomes, std::vector{core::BlockOutcome::ok});
  EXPECT_EQ(report.checksums, std::vector<std::uint32_t>{0x55667788U});
  EXPECT_EQ(tiers_.read(Tier::host, kGroup, SlotId{2}), 0x1122334455667788U);
  EXPECT_TRUE(problems_.empty());
  EXPECT_TRUE(links_.idle());
}

TEST_F(VirtualLinksTest, SaysCorruptWhenTheChecksumIsNotThatOfTheSource) {
  tiers_.write(Tier::host, kGroup, SlotId{1}, 0x1122334455667788U);
  start(Tier::host, Tier::device, 0x55667789U);
  const auto report = links_.finish_next(problems_);
  EXPECT_EQ(report.outcomes, std::vector{core::BlockOutcome::corrupt});
  EXPECT_EQ(report.broken_keys.size(), 1U);
  EXPECT_NE(tiers_.read(Tier::device, kGroup, SlotId{2}), 0x1122334455667788U);
}

TEST_F(VirtualLinksTest, LetsBytesRotWhenAskedTo) {
  tiers_.write(Tier::host, kGroup, SlotId{1}, 0x1122334455667788U);
  Faults faults;
  faults.rotten_blocks = 1000;
  links_.set_faults(faults);
  start(Tier::host, Tier::device, 0x55667788U);
  const auto report = links_.finish_next(problems_);
  EXPECT_EQ(report.outcomes, std::vector{core::BlockOutcome::corrupt});
  EXPECT_NE(tiers_.read(Tier::host, kGroup, SlotId{1}), 0x1122334455667788U);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(VirtualLinksTest, NoticesThatTheSourceChangedWhileItWasRead) {
  start(Tier::device, Tier::host, 0);
  tiers_.write(Tier::device, kGroup, SlotId{1}, 77);
  const auto report = links_.finish_next(problems_);
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_EQ(problems_[0].substr(0, 2), "5:");
}

TEST_F(VirtualLinksTest, NoticesThatTheDestinationWasWrittenMeanwhile) {
  start(Tier::device, Tier::host, 0);
  tiers_.write(Tier::host, kGroup, SlotId{2}, 77);
  const auto report = links_.finish_next(problems_);
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_EQ(problems_[0].substr(0, 2), "4:");
}

TEST_F(VirtualLinksTest, IndexesWhatItWritesToDisk) {
  tiers_.write(Tier::host, kGroup, SlotId{1}, 0x1122334455667788U);
  start(Tier::host, Tier::disk, 0x55667788U);
  EXPECT_TRUE(tiers_.disk().empty());
  const auto report = links_.finish_next(problems_);
  ASSERT_EQ(tiers_.disk().size(), 1U);
  const auto& entry = tiers_.disk().at({kGroup, SlotId{2}});
  EXPECT_EQ(entry.entry.generation, 6U);
  EXPECT_EQ(entry.entry.checksum, 0x55667788U);
  EXPECT_EQ(entry.tokens, (std::vector<Token>{7, 8}));
  EXPECT_FALSE(entry.synced);
  EXPECT_TRUE(problems_.empty());
}

TEST_F(VirtualLinksTest, NoticesThatADiskSlotIsWrittenWhileTheIndexNamesIt) {
  tiers_.disk()[{kGroup, SlotId{2}}] = {};
  start(Tier::host, Tier::disk, 0);
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_EQ(problems_[0].substr(0, 3), "19:");
}

TEST_F(VirtualLinksTest, NoticesALoadOfADiskCopyThatTheIndexDoesNotHave) {
  start(Tier::disk, Tier::host, 0);
  ASSERT_EQ(problems_.size(), 1U);
  EXPECT_EQ(problems_[0].substr(0, 3), "19:");
}

TEST_F(VirtualLinksTest, FailsBlocksWhenAskedToAndLeavesNoIndexEntry) {
  Faults faults;
  faults.failed_blocks = 1000;
  links_.set_faults(faults);
  start(Tier::host, Tier::disk, checksum_of(tiers_.read(Tier::host, kGroup, SlotId{1})));
  const auto report = links_.finish_next(problems_);
  EXPECT_NE(report.outcomes[0], core::BlockOutcome::ok);
  EXPECT_TRUE(tiers_.disk().empty());
}

}  // namespace
}  // namespace kv::world
