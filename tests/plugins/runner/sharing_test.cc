// Several runners and many requests on one pool: equal blocks exist once, and no mix of eviction,
// sharing and waiting changes a bit of anyone's result.
#include <map>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tests/plugins/runner/reuse.h"

namespace kv::test {
namespace {

using runner::Generated;
using testing::InProcessService;

TEST(Sharing, TwoRunnersThatComputedTheSamePrefixAtOnceHoldItsBlocksOnce) {
  const auto tokens = Stories::get().story(0);
  const std::vector<Token> prompt(tokens.begin(), tokens.begin() + 96);
  const Generated cold = cold_run(prompt, 20);
  InProcessService service(service_options(16, 64));
  Runner first(service, {.chunk_tokens = 96});
  Runner second(service, {.chunk_tokens = 96});
  for (Runner* runner : {&first, &second}) {
    need(runner->generator->add(
        {.prompt = prompt, .max_tokens = 20, .keep_logits = runner::KeepLogits::all}));
  }
  // The second one is admitted and computes while the first one has not yet told what it computed.
  first.session.before_next_step = [&] { need(second.generator->step()); };
  need(first.generator->step());
  EXPECT_EQ(first.session.admissions.front().account.hits(), 0U);
  EXPECT_EQ(second.session.admissions.front().account.hits(), 0U);
  EXPECT_EQ(service.status().counters.rewritten_blocks, 6U);
  // With the next step the rewritten table is in use, and the double blocks are free again.
  need(first.generator->step());
  need(second.generator->step());
  const auto device = service.status().tiers[tier_index(Tier::device)];
  EXPECT_EQ(device.cached, 6U);
  EXPECT_EQ(device.held, 2U + 2U);  // each runner's own two blocks for the continuation
  const auto first_result = need(first.generator->run()).front();
  const auto second_result = need(second.generator->run()).front();
  for (const Generated* result : {&first_result, &second_result}) {
    EXPECT_EQ(result->tokens, cold.tokens);
    EXPECT_TRUE(same_bits(result->logits, cold.logits));
    EXPECT_EQ(result->computed_tokens, 96U);
    EXPECT_EQ(result->account.computed_tokens, 96U);
  }
  // 96 prompt positions and 19 generated ones hold KV: seven full blocks, once.
  EXPECT_EQ(service.status().tree_blocks, 7U);
  EXPECT_EQ(service.status().tiers[tier_index(Tier::device)].cached, 7U);
  EXPECT_EQ(service.status().tiers[tier_index(Tier::device)].held, 0U);
}

TEST(Sharing, AConversationHitsItsOwnGeneratedTokens) {
  const auto tokens = Stories::get().story(0);
  InProcessService service(service_options(16, 64));
  Runner runner(service, {});
  const Generated turn = runner.run({tokens.begin(), tokens.begin() + 30}, 50);
  std::vector<Token> next(tokens.begin(), tokens.begin() + 30);
  next.insert(next.end(), turn.tokens.begin(), turn.tokens.end());
  next.insert(next.end(), {291, 400, 428});
  const Generated warm = runner.run(next, 5);
  const Generated cold = cold_run(next, 5);
  // 30 + 50 - 1 positions held KV: four full blocks.
  EXPECT_EQ(warm.account.hits(), 64U);
  EXPECT_TRUE(same_bits(warm.logits, cold.logits));
}

TEST(Sharing, SkippingTheReadComputesEverythingAndGivesTheSameBits) {
  const ColdStory& story = ColdStory::get();
  InProcessService service(service_options(16, 64));
  Runner runner(service, {});
  (void)runner.run(story.prefix(100), 1);
  need(runner.generator->add({.prompt = story.prefix(100),
                              .max_tokens = kKeptPositions,
                              .keep_logits = runner::KeepLogits::all,
                              .skip_read = true}));
  expect_warm(need(runner.generator->run()).front(), 100, 0, Tier::device);
  EXPECT_EQ(service.status().tiers[tier_index(Tier::device)].cached, 6U);
}

// Small pools, so that blocks are evicted, demoted, loaded back and waited for all the time.
TEST(Sharing, UnderMemoryPressureEveryResultHasTheBitsOfItsColdRun) {
  struct Asked {
    std::size_t story;
    std::uint32_t length;
    auto operator<=>(const Asked&) const = default;
  };
  std::map<Asked, Generated> cold;
  for (const std::uint32_t block : {4U, 16U}) {
    SCOPED_TRACE(::testing::Message() << "block_tokens " << block);
    const std::uint64_t blocks = 300 / block;
    InProcessService service(service_options(block, blocks, blocks / 2, 4 * blocks));
    Runner left(service, {.block_tokens = block, .chunk_tokens = 24, .running_max = 2});
    Runner right(service, {.block_tokens = block, .chunk_tokens = 24, .running_max = 2});
    Prng prng(block);
    std::uint64_t hits = 0;
    for (int round = 0; round < 25; ++round) {
      std::map<Runner*, std::vector<Asked>> asked;
      for (Runner* runner : {&left, &right}) {
        for (int i = 0; i < 2; ++i) {
          const Asked ask{prng.below(5), static_cast<std::uint32_t>(20 + 10 * prng.below(13))};
          auto prompt = Stories::get().story(ask.story);
          prompt.resize(ask.length);
          if (!cold.contains(ask)) cold[ask] = cold_run(prompt, 6);
          asked[runner].push_back(ask);
          need(runner->generator->add(
              {.prompt = prompt, .max_tokens = 6, .keep_logits = runner::KeepLogits::all}));
        }
      }
      for (bool more = true; more;) {
        const bool left_runs = need(left.generator->step());
        const bool right_runs = need(right.generator->step());
        more = left_runs || right_runs;
      }
      for (Runner* runner : {&left, &right}) {
        auto results = runner->generator->take_results();
        std::ranges::sort(results, {}, &Generated::request);
        ASSERT_EQ(results.size(), 2U);
        for (std::size_t i = 0; i < 2; ++i) {
          ASSERT_EQ(results[i].error.code, ErrorCode::ok) << results[i].error.reason;
          const Generated& want = cold[asked[runner][i]];
          EXPECT_EQ(results[i].tokens, want.tokens);
          EXPECT_TRUE(same_bits(results[i].logits, want.logits));
          EXPECT_EQ(results[i].computed_tokens, results[i].account.computed_tokens);
          hits += results[i].account.hits();
        }
      }
    }
    EXPECT_GT(hits, 0U);
    const auto counters = service.status().counters;
    EXPECT_GT(counters.evicted_blocks[tier_index(Tier::device)], 0U);
    EXPECT_GT(counters.exhausted, 0U);  // some had to wait
    EXPECT_GT(
        counters.hit_tokens[tier_index(Tier::host)] + counters.hit_tokens[tier_index(Tier::disk)],
        0U);
    EXPECT_EQ(service.status().tiers[tier_index(Tier::device)].held, 0U);
  }
}

}  // namespace
}  // namespace kv::test
