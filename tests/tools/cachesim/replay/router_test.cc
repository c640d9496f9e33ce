// Several machines: who gets a request, and what that is worth.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tools/cachesim/replay/made_trace.h"
#include "tools/cachesim/replay/replay.h"

namespace kv::cachesim {
namespace {

// Five conversations, a turn of each every second.
TraceMaker conversations() {
  TraceMaker maker;
  std::vector<std::vector<std::uint64_t>> chats(5);
  std::uint64_t fresh = 100;
  for (std::uint64_t turn = 0; turn < 100; ++turn) {
    auto& chat = chats[turn % chats.size()];
    if (chat.size() == 10) chat.clear();
    chat.push_back(fresh++);
    chat.push_back(fresh++);
    const auto tokens = static_cast<std::uint32_t>(chat.size()) * kBlockTokens;
    maker.add(200 * turn, tokens, 1, chat);
  }
  return maker;
}

std::uint64_t hit_blocks(const ReplayOutcome& outcome) {
  return std::accumulate(
      outcome.results.begin(), outcome.results.end(), std::uint64_t{0},
      [](std::uint64_t sum, const RequestResult& result) { return sum + result.hit_blocks; });
}

TEST(ReplayRouter, PrefixKeepsAConversationWhereItsBlocksAre) {
  TraceMaker maker = conversations();
  ReplayOptions options = options_of(1'000);
  options.machines = 2;
  // Of each conversation of ten blocks in turns of two, 2 + 4 + 6 + 8 can be hits: 20 of them.
  EXPECT_EQ(hit_blocks(replay(maker.trace(), options)), 20U * 20U);
  options.router = RouterKind::random;
  const std::uint64_t random = hit_blocks(replay(maker.trace(), options));
  EXPECT_LT(random, 20U * 20U * 3 / 4);
  EXPECT_GT(random, 0U);
}

TEST(ReplayRouter, PrefixGoesElsewhereWhenTooMuchWaitsWhereTheBlocksAre) {
  TraceMaker maker;
  maker.add(0, 2 * kBlockTokens, 1, {1, 2});
  // Both machines are idle: to where the blocks are. Then that one has 38 blocks to compute.
  maker.add(100, 40 * kBlockTokens, 1, [] {
    auto blocks = range(3, 40);
    blocks[0] = 1;
    blocks[1] = 2;
    return blocks;
  }());
  maker.add(101, 3 * kBlockTokens, 1, {1, 2, 77});
  ReplayOptions options = options_of(200);
  options.machines = 2;
  options.sequences_max = 1;
  const ReplayOutcome outcome = replay(maker.trace(), options);
  EXPECT_EQ(outcome.results[1].hit_blocks, 2U);
  EXPECT_EQ(outcome.results[2].hit_blocks, 0U);
  EXPECT_EQ(outcome.results[2].admitted, outcome.results[2].arrival);
}

TEST(ReplayRouter, RandomIsOfTheSeed) {
  TraceMaker maker = conversations();
  ReplayOptions options = options_of(33);
  options.machines = 3;
  options.router = RouterKind::random;
  const auto ends = [&](std::uint64_t seed) {
    options.seed = seed;
    std::vector<TimePoint> found;
    for (const RequestResult& result : replay(maker.trace(), options).results) {
      found.push_back(result.end);
    }
    return found;
  };
  EXPECT_EQ(ends(1), ends(1));
  EXPECT_NE(ends(1), ends(2));
}

TEST(ReplayRouter, MachinesTogetherHaveTheirTiersAndAllRequests) {
  TraceMaker maker = conversations();
  ReplayOptions options = options_of(33, 40);
  options.machines = 4;
  options.router = RouterKind::random;
  const ReplayOutcome outcome = replay(maker.trace(), options);
  EXPECT_EQ(outcome.tiers[0].capacity_blocks, 4U * 33U);
  EXPECT_EQ(outcome.tiers[1].capacity_blocks, 4U * 40U);
  ASSERT_EQ(outcome.counters.size(), 4U);
  std::uint64_t admissions = 0;
  for (const core::Counters& counters : outcome.counters) {
    EXPECT_GT(counters.admissions, 0U);
    admissions += counters.admissions;
  }
  EXPECT_EQ(admissions, 100U);
}

}  // namespace
}  // namespace kv::cachesim
