// Clear at scale: however much is cleared, no step does more than its share and nothing recurses.
// KV_CLEAR_BLOCKS: how many blocks (default: 100,000; a million in a few seconds of Release).
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "cachesvc/core/engine.h"
#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

std::uint32_t block_count() {
  const char* text = std::getenv("KV_CLEAR_BLOCKS");
  return text == nullptr ? 100'000U : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

// An Engine alone: the driver's checks after each step would take the square of the time. One token
// a block, one runner, one administrator.
class LargeCache {
 public:
  explicit LargeCache(std::uint32_t blocks, std::uint32_t host = 0)
      : engine_(options_with_slots(blocks, host, 0, 1)) {
    step(ClientAttached{kRunner, ClientRole::runner, "tenant", 1});
    step(ClientAttached{kAdmin, ClientRole::admin, "tenant", 2});
    const KvLayout layout = one_group_layout(1);
    send(kRunner, AttachPool{.header = {}, .layout = &layout});
  }
  template <class Request>
  void send(ClientId client, Request request) {
    request.header = {client, RequestId(++requests_[client.value]), 0};
    step(request);
    while (actions_.continue_wanted) step(Continue{});
  }
  template <class Request>
  void send_only(ClientId client, Request request) {
    request.header = {client, RequestId(++requests_[client.value]), 0};
    step(request);
  }
  // Published and freed again.
  void cache_prompt(SequenceId sequence, std::span<const Token> tokens) {
    const NamespaceFields fields;
    const auto count = static_cast<std::uint32_t>(tokens.size());
    for (std::size_t at = 0; at < tokens.size(); at += kTokensPerMessageMax) {
      const auto part =
          tokens.subspan(at, std::min<std::size_t>(kTokensPerMessageMax, tokens.size() - at));
      send(kRunner, Open{{}, sequence, at == 0, at == 0 ? &fields : nullptr, part, false, true});
    }
    send(kRunner, Admit{{}, sequence, 0});
    const StepScript script = StepScript().publish(sequence, count).free(sequence);
    ++step_seq_;
    send(kRunner, script.at(step_seq_, step_seq_));
  }
  void step(const InputView& input) {
    const StatusReply before = engine_.status();
    actions_.clear();
    engine_.step(TimePoint{}, input, actions_);
    for (Reply& reply : actions_.replies) last_reply_ = std::move(reply);
    const StatusReply after = engine_.status();
    removed_max_ = std::max(removed_max_,
                            before.tree_blocks - std::min(before.tree_blocks, after.tree_blocks));
    for (std::size_t t = 0; t < kTierCount; ++t) {
      const std::uint32_t freed =
          after.tiers[t].free - std::min(after.tiers[t].free, before.tiers[t].free);
      freed_max_ = std::max(freed_max_, freed);
    }
    ++steps_;
  }
  void go_on() {
    while (actions_.continue_wanted) step(Continue{});
  }

  static constexpr ClientId kRunner{1}, kAdmin{2};
  Engine engine_;
  Actions actions_;
  Reply last_reply_;
  std::uint32_t removed_max_ = 0, freed_max_ = 0;  // by one step
  std::uint64_t steps_ = 0;

 private:
  std::uint64_t requests_[3] = {};
  std::uint64_t step_seq_ = 0;
};

void clear_and_check(LargeCache& cache, std::uint32_t blocks) {
  ASSERT_EQ(cache.engine_.status().tree_blocks, blocks);
  cache.steps_ = cache.removed_max_ = cache.freed_max_ = 0;
  cache.send_only(LargeCache::kAdmin, Clear{});
  // Detached already, however much there is; almost all of it is still to be given up.
  EXPECT_EQ(cache.engine_.status().namespaces, 0U);
  EXPECT_GE(cache.engine_.status().retired_blocks, blocks - kStepBlocksMax);
  cache.go_on();
  EXPECT_EQ(cache.engine_.status().tree_blocks, 0U);
  EXPECT_EQ(cache.engine_.status().tiers[0].free, cache.engine_.status().tiers[0].slots);
  EXPECT_LE(cache.removed_max_, kStepBlocksMax);
  EXPECT_LE(cache.freed_max_, kStepBlocksMax);
  EXPECT_GE(cache.steps_, blocks / kStepBlocksMax);
  EXPECT_LE(cache.steps_, 6 * (blocks / kStepBlocksMax + 1));
  EXPECT_EQ(std::get<ClearReply>(cache.last_reply_.body).cleared_blocks, blocks);
}

TEST(ClearAtScale, OfOneLongChainIsBounded) {
  const std::uint32_t blocks = block_count();
  LargeCache cache(blocks);
  cache.cache_prompt(SequenceId(1), numbered_tokens(1, blocks));
  clear_and_check(cache, blocks);
}

TEST(ClearAtScale, OfManyShortPromptsIsBounded) {
  const std::uint32_t prompts = block_count() / 20;
  LargeCache cache(prompts * 2);
  for (std::uint32_t i = 0; i < prompts; ++i) {
    cache.cache_prompt(SequenceId(i + 1), std::vector<Token>{i, i});
  }
  clear_and_check(cache, prompts * 2);
}

// A comb: each block of a chain has a branch, so that every node has one block and the tree is as
// deep as it can be.
TEST(ClearAtScale, OfADeepTreeOfOneBlockNodesIsBounded) {
  constexpr std::uint32_t kDepth = 1'500;
  LargeCache cache(3 * kDepth);
  std::vector<Token> tokens;
  for (std::uint32_t i = 0; i < kDepth; ++i) {
    tokens.push_back(7);
    tokens.push_back(100 + i);
    cache.cache_prompt(SequenceId(i + 1), tokens);
    tokens.back() = 7;
    tokens.pop_back();
  }
  const StatusReply status = cache.engine_.status();
  EXPECT_GE(status.tree_nodes, 2 * kDepth - 2);
  clear_and_check(cache, status.tree_blocks);
}

// What would be evicted otherwise stays as long as cleared blocks are there to be taken.
TEST(ClearAtScale, AllocationTakesClearedBlocksFirst) {
  const std::uint32_t blocks = block_count() / 2;
  LargeCache cache(blocks);
  const std::vector<Token> kept = numbered_tokens(900'000'000, 1'000);
  cache.cache_prompt(SequenceId(1), numbered_tokens(1, blocks - 1'000));
  cache.send_only(LargeCache::kAdmin, Clear{});
  ASSERT_GT(cache.engine_.status().retired_blocks, 10'000U);
  // The oldest of what is live; nothing is free but what a few steps gave back.
  cache.cache_prompt(SequenceId(2), kept);
  cache.cache_prompt(SequenceId(3), numbered_tokens(500'000'000, blocks - 2'000));
  EXPECT_EQ(cache.engine_.status().counters.evicted_blocks[0], 0U);
  EXPECT_EQ(cache.engine_.status().tree_blocks, blocks - 1'000);
}

}  // namespace
}  // namespace kv::core
