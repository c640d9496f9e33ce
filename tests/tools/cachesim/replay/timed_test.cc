// Replays with time: queues against their formula, what a hit in each tier costs, and what adds up.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tests/tools/cachesim/replay/made_trace.h"
#include "tools/cachesim/replay/replay.h"

namespace kv::cachesim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

std::int64_t ns(Duration time) { return time.count(); }

// ---------------------------------------------------------------- one request

TEST(ReplayTime, APromptTakesAStepAndEachFurtherTokenAnother) {
  TraceMaker maker;
  maker.add(5, 1'000, 4, {1, 2});
  const ReplayOutcome outcome = replay(maker.trace(), options_of(100));
  const RequestResult& result = outcome.results[0];
  EXPECT_EQ(result.arrival, TimePoint(milliseconds(5)));
  EXPECT_EQ(result.admitted, result.arrival);
  EXPECT_EQ(result.ready, result.arrival);
  EXPECT_EQ(ns(result.first_token - result.arrival), 1'000'000);
  EXPECT_EQ(ns(result.end - result.first_token), 3 * 1'000);  // one row each
  EXPECT_EQ(result.computed_tokens, 1'000U);
  EXPECT_EQ(outcome.steps, 4U);
}

TEST(ReplayTime, ALongPromptIsComputedInPiecesBesideTheOthersTokens) {
  TraceMaker maker;
  maker.add(0, 512, 4, {1}).add(0, 2'048, 1, range(10, 4));
  ReplayOptions options = options_of(100);
  options.step_tokens_max = 1'024;
  const ReplayOutcome outcome = replay(maker.trace(), options);
  // Both are there when the first step begins: 512 + 512 rows, 1 + 1023, 1 + 513, 1.
  EXPECT_EQ(ns(outcome.results[0].first_token.time_since_epoch()), 1'024'000);
  EXPECT_EQ(ns(outcome.results[0].end.time_since_epoch()), 2'563'000);
  EXPECT_EQ(ns(outcome.results[1].first_token.time_since_epoch()), 2'562'000);
}

TEST(ReplayTime, AFullyCachedPromptStillComputesItsLastToken) {
  TraceMaker maker;
  maker.add(0, 1'024, 1, {1, 2}).add(1'000, 1'024, 1, {1, 2}).add(2'000, 900, 1, {1, 2});
  const ReplayOutcome outcome = replay(maker.trace(), options_of(100));
  EXPECT_EQ(outcome.results[1].hit_blocks, 2U);
  EXPECT_EQ(outcome.results[1].hit_tokens[0], 1'023U);
  EXPECT_EQ(outcome.results[1].computed_tokens, 1U);
  EXPECT_EQ(ns(outcome.results[1].first_token - outcome.results[1].arrival), 1'000);
  EXPECT_EQ(outcome.results[2].hit_tokens[0], 899U);
}

// ---------------------------------------------------------------- tiers

// The second use of a prompt, after others took its place on the device.
RequestResult reused(const ReplayOptions& options) {
  TraceMaker maker;
  maker.add(0, 30 * kBlockTokens, 1, range(0, 30));
  maker.add(60'000, 39 * kBlockTokens, 1, range(100, 39));
  maker.add(120'000, 30 * kBlockTokens, 1, range(0, 30));
  return replay(maker.trace(), options).results[2];
}

TEST(ReplayTiers, AHostHitCostsItsBytesOnTheLink) {
  ReplayOptions options = options_of(40, 100);
  LinkOptions& load = options.links[static_cast<std::size_t>(LinkName::host_to_device)];
  load = {1'000'000'000, microseconds(30)};
  const RequestResult slow = reused(options);
  EXPECT_EQ(slow.hit_tokens[1], 30U * kBlockTokens - 1);
  EXPECT_EQ(slow.hit_tokens[0], 0U);
  EXPECT_EQ(slow.admitted, slow.arrival);
  EXPECT_EQ(ns(slow.ready - slow.arrival), 30'000 + 30'000'000);  // latency, 30 MB
  EXPECT_EQ(ns(slow.first_token - slow.ready), 1'000);
  load.bytes_per_second = 10'000'000'000;
  const RequestResult fast = reused(options);
  EXPECT_EQ(fast.hit_tokens, slow.hit_tokens);
  EXPECT_EQ(ns(fast.ready - fast.arrival), 30'000 + 3'000'000);
}

TEST(ReplayTiers, ADiskHitCostsItsBytesOnBothLinks) {
  // The host holds 29 blocks beside those that are kept for landing, of the second prompt.
  ReplayOptions options = options_of(40, 39, 200);
  options.links[static_cast<std::size_t>(LinkName::host_to_device)] = {10'000'000'000, {}};
  options.links[static_cast<std::size_t>(LinkName::disk_to_host)] = {1'000'000'000,
                                                                     microseconds(80)};
  const RequestResult result = reused(options);
  EXPECT_EQ(result.hit_tokens[2], 30U * kBlockTokens - 1);
  // What can land at one time is what is free on the host; the rest follows as that moves on.
  const std::int64_t bytes_only = 30'000'000 + 3'000'000;
  EXPECT_GE(ns(result.ready - result.arrival), bytes_only);
  EXPECT_LE(ns(result.ready - result.arrival), bytes_only + 800'000);
}

TEST(ReplayTiers, WithoutAHostTheSecondUseIsComputed) {
  const RequestResult result = reused(options_of(40));
  EXPECT_EQ(result.hit_blocks, 0U);
  EXPECT_EQ(result.computed_tokens, 30U * kBlockTokens);
  EXPECT_EQ(ns(result.first_token - result.arrival), 30 * kBlockTokens * 1'000);
}

TEST(ReplayTiers, TwoThatNeedTheSameBlocksWaitForOneLoad) {
  TraceMaker maker;
  maker.add(0, 30 * kBlockTokens, 1, range(0, 30));
  maker.add(60'000, 39 * kBlockTokens, 1, range(100, 39));
  maker.add(120'000, 30 * kBlockTokens, 1, range(0, 30));
  maker.add(120'010, 30 * kBlockTokens, 1, range(0, 30));
  ReplayOptions options = options_of(40, 100);
  options.links[static_cast<std::size_t>(LinkName::host_to_device)] = {1'000'000'000, {}};
  const ReplayOutcome outcome = replay(maker.trace(), options);
  EXPECT_EQ(outcome.links[static_cast<std::size_t>(LinkName::host_to_device)].bytes, 30'000'000U);
  EXPECT_EQ(outcome.results[2].hit_tokens[1], 30U * kBlockTokens - 1);
  EXPECT_EQ(outcome.results[3].hit_tokens[0], 30U * kBlockTokens - 1);
  EXPECT_EQ(outcome.results[3].admitted, outcome.results[2].ready);
}

// ---------------------------------------------------------------- room

TEST(ReplayRoom, WhoDoesNotFitWaitsForWhoRuns) {
  TraceMaker maker;
  maker.add(0, 30 * kBlockTokens, 1'000, range(0, 30));
  maker.add(1, 30 * kBlockTokens, 1, range(100, 30));
  maker.add(2, kBlockTokens, 1, {500});  // would fit, and waits for its turn
  const ReplayOutcome outcome = replay(maker.trace(), options_of(40));
  EXPECT_EQ(outcome.results[1].admitted, outcome.results[0].end);
  EXPECT_EQ(outcome.results[2].admitted, outcome.results[0].end);
}

TEST(ReplayRoom, WhatCanNeverFitIsRefusedAndTheOthersGoOn) {
  TraceMaker maker;
  maker.add(0, 40 * kBlockTokens, 1, range(0, 40));  // and one for its own token
  maker.add(0, kBlockTokens, 40 * kBlockTokens, {500});
  maker.add(0, 39 * kBlockTokens, 1, range(0, 39));
  const ReplayOutcome outcome = replay(maker.trace(), options_of(40));
  EXPECT_TRUE(outcome.results[0].refused);
  EXPECT_TRUE(outcome.results[1].refused);
  EXPECT_FALSE(outcome.results[2].refused);
  EXPECT_EQ(outcome.results[2].computed_tokens, 39U * kBlockTokens);
  EXPECT_EQ(outcome.tiers[0].used_blocks_max, 40U);
}

TEST(ReplayRoom, TiersLargerThanTheTraceCostNothing) {
  TraceMaker maker;
  for (std::uint64_t i = 0; i < 50; ++i) {
    maker.add(i, 8 * kBlockTokens, 2'000, range(i % 5 * 100, 8));
  }
  const ReplayOutcome small = replay(maker.trace(), options_of(2'000, 5'000, 5'000));
  const ReplayOutcome large = replay(maker.trace(), options_of(0x0FFFFFFF, 0x0FFFFFFF, 0x0FFFFFFF));
  EXPECT_EQ(large.end, small.end);
  EXPECT_EQ(large.counters, small.counters);
  EXPECT_EQ(large.tiers[2].capacity_blocks, 0x0FFFFFFFU);
}

TEST(ReplayRoom, NoMoreAreAdmittedThanMayRun) {
  TraceMaker maker;
  for (std::uint64_t i = 0; i < 5; ++i) maker.add(0, kBlockTokens, 100, {10 + i});
  ReplayOptions options = options_of(100);
  options.sequences_max = 2;
  const ReplayOutcome outcome = replay(maker.trace(), options);
  for (std::size_t i = 2; i < 5; ++i) {
    EXPECT_GE(outcome.results[i].admitted, outcome.results[i - 2].end);
  }
}

// ---------------------------------------------------------------- arrivals

TEST(ReplayArrivals, ATimeBeyondAllIsTheLatest) {
  TraceMaker maker;
  maker.add(~std::uint64_t{0} >> 1U, kBlockTokens, 1, {1});
  ReplayOptions options = options_of(100);
  options.speed_thousandths = 1;
  EXPECT_EQ(replay(maker.trace(), options).results[0].arrival.time_since_epoch().count(),
            std::int64_t{1} << 60);
}

TEST(ReplayArrivals, ComeAtTheirTimesOrFasterOrAsOthersFinish) {
  TraceMaker maker;
  for (std::uint64_t i = 0; i < 4; ++i) maker.add(1'000 * i, kBlockTokens, 1, {10 + i});
  ReplayOptions options = options_of(100);
  EXPECT_EQ(replay(maker.trace(), options).results[3].arrival, TimePoint(milliseconds(3'000)));
  options.speed_thousandths = 4'000;
  EXPECT_EQ(replay(maker.trace(), options).results[3].arrival, TimePoint(milliseconds(750)));
  options.in_flight = 2;
  const ReplayOutcome closed = replay(maker.trace(), options);
  EXPECT_EQ(closed.results[1].arrival, TimePoint{});
  EXPECT_EQ(closed.results[2].arrival, closed.results[0].end);
}

// ---------------------------------------------------------------- queues

// One sequence at a time, equal prompts, Poisson arrivals: M/D/1. Mean time in the queue =
// load / (2 (1 - load)) of the time of service (Kleinrock, Queueing Systems I, 5.6).
TEST(ReplayQueue, AgreesWithTheFormulaOfMD1) {
  constexpr int kRequests = 200'000;
  constexpr double kServiceMs = 10 * kBlockTokens / 1e3;  // 5.12
  for (const double load : {0.5, 0.8}) {
    SCOPED_TRACE(load);
    Prng prng(3);
    TraceMaker maker;
    double time = 0;
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      const double chance = (static_cast<double>(prng.next() >> 11U) + 0.5) / 9007199254740992.0;
      // In milliseconds at a thousandth of the speed: microseconds.
      time += -std::log(chance) * kServiceMs / load * 1'000;
      maker.add(static_cast<std::uint64_t>(std::llround(time)), 10 * kBlockTokens, 1, {i});
    }
    ReplayOptions options = options_of(20);
    options.sequences_max = 1;
    options.speed_thousandths = 1'000'000;
    const ReplayOutcome outcome = replay(maker.trace(), options);
    double waited = 0;
    for (const RequestResult& result : outcome.results) {
      waited += static_cast<double>(ns(result.admitted - result.arrival)) / 1e6;
      EXPECT_EQ(ns(result.first_token - result.admitted), 10 * kBlockTokens * 1'000);
    }
    const double came = kRequests * kServiceMs / (time / 1'000);  // the load as it came out
    const double expected = came / (2 * (1 - came)) * kServiceMs;
    EXPECT_NEAR(waited / kRequests / expected, 1, 0.02);
  }
}

// ---------------------------------------------------------------- all together

TEST(ReplayTime, TokensAddUpAndTheSameRunIsTheSame) {
  Prng prng(11);
  TraceMaker maker;
  std::uint64_t fresh = 1'000;
  std::vector<std::vector<std::uint64_t>> chats(6);
  std::uint64_t input = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    auto& chat = chats[prng.below(chats.size())];
    if (chat.size() > 20) chat.clear();
    for (std::uint64_t n = 1 + prng.below(4); n > 0; --n) chat.push_back(fresh++);
    const auto tokens = static_cast<std::uint32_t>(chat.size() * kBlockTokens - prng.below(500));
    maker.add(i * 3, tokens, static_cast<std::uint32_t>(1 + prng.below(700)), chat);
    input += tokens;
  }
  ReplayOptions options = options_of(60, 90, 300);
  options.sequences_max = 8;
  for (LinkOptions& link : options.links) link = {2'000'000'000, microseconds(20)};
  const ReplayOutcome first = replay(maker.trace(), options);
  const ReplayOutcome second = replay(maker.trace(), options);
  std::uint64_t seen = 0;
  std::array<std::uint64_t, kTiers> hits{};
  for (std::size_t i = 0; i < first.results.size(); ++i) {
    const RequestResult& result = first.results[i];
    EXPECT_LE(result.arrival, result.admitted);
    EXPECT_LE(result.admitted, result.ready);
    EXPECT_LT(result.ready, result.first_token);
    EXPECT_LE(result.first_token, result.end);
    for (std::size_t t = 0; t < kTiers; ++t) hits[t] += result.hit_tokens[t];
    seen += result.computed_tokens;
    EXPECT_EQ(result.end, second.results[i].end);
    EXPECT_EQ(result.hit_tokens, second.results[i].hit_tokens);
  }
  EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), seen), input);
  for (const std::uint64_t tier : hits) EXPECT_GT(tier, 0U);  // the case has hits of all tiers
  EXPECT_EQ(first.end, second.end);
  EXPECT_EQ(first.counters, second.counters);
  EXPECT_EQ(first.counters[0].transfers_started, first.counters[0].transfers_done);
}

}  // namespace
}  // namespace kv::cachesim
