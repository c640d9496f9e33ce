// The promise of the service: what it serves from its cache gives the bits of a cold run, and it
// serves everything that it can. Each hit is counted twice: by the service and by the runner.
#include "tests/plugins/runner/reuse.h"

#include <gtest/gtest.h>

namespace kv::test {
namespace {

using testing::InProcessService;

TEST(Reuse, EveryPrefixLengthHitsByTheFormulaWithTheBitsOfAColdRun) {
  const ColdStory& story = ColdStory::get();
  for (const std::uint32_t block : kBlockTokens) {
    SCOPED_TRACE(::testing::Message() << "block_tokens " << block);
    InProcessService service(service_options(block, 512));
    Runner runner(service, {.block_tokens = block});
    expect_warm(runner.run(story.prefix(kPromptTokens), 1), kPromptTokens, 0, Tier::device);
    std::uint64_t hits = 0;
    for (std::uint32_t length = 1; length <= kPromptTokens && !HasFailure(); ++length) {
      const std::uint64_t hit = hit_by_formula(length, block, kPromptTokens);
      expect_warm(runner.run(story.prefix(length), 1), length, hit, Tier::device);
      hits += hit;
    }
    EXPECT_GT(hits, 0U);
    EXPECT_EQ(service.status().counters.hit_tokens[tier_index(Tier::device)], hits);
    // Equal blocks exist once.
    EXPECT_EQ(service.status().tree_blocks, kPromptTokens / block);
    EXPECT_EQ(service.status().tiers[tier_index(Tier::device)].held, 0U);
  }
}

TEST(Reuse, WhatWasNotPublishedIsPrefilledInAnyChunksOnTopOfTheHit) {
  constexpr std::uint32_t kPublished = 100;
  const ColdStory& story = ColdStory::get();
  for (const std::uint32_t block : kBlockTokens) {
    InProcessService service(service_options(block, 512));
    Runner publisher(service, {.block_tokens = block});
    (void)publisher.run(story.prefix(kPublished), 1);
    for (const std::uint32_t chunk : {1U, 7U, 16U, 64U}) {
      SCOPED_TRACE(::testing::Message() << "block_tokens " << block << " chunk " << chunk);
      Runner runner(service, {.block_tokens = block, .chunk_tokens = chunk});
      runner.session.drop_publish = true;
      for (std::uint32_t length = 1; length <= kPromptTokens && !HasFailure(); ++length) {
        expect_warm(runner.run(story.prefix(length), kKeptPositions), length,
                    hit_by_formula(length, block, kPublished), Tier::device);
      }
    }
    EXPECT_EQ(service.status().tree_blocks, kPublished / block);
  }
}

TEST(Reuse, AfterATripToTheHostAndBackIntoOtherSlotsTheBitsAreTheSame) {
  const ColdStory& story = ColdStory::get();
  const auto other = Stories::get().story(3);  // from its second token on: no block in common
  for (const std::uint32_t block : kBlockTokens) {
    SCOPED_TRACE(::testing::Message() << "block_tokens " << block);
    InProcessService service(service_options(block, 512));
    Runner runner(service, {.block_tokens = block});
    Runner holder(service, {.block_tokens = block});
    (void)runner.run(story.prefix(kPromptTokens), 1);
    const std::vector<SlotId> first_slots = runner.session.admissions.front().slots;
    std::uint32_t moved = 0;
    for (std::uint32_t length = 1; length <= kPromptTokens && !HasFailure(); ++length) {
      service.demote(Tier::device);
      // Something else takes slots first, of another size each time: the blocks land elsewhere.
      (void)holder.run({other.begin() + 1, other.begin() + 2 + length % 90}, 2);
      const std::uint64_t hit = hit_by_formula(length, block, kPromptTokens);
      expect_warm(runner.run(story.prefix(length), 1), length, hit, Tier::host);
      const auto& slots = runner.session.admissions.back().slots;
      for (std::size_t i = 0; i < hit / block; ++i) moved += slots[i] == first_slots[i] ? 0 : 1;
    }
    EXPECT_GT(moved, kPromptTokens / block);
  }
}

TEST(Reuse, AfterATripToTheDiskAndARestartTheBitsAreTheSame) {
  const ColdStory& story = ColdStory::get();
  for (const std::uint32_t block : kBlockTokens) {
    SCOPED_TRACE(::testing::Message() << "block_tokens " << block);
    InProcessService service(service_options(block, 512));
    {
      Runner runner(service, {.block_tokens = block});
      (void)runner.run(story.prefix(kPromptTokens), 1);
    }
    EXPECT_EQ(service.flush().durable_blocks, kPromptTokens / block);
    for (std::uint32_t length = 1; length <= kPromptTokens && !HasFailure(); ++length) {
      service.restart();
      Runner runner(service, {.block_tokens = block});
      expect_warm(runner.run(story.prefix(length), 1), length,
                  hit_by_formula(length, block, kPromptTokens), Tier::disk);
    }
  }
}

TEST(Reuse, AllTierTripsInOneLifeEndWhereTheyBeganWithTheSameBits) {
  const ColdStory& story = ColdStory::get();
  InProcessService service(service_options(16, 64));
  Runner runner(service, {});
  (void)runner.run(story.prefix(kPromptTokens), 1);
  (void)service.flush();
  service.demote(Tier::device);
  service.demote(Tier::host);
  EXPECT_EQ(service.status().tiers[tier_index(Tier::device)].cached, 0U);
  EXPECT_EQ(service.status().tiers[tier_index(Tier::host)].cached, 0U);
  expect_warm(runner.run(story.prefix(kPromptTokens), 1), kPromptTokens, 192, Tier::disk);
  expect_warm(runner.run(story.prefix(kPromptTokens), 1), kPromptTokens, 192, Tier::device);
}

TEST(Reuse, InABatchOfThreeSequencesEveryOneKeepsItsBits) {
  const ColdStory& story = ColdStory::get();
  const auto other = Stories::get().story(3);
  for (const std::uint32_t block : kBlockTokens) {
    SCOPED_TRACE(::testing::Message() << "block_tokens " << block);
    InProcessService service(service_options(block, 1024));
    Runner publisher(service, {.block_tokens = block});
    (void)publisher.run(story.prefix(kPromptTokens), 1);
    Runner runner(service, {.block_tokens = block, .chunk_tokens = 16});
    runner.session.drop_publish = true;
    for (std::uint32_t length = 1; length <= kPromptTokens && !HasFailure(); ++length) {
      const std::uint32_t mirrored = kPromptTokens + 1 - length;
      const auto add = [&](std::vector<Token> prompt) {
        need(runner.generator->add({.prompt = std::move(prompt),
                                    .max_tokens = kKeptPositions,
                                    .keep_logits = runner::KeepLogits::all}));
      };
      add({other.begin(), other.begin() + 1 + length % 40});
      add(story.prefix(length));
      add(story.prefix(mirrored));
      const auto results = need(runner.generator->run());
      expect_warm(results[1], length, hit_by_formula(length, block, kPromptTokens), Tier::device);
      expect_warm(results[2], mirrored, hit_by_formula(mirrored, block, kPromptTokens),
                  Tier::device);
    }
  }
}

TEST(Reuse, ADamagedDiskCopyIsACountedMissAndIsComputedAgain) {
  const ColdStory& story = ColdStory::get();
  InProcessService service(service_options(16, 64));
  {
    Runner runner(service, {});
    (void)runner.run(story.prefix(kPromptTokens), 1);
  }
  (void)service.flush();
  service.memory_disk().damage_all();
  service.restart();
  Runner runner(service, {});
  expect_warm(runner.run(story.prefix(kPromptTokens), kKeptPositions), kPromptTokens, 0,
              Tier::disk);
  EXPECT_GT(service.status().counters.corrupt_blocks[tier_index(Tier::disk)], 0U);
}

}  // namespace
}  // namespace kv::test
