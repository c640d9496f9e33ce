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
