#include "allocator/block_records.h"

#include <gtest/gtest.h>

namespace kv {
namespace {

TEST(BlockRecords, KnowNothingOfANewBlock) {
  const BlockRecords records(2, 2);
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk, Tier::remote}) {
    EXPECT_TRUE(records.slot(BlockId(1), GroupId(1), tier).is_none());
    EXPECT_FALSE(records.arriving(BlockId(1), tier));
  }
  EXPECT_EQ(records.key(BlockId(1)), Digest{});
  EXPECT_EQ(records.pins(BlockId(1)), 0U);
  EXPECT_EQ(records.last_use(BlockId(1)), 0U);
}

TEST(BlockRecords, KeepFieldsOfBlocksGroupsAndTiersApart) {
  BlockRecords records(3, 2);
  std::uint32_t value = 0;
  for (std::uint32_t block = 0; block < 3; ++block) {
    for (std::uint32_t group = 0; group < 2; ++group) {
      records.set_checksum(BlockId(block), GroupId(group), 100 + value);
      for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
        records.set_slot(BlockId(block), GroupId(group), tier, SlotId(value++));
      }
    }
  }
  value = 0;
  for (std::uint32_t block = 0; block < 3; ++block) {
    for (std::uint32_t group = 0; group < 2; ++group) {
      EXPECT_EQ(records.checksum(BlockId(block), GroupId(group)), 100 + value);
      for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
        EXPECT_EQ(records.slot(BlockId(block), GroupId(group), tier), SlotId(value++));
      }
    }
  }
}

// Against a look at every block and group, for each place of the first one without a slot.
TEST(BlockRecords, CountTheLeadingBlocksWithASlotOfEveryGroup) {
  constexpr std::uint32_t kBlocks = 70;
  for (const std::uint32_t groups : {1U, 2U, 3U}) {
    for (std::uint32_t missing = 0; missing <= (kBlocks - 1) * groups; ++missing) {
      BlockRecords records(kBlocks, groups, {true, true, false});
      for (std::uint32_t i = 0; i < kBlocks * groups; ++i) {
        if (i == missing) continue;
        records.set_slot(BlockId(i / groups), GroupId(i % groups), Tier::device, SlotId(i));
      }
      const std::uint32_t gap = missing / groups;
      EXPECT_EQ(records.leading_slots(BlockId(0), kBlocks, Tier::device), gap);
      EXPECT_EQ(records.leading_slots(BlockId(0), gap, Tier::device), gap);
      EXPECT_EQ(records.leading_slots(BlockId(gap), kBlocks - gap, Tier::device), 0U);
      if (gap + 1 == kBlocks) continue;
      EXPECT_EQ(records.leading_slots(BlockId(gap + 1), kBlocks - gap - 1, Tier::device),
                kBlocks - gap - 1);
    }
  }
  const BlockRecords records(kBlocks, 1, {true, true, false});
  EXPECT_EQ(records.leading_slots(BlockId(0), kBlocks, Tier::host), 0U);
  EXPECT_EQ(records.leading_slots(BlockId(0), kBlocks, Tier::disk), 0U);
}

TEST(BlockRecords, ForgetOneBlockOnReset) {
  BlockRecords records(2, 1);
  Digest key;
  key.bytes[0] = std::byte{1};
  for (const BlockId block : {BlockId(0), BlockId(1)}) {
    records.set_slot(block, GroupId(0), Tier::host, SlotId(5));
    records.set_key(block, key);
    records.set_pins(block, 3);
    records.set_last_use(block, 9);
    records.set_arriving(block, Tier::disk, true);
    records.set_checksum(block, GroupId(0), 7);
  }
  records.reset(BlockId(0));
  EXPECT_TRUE(records.slot(BlockId(0), GroupId(0), Tier::host).is_none());
  EXPECT_EQ(records.key(BlockId(0)), Digest{});
  EXPECT_EQ(records.pins(BlockId(0)), 0U);
  EXPECT_EQ(records.last_use(BlockId(0)), 0U);
  EXPECT_FALSE(records.arriving(BlockId(0), Tier::disk));
  EXPECT_EQ(records.checksum(BlockId(0), GroupId(0)), 0U);
  EXPECT_EQ(records.slot(BlockId(1), GroupId(0), Tier::host), SlotId(5));
  EXPECT_EQ(records.key(BlockId(1)), key);
  EXPECT_TRUE(records.arriving(BlockId(1), Tier::disk));
}

TEST(BlockRecords, MarkArrivalsPerTier) {
  BlockRecords records(1, 1);
  records.set_arriving(BlockId(0), Tier::device, true);
  records.set_arriving(BlockId(0), Tier::disk, true);
  records.set_arriving(BlockId(0), Tier::device, false);
  EXPECT_FALSE(records.arriving(BlockId(0), Tier::device));
  EXPECT_FALSE(records.arriving(BlockId(0), Tier::host));
  EXPECT_TRUE(records.arriving(BlockId(0), Tier::disk));
}

}  // namespace
}  // namespace kv
