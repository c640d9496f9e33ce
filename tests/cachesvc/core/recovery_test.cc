// Recovery: what a disk index gives back to a new Engine, and what it refuses.
#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "allocator/block_key.h"
#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
using DiskEntry = ScriptedTransfers::DiskEntry;

// The disk index of an Engine that cached these prompts and was flushed.
std::vector<DiskEntry> index_of(std::initializer_list<std::vector<Token>> prompts) {
  EngineDriver driver(options_with_slots(16, 16, 16));
  const ClientId client = driver.attach_with_pool();
  for (const std::vector<Token>& prompt : prompts) driver.cache_prompt(client, prompt);
  const Reply reply = driver.call(client, Flush{});
  EXPECT_EQ(std::get<FlushReply>(reply.body).durable_blocks,
            driver.transfers().disk_index().size());
  return driver.transfers().disk_index();
}

void send_format(EngineDriver& driver) {
  const KvLayout layout = one_group_layout();
  driver.input(DiskFormat{.layout = &layout});
}

// Without settling: one input.
void send_entries(EngineDriver& driver, std::span<const DiskEntry> index, bool last) {
  std::vector<RecoveredEntry> entries;
  std::vector<Token> tokens;
  for (const DiskEntry& found : index) {
    entries.push_back(found.entry);
    tokens.insert(tokens.end(), found.tokens.begin(), found.tokens.end());
  }
  driver.input(Recovered{.entries = entries, .tokens = tokens, .last = last});
}

void recover(EngineDriver& driver, std::span<const DiskEntry> index) {
  send_format(driver);
  send_entries(driver, index, true);
  driver.settle();
}

class Recovery : public testing::Test {
 protected:
  Recovery() : driver_(options_with_slots(16, 16, 16)) {}
  EngineDriver driver_;
};

TEST_F(Recovery, RoundTripServesEverythingFromTheDisk) {
  std::vector<Token> fork = numbered_tokens(1, 4);
  for (const Token token : numbered_tokens(800, 4)) fork.push_back(token);
  const auto index = index_of({numbered_tokens(1, 12), fork});  // 3 + 1 blocks
  ASSERT_EQ(index.size(), 4U);
  recover(driver_, index);
  EXPECT_EQ(driver_.status().counters.recovered_blocks, 4U);
  EXPECT_EQ(driver_.status().counters.orphaned_blocks, 0U);
  EXPECT_TRUE(driver_.transfers().erases().empty());
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 4U);
  EXPECT_EQ(driver_.status().tree_blocks, 4U);
  const ClientId client = driver_.attach_with_pool();
  EXPECT_EQ(driver_.lookup(client, numbered_tokens(1, 13)).hit_tokens_by_tier[2], 12U);
  driver_.hold_transfers(true);
  const Reply reply = driver_.admit(client, kFirst, numbered_tokens(1, 13));
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<AdmitReply>(reply.body).account.hit_tokens[2], 12U);
  ASSERT_EQ(driver_.transfers().pending().size(), 1U);
  const ScriptedTransfers::Pending& load = driver_.transfers().pending()[0];
  ASSERT_EQ(load.blocks.size(), 3U);
  for (const TransferBlock& block : load.blocks) {
    const auto found =
        std::ranges::find(index, block.key, [](const auto& e) { return e.entry.key; });
    ASSERT_NE(found, index.end());
    EXPECT_EQ(block.from_slot, found->entry.slot);
    EXPECT_EQ(block.from_generation, found->entry.generation);
    EXPECT_EQ(block.checksum, found->entry.checksum);
    EXPECT_EQ(block.parent_key, found->entry.parent_key);
  }
  driver_.hold_transfers(false);
  driver_.settle();
  ASSERT_EQ(driver_.notices(client).size(), 1U);
  EXPECT_EQ(driver_.notices(client)[0].code, ErrorCode::ok);
}

TEST_F(Recovery, GoesOnInChunksWhileTheServiceAnswers) {
  const auto index = index_of({numbered_tokens(1, 12)});
  send_format(driver_);
  EXPECT_TRUE(driver_.status().recovering);
  send_entries(driver_, std::span(index).first(1), false);
  driver_.settle();
  const ClientId client = driver_.attach_with_pool();
  EXPECT_EQ(driver_.lookup(client, numbered_tokens(1, 13)).hit_tokens, 4U);
  EXPECT_TRUE(driver_.status().recovering);
  send_entries(driver_, std::span(index).subspan(1), true);
  driver_.settle();
  EXPECT_FALSE(driver_.status().recovering);
  EXPECT_EQ(driver_.lookup(client, numbered_tokens(1, 13)).hit_tokens, 12U);
}

// Else what is still to come would be unknown, and its slots written over.
TEST_F(Recovery, GoesOnWhenTheDiskIsCalledOffThoughItHoldsABlock) {
  const auto index = index_of({numbered_tokens(1, 12)});
  send_format(driver_);
  send_entries(driver_, std::span(index).first(1), false);
  driver_.input(DiskOff{});
  EXPECT_TRUE(driver_.status().recovering);
  EXPECT_EQ(driver_.tier(Tier::disk).slots, 16U);
  send_entries(driver_, std::span(index).subspan(1), true);
  driver_.settle();
  EXPECT_EQ(driver_.status().counters.recovered_blocks, 3U);
  const ClientId client = driver_.attach_with_pool();
  EXPECT_EQ(driver_.lookup(client, numbered_tokens(1, 13)).hit_tokens, 12U);
}

TEST_F(Recovery, FormatOfTheDiskMustFitThePool) {
  send_format(driver_);
  const ClientId client = driver_.attach();
  const KvLayout other = one_group_layout(8);
  const Reply reply = driver_.call(client, AttachPool{.header = {}, .layout = &other});
  EXPECT_EQ(reply.error.code, ErrorCode::mismatch);
  EXPECT_EQ(reply.error.field, "block_tokens");
  const KvLayout same = one_group_layout();
  EXPECT_EQ(driver_.call(client, AttachPool{.header = {}, .layout = &same}).error.code,
            ErrorCode::ok);
}

// One entry of the index is damaged; the entry itself and what hangs below it are refused.
struct Damage {
  const char* name;
  std::size_t entry;      // of a chain of 3
  std::uint32_t refused;  // entries
  void (*apply)(std::vector<DiskEntry>&);
};
class RecoveryOfADamagedIndex : public testing::TestWithParam<Damage> {};

TEST_P(RecoveryOfADamagedIndex, RefusesAndErasesTheEntryAndWhatHangsBelow) {
  auto index = index_of({numbered_tokens(1, 12)});
  ASSERT_EQ(index.size(), 3U);
  GetParam().apply(index);
  EngineDriver driver(options_with_slots(16, 16, 16));
  recover(driver, index);
  const std::uint32_t refused = GetParam().refused;
  EXPECT_EQ(driver.status().counters.recovered_blocks, index.size() - refused);
  EXPECT_EQ(driver.status().counters.orphaned_blocks, refused);
  ASSERT_EQ(driver.transfers().erases().size(), refused);
  const EraseDisk& erased = driver.transfers().erases()[0];
  const RecoveredEntry& bad = index[GetParam().entry].entry;
  EXPECT_EQ(erased.key, bad.key);
  EXPECT_EQ(erased.slot, bad.slot);
  EXPECT_EQ(erased.generation, bad.generation);
  EXPECT_EQ(erased.depth, bad.depth);
  EXPECT_EQ(driver.tier(Tier::disk).cached, index.size() - refused);
  EXPECT_EQ(driver.status().tree_blocks, index.size() - refused);
}

INSTANTIATE_TEST_SUITE_P(
    Damages, RecoveryOfADamagedIndex,
    testing::Values(
        Damage{"tokens_that_do_not_make_the_key", 1, 2, [](auto& index) { ++index[1].tokens[0]; }},
        Damage{"a_key_that_the_tokens_do_not_make", 2, 1,
               [](auto& index) { index[2].entry.key.bytes[0] ^= std::byte{1}; }},
        Damage{"an_unknown_parent", 1, 2,
               [](auto& index) { index[1].entry.parent_key.bytes[5] ^= std::byte{1}; }},
        Damage{"another_depth", 1, 2, [](auto& index) { index[1].entry.depth = 2; }},
        Damage{"the_slot_of_another", 2, 1,
               [](auto& index) { index[2].entry.slot = index[0].entry.slot; }},
        Damage{"a_slot_beyond_the_pool", 2, 1,
               [](auto& index) { index[2].entry.slot = SlotId(16); }},
        Damage{"another_group", 2, 1, [](auto& index) { index[2].entry.group = GroupId(1); }},
        Damage{"another_namespace", 0, 3,
               [](auto& index) { index[0].entry.namespace_digest.bytes[0] ^= std::byte{1}; }}),
    [](const auto& each) { return std::string(each.param.name); });

TEST_F(Recovery, MissingFirstBlockMakesOrphansOfTheRest) {
  const auto index = index_of({numbered_tokens(1, 12)});
  recover(driver_, std::span(index).subspan(1));
  EXPECT_EQ(driver_.status().counters.recovered_blocks, 0U);
  EXPECT_EQ(driver_.status().counters.orphaned_blocks, 2U);
  EXPECT_EQ(driver_.transfers().erases().size(), 2U);
  EXPECT_EQ(driver_.tier(Tier::disk).free, 16U);
  EXPECT_EQ(driver_.status().tree_blocks, 0U);
}

TEST_F(Recovery, SecondCopyOfABlockIsRefused) {
  auto index = index_of({numbered_tokens(1, 4)});
  index.push_back(index[0]);
  index[1].entry.slot = SlotId(index[0].entry.slot.value == 9 ? 8 : 9);
  recover(driver_, index);
  EXPECT_EQ(driver_.status().counters.recovered_blocks, 1U);
  EXPECT_EQ(driver_.status().counters.orphaned_blocks, 1U);
  ASSERT_EQ(driver_.transfers().erases().size(), 1U);
  EXPECT_EQ(driver_.transfers().erases()[0].slot, index[1].entry.slot);
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 1U);
}

// A chain that an Engine with a larger host wrote still ends: served whole or in part.
TEST(RecoveryIntoASmallHost, LongChainNeverHangsAnAdmission) {
  const auto index = index_of({numbered_tokens(1, 24)});  // 6 blocks
  ASSERT_EQ(index.size(), 6U);
  EngineDriver driver(options_with_slots(16, 2, 16));
  recover(driver, index);
  EXPECT_EQ(driver.status().counters.recovered_blocks, 6U);
  const ClientId client = driver.attach_with_pool();
  Reply reply = driver.admit(client, kFirst, numbered_tokens(1, 25));
  bool ready = false;
  for (int attempt = 0; attempt < 8 && !ready; ++attempt) {
    ASSERT_EQ(reply.error.code, ErrorCode::ok);
    const Engine::SequenceView view = driver.live(client, kFirst);
    ASSERT_FALSE(view.loading);  // everything was settled
    ready = view.admitted;
    if (!ready) {
      EXPECT_EQ(driver.notices(client).back().code, ErrorCode::busy);
      reply = driver.call(client, Admit{.header = {}, .sequence = kFirst});
    }
  }
  EXPECT_TRUE(ready);
  const Account& account = std::get<AdmitReply>(reply.body).account;
  EXPECT_GE(account.hit_tokens[0] + account.hit_tokens[1] + account.hit_tokens[2], 8U);
}

TEST_F(Recovery, EntryWithOtherBytesThanTheHostCopyIsErased) {
  auto index = index_of({numbered_tokens(1, 8)});
  ASSERT_EQ(index.size(), 2U);
  index[1].entry.checksum ^= 1U;
  send_format(driver_);
  const ClientId client = driver_.attach_with_pool();
  driver_.cache_prompt(client, numbered_tokens(1, 8));  // the host has both before the disk tells
  driver_.settle();
  ASSERT_EQ(driver_.tier(Tier::host).cached, 2U);
  send_entries(driver_, index, false);
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 1U);
  ASSERT_EQ(driver_.transfers().erases().size(), 1U);
  EXPECT_EQ(driver_.transfers().erases()[0].key, index[1].entry.key);
  send_entries(driver_, {}, true);
  driver_.settle();
  EXPECT_EQ(driver_.status().counters.orphaned_blocks, 1U);
  EXPECT_EQ(std::get<FlushReply>(driver_.call(client, Flush{}).body).durable_blocks, 2U);
}

TEST_F(Recovery, DiskCopyWithOtherBytesGoesWhenTheBlockIsComputedAnew) {
  const auto index = index_of({numbered_tokens(1, 8)});
  send_format(driver_);
  send_entries(driver_, index, false);  // until its end nothing is saved to the disk
  ASSERT_EQ(driver_.tier(Tier::disk).cached, 2U);
  const ClientId client = driver_.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 8);
  const NamespaceFields fields;
  driver_.hold_transfers(true);
  Open open{.header = {}, .sequence = kFirst, .first = true, .fields = &fields, .tokens = prompt};
  open.skip_read = true;
  driver_.call(client, open);
  driver_.call(client, Admit{.header = {}, .sequence = kFirst});
  driver_.step(client, StepScript().publish(kFirst, 8).free(kFirst));
  ASSERT_EQ(driver_.transfers().pending().size(), 1U);
  ASSERT_EQ(driver_.transfers().pending()[0].start.to, Tier::host);
  ScriptedTransfers::Finished finished = driver_.transfers().finish(0);
  finished.checksums.at(1) ^= 1U;  // summed in another order: the same to the eye, not in the bits
  driver_.input(finished.input());
  EXPECT_EQ(driver_.tier(Tier::host).cached, 2U);
  EXPECT_EQ(driver_.tier(Tier::disk).cached, 1U);
  ASSERT_EQ(driver_.transfers().erases().size(), 1U);
  EXPECT_EQ(driver_.transfers().erases()[0].key, index[1].entry.key);
  EXPECT_EQ(driver_.lookup(client, numbered_tokens(1, 9)).hit_tokens, 8U);
}

// SCENARIOS REC-01
TEST_F(Recovery, WhatWasOnTheDiskIsHitAndNotWrittenAgain) {
  const auto index = index_of({numbered_tokens(1, 24)});
  ASSERT_EQ(index.size(), 6U);
  recover(driver_, index);
  const ClientId client = driver_.attach_with_pool();
  EXPECT_EQ(driver_.lookup(client, numbered_tokens(1, 25)).hit_tokens, 24U);
  driver_.cache_prompt(client, numbered_tokens(1, 24));  // loads what it can, computes the rest
  // And once more from the first token on: stored anew with equal bytes.
  const NamespaceFields fields;
  const std::vector<Token> prompt = numbered_tokens(1, 24);
  Open open{.header = {}, .sequence = kFirst, .first = true, .fields = &fields, .tokens = prompt};
  open.skip_read = true;
  EXPECT_EQ(driver_.call(client, open).error.code, ErrorCode::ok);
  driver_.call(client, Admit{.header = {}, .sequence = kFirst});
  driver_.step(client, StepScript().publish(kFirst, 24).free(kFirst));
  EXPECT_EQ(std::get<FlushReply>(driver_.call(client, Flush{}).body).durable_blocks, 6U);
  EXPECT_EQ(driver_.status().counters.saved_blocks[2], 0U) << "rewrites";
  EXPECT_TRUE(driver_.transfers().erases().empty());
}

// SCENARIOS REC-02
TEST(RecoveryIntoATightDisk, UseIsCountedFromTheStartAndTheCapHolds) {
  const auto index =
      index_of({numbered_tokens(1, 8), numbered_tokens(100, 8), numbered_tokens(200, 8)});
  ASSERT_EQ(index.size(), 6U);
  auto small = index;  // in the slots of a disk of 8
  for (std::uint32_t i = 0; i < small.size(); ++i) ASSERT_LT(small[i].entry.slot.value, 8U);
  EngineDriver driver(options_with_slots(16, 16, 8));
  recover(driver, small);
  EXPECT_EQ(driver.tier(Tier::disk).cached, 6U);
  EXPECT_EQ(driver.tier(Tier::disk).free, 2U);
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(300, 8));
  driver.cache_prompt(client, numbered_tokens(400, 8));
  EXPECT_EQ(driver.tier(Tier::disk).cached, 8U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[2], 2U);
  EXPECT_EQ(driver.transfers().erases().size(), 2U);
  // The new ones are there, and four of the six.
  EXPECT_EQ(driver.lookup(client, numbered_tokens(300, 9)).hit_tokens, 8U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(400, 9)).hit_tokens, 8U);
  std::uint64_t left = 0;
  for (const Token first : {1U, 100U, 200U}) {
    left += driver.lookup(client, numbered_tokens(first, 9)).hit_tokens_by_tier[2];
  }
  EXPECT_EQ(left, 16U);
}

}  // namespace
}  // namespace kv::core
