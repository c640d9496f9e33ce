// The programs that the fuzzer makes of bytes reach deep enough to be worth running, and keep all
// promises for many seeds in every build.
#include "tests/fuzz/engine_program.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "cachesvc/core/prefix_cache.h"

namespace kv::testing {
namespace {

std::vector<std::uint8_t> random_bytes(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(prng.below(256));
  return bytes;
}

TEST(EngineProgram, KeepsItsPromisesForThreeHundredSeeds) {
  EngineProgram::Counts total;
  core::Counters counters;
  std::uint32_t two_groups = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<std::uint8_t> bytes = random_bytes(seed, 4'000);
    EngineProgram program(bytes);
    program.run();
    total.requests += program.counts().requests;
    total.refused_frames += program.counts().refused_frames;
    total.replies += program.counts().replies;
    total.ok_replies += program.counts().ok_replies;
    total.transfers += program.counts().transfers;
    total.repeated_reports += program.counts().repeated_reports;
    total.pauses += program.counts().pauses;
    total.disk_offs += program.counts().disk_offs;
    two_groups += program.engine().cache()->layout().groups.size() == 2 ? 1 : 0;
    const core::Counters& got = program.engine().status().counters;
    counters.admissions += got.admissions;
    counters.published_blocks += got.published_blocks;
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      counters.hit_tokens[tier] += got.hit_tokens[tier];
      counters.evicted_blocks[tier] += got.evicted_blocks[tier];
      counters.corrupt_blocks[tier] += got.corrupt_blocks[tier];
    }
    counters.rewritten_blocks += got.rewritten_blocks;
    counters.expired_clients += got.expired_clients;
    counters.cleared_blocks += got.cleared_blocks;
    counters.uncacheable_blocks += got.uncacheable_blocks;
  }
  // Every part was reached.
  EXPECT_GT(total.requests, 10'000U);
  EXPECT_GT(total.refused_frames, 1'000U);
  EXPECT_GT(total.ok_replies, 1'000U);
  EXPECT_GT(total.replies, total.ok_replies);
  EXPECT_GT(total.transfers, 300U);
  EXPECT_GT(total.repeated_reports, 100U);
  EXPECT_GT(total.pauses, 100U);
  EXPECT_GT(total.disk_offs, 10U);
  EXPECT_GT(two_groups, 30U);
  EXPECT_GT(counters.admissions, 100U);
  EXPECT_GT(counters.published_blocks, 100U);
  EXPECT_GT(counters.hit_tokens[tier_index(Tier::device)], 0U);
  EXPECT_GT(counters.hit_tokens[tier_index(Tier::host)], 0U);
  EXPECT_GT(counters.hit_tokens[tier_index(Tier::disk)], 0U);
  EXPECT_GT(counters.rewritten_blocks, 0U);
  EXPECT_GT(counters.corrupt_blocks[tier_index(Tier::host)], 0U);
  EXPECT_GT(counters.expired_clients, 10U);
  EXPECT_GT(counters.cleared_blocks, 10U);
  EXPECT_GT(counters.uncacheable_blocks, 0U);
}

// Inputs that a fuzzer kept, each for something that no other reaches.
TEST(EngineProgram, KeepsItsPromisesForTheCorpus) {
  std::size_t count = 0;
  const std::string folder = std::string(KV_SOURCE_DIR) + "/tests/fuzz/corpus/engine_dispatch";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    EngineProgram program(bytes);
    program.run();
    ++count;
  }
  EXPECT_GT(count, 100U);
}

}  // namespace
}  // namespace kv::testing
