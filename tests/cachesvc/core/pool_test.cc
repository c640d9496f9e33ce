// AttachPool: one format for each Engine, and its slots.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

Reply attach_pool(EngineDriver& driver, ClientId client, const KvLayout& layout) {
  return driver.call(client, AttachPool{.header = {}, .layout = &layout});
}

TEST(Pool, FirstAttachDefinesTheFormatAndTheSlotsOfEveryTier) {
  Engine::Options options;
  // 4 tokens of 32 bytes: 128 bytes a block, 4096 on disk: 8, 3 and 2 blocks, and rests.
  options.tier_bytes = {1'151, 384, 12'287, 0};
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  EXPECT_EQ(driver.engine().cache(), nullptr);
  const Reply reply = attach_pool(driver, client, one_group_layout());
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  const auto& body = std::get<AttachPoolReply>(reply.body);
  ASSERT_EQ(body.groups.size(), 1U);
  EXPECT_EQ(body.groups[0].offset, 0U);
  EXPECT_EQ(body.groups[0].slot_bytes, 128U);
  EXPECT_EQ(body.groups[0].slot_count, 8U);
  EXPECT_EQ(driver.format_count(), 1U);
  EXPECT_EQ(driver.tier(Tier::device).slots, 8U);
  EXPECT_EQ(driver.tier(Tier::device).free, 8U);
  EXPECT_EQ(driver.tier(Tier::host).slots, 3U);
  EXPECT_EQ(driver.tier(Tier::disk).slots, 2U);
  EXPECT_EQ(driver.status().block_tokens, 4U);
}

TEST(Pool, SecondAttachOfTheSameLayoutGetsTheSamePool) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId one = driver.attach();
  const ClientId other = driver.attach();
  attach_pool(driver, one, one_group_layout());
  const Reply reply = attach_pool(driver, other, one_group_layout());
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AttachPoolReply>(reply.body).groups.at(0).slot_count, 8U);
  EXPECT_EQ(driver.format_count(), 1U);
}

TEST(Pool, AnotherLayoutIsAMismatchThatNamesTheField) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach();
  attach_pool(driver, client, one_group_layout());
  KvLayout other = one_group_layout();
  other.groups[0].head_dim_v = 8;
  const Reply reply = attach_pool(driver, client, other);
  EXPECT_EQ(reply.error.code, ErrorCode::mismatch);
  EXPECT_EQ(reply.error.field, "head_dim_v");
  const Reply longer = attach_pool(driver, client, one_group_layout(8));
  EXPECT_EQ(longer.error.code, ErrorCode::mismatch);
  EXPECT_EQ(longer.error.field, "block_tokens");
  EXPECT_EQ(driver.tier(Tier::device).slots, 8U);
}

TEST(Pool, InvalidLayoutIsRefusedAndDefinesNothing) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach();
  const Reply reply = attach_pool(driver, client, one_group_layout(3));
  EXPECT_EQ(reply.error.code, ErrorCode::invalid);
  EXPECT_EQ(reply.error.field, "block_tokens");
  EXPECT_EQ(driver.engine().cache(), nullptr);
  EXPECT_EQ(attach_pool(driver, client, one_group_layout()).error.code, ErrorCode::ok);
}

TEST(Pool, DeviceTooSmallForOneBlockIsTooLarge) {
  Engine::Options options;
  options.tier_bytes = {127, 0, 0, 0};
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  EXPECT_EQ(attach_pool(driver, client, one_group_layout()).error.code, ErrorCode::too_large);
  EXPECT_EQ(driver.engine().cache(), nullptr);
  EXPECT_EQ(driver.format_count(), 0U);
}

TEST(Pool, GroupsGetEqualSlotCountsOneAfterTheOther) {
  KvLayout layout = one_group_layout();
  layout.groups.push_back(layout.groups[0]);
  layout.groups[1].head_dim_k = 2;
  layout.groups[1].head_dim_v = 2;  // 64 bytes a block
  Engine::Options options;
  options.tier_bytes = {960, 0, 0, 0};  // 5 blocks of both groups
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  const Reply reply = attach_pool(driver, client, layout);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  const auto& body = std::get<AttachPoolReply>(reply.body);
  ASSERT_EQ(body.groups.size(), 2U);
  EXPECT_EQ(body.groups[0].offset, 0U);
  EXPECT_EQ(body.groups[0].slot_bytes, 128U);
  EXPECT_EQ(body.groups[0].slot_count, 5U);
  EXPECT_EQ(body.groups[1].offset, 640U);
  EXPECT_EQ(body.groups[1].slot_bytes, 64U);
  EXPECT_EQ(body.groups[1].slot_count, 5U);
  EXPECT_EQ(body.pool_bytes, 960U);
}

TEST(Pool, EveryGroupHasSlotsOfItsOwnInATable) {
  KvLayout layout = one_group_layout();
  layout.groups.push_back(layout.groups[0]);
  Engine::Options options;
  options.tier_bytes = {std::uint64_t{6} * 256, 0, 0, 0};
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  ASSERT_EQ(attach_pool(driver, client, layout).error.code, ErrorCode::ok);
  const SequenceId sequence(1);
  const Reply reply = driver.admit(client, sequence, numbered_tokens(1, 8), 4);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(reply.body).block_count, 3U);
  EXPECT_EQ(std::get<AdmitReply>(reply.body).slots.size(), 6U);
  driver.step(client, StepScript().publish(sequence, 8).free(sequence));
  // A block is a hit when both groups have it.
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 9)).hit_tokens, 8U);
  const Reply again = driver.admit(client, sequence, numbered_tokens(1, 9), 0);
  ASSERT_EQ(again.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(again.body).account.hit_tokens[0], 8U);
  EXPECT_EQ(std::get<AdmitReply>(again.body).slots.size(), 6U);
}

}  // namespace
}  // namespace kv::core
