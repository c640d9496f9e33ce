// The caches of cachesim beside their definitions, on small random traces, and what must hold
// between them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tools/cachesim/block_lists.h"
#include "tools/cachesim/compute_cost.h"
#include "tools/cachesim/core_cache.h"
#include "tools/cachesim/flat_oracles.h"
#include "tools/cachesim/hits.h"
#include "tools/cachesim/leaf_oracle.h"
#include "tools/cachesim/min_bypass.h"
#include "tools/cachesim/reuse.h"
#include "tools/cachesim/trace_builder.h"

namespace kv::cachesim {
namespace {

using Prompt = std::vector<std::uint32_t>;

// Prompts that branch off each other; an identity stands for a path.
Trace random_trace(std::uint64_t seed) {
  Prng prng(seed);
  TraceBuilder builder;
  builder.trace().block_tokens = 16;
  std::vector<std::vector<std::uint64_t>> prompts;
  std::uint64_t next_identity = 1;
  const std::uint64_t requests = 5 + prng.below(60);
  for (std::uint64_t r = 0; r < requests; ++r) {
    std::vector<std::uint64_t> prompt;
    if (!prompts.empty() && prng.chance(4, 5)) {
      prompt = prompts[prng.below(prompts.size())];
      prompt.resize(prng.below(prompt.size() + 1));
    }
    for (std::uint64_t more = prng.below(4); more > 0; --more) prompt.push_back(next_identity++);
    if (prompt.empty()) prompt.push_back(next_identity++);
    prompts.push_back(prompt);
    TraceRequest request;
    request.input_tokens = static_cast<std::uint32_t>(16 * prompt.size());
    EXPECT_TRUE(builder.add(request, prompt));
  }
  return std::move(builder.trace());
}

std::vector<Prompt> prompts_of(const Trace& trace) {
  std::vector<Prompt> prompts;
  for (const TraceRequest& request : trace.requests) {
    prompts.emplace_back();
    trace.expand(request, prompts.back());
  }
  return prompts;
}

std::size_t hit_length(const Prompt& prompt, const std::set<std::uint32_t>& cached) {
  std::size_t hits = 0;
  while (hits < prompt.size() && cached.contains(prompt[hits])) ++hits;
  return hits;
}

// After each request the blocks that are smallest by (next request, depth) stay, of those that are
// used again.
std::uint64_t optimum(const Trace& trace, std::uint32_t capacity) {
  const std::vector<Prompt> prompts = prompts_of(trace);
  std::set<std::uint32_t> cached;
  std::uint64_t hits = 0;
  for (std::size_t r = 0; r < prompts.size(); ++r) {
    hits += hit_length(prompts[r], cached);
    cached.insert(prompts[r].begin(), prompts[r].end());
    std::vector<std::tuple<std::size_t, std::uint32_t, std::uint32_t>> order;
    for (const std::uint32_t block : cached) {
      for (std::size_t next = r + 1; next < prompts.size(); ++next) {
        if (std::ranges::find(prompts[next], block) == prompts[next].end()) continue;
        order.emplace_back(next, trace.depths[block], block);
        break;
      }
    }
    std::ranges::sort(order);
    cached.clear();
    for (std::size_t i = 0; i < order.size() && i < capacity; ++i) {
      cached.insert(std::get<2>(order[i]));
    }
  }
  return hits;
}

// A leaf that the request does not use, smallest key first, then deeper, then by block. `cost`: of
// a block at a depth, for gdsf; whole numbers are exact.
template <class Number, class Cost>
std::uint64_t of_leaves(const Trace& trace, std::uint32_t capacity, LeafRule rule, Cost cost) {
  struct Facts {
    double brought = 0, last = 0, uses = 0;
    Number priority = 0;
  };
  std::map<std::uint32_t, Facts> all;
  std::set<std::uint32_t> cached;
  Number age = 0;
  const auto key = [&](std::uint32_t block) {
    const Facts& facts = all[block];
    const double depth = trace.depths[block];
    const std::map<LeafRule, std::pair<Number, double>> keys = {
        {LeafRule::lru, {facts.last, 0}},
        {LeafRule::fifo, {facts.brought, 0}},
        {LeafRule::lfu, {facts.uses, facts.last}},
        {LeafRule::lfu_persistent, {facts.uses, facts.last}},
        {LeafRule::lfu_da, {facts.priority, facts.last}},
        {LeafRule::gdsf_flop, {facts.priority, facts.last}},
        {LeafRule::deepest_first, {-depth, facts.last}}};
    return std::tuple(keys.at(rule), -depth, block);
  };
  std::uint64_t hits = 0;
  double now = 0;
  for (const Prompt& prompt : prompts_of(trace)) {
    ++now;
    hits += hit_length(prompt, cached);
    for (const std::uint32_t block : prompt) {
      if (!cached.contains(block)) {
        if (cached.size() == capacity) {
          std::vector<std::uint32_t> leaves;
          for (const std::uint32_t leaf : cached) {
            const bool parent = std::ranges::any_of(
                cached, [&](std::uint32_t other) { return trace.parents[other] == leaf; });
            if (!parent && std::ranges::find(prompt, leaf) == prompt.end()) leaves.push_back(leaf);
          }
          if (leaves.empty()) break;
          const std::uint32_t gone = *std::ranges::min_element(leaves, {}, key);
          age = std::max(age, all[gone].priority);
          cached.erase(gone);
        }
        if (rule != LeafRule::lfu_persistent) all[block].uses = 0;
        all[block].brought = now;
        cached.insert(block);
      }
      Facts& facts = all[block];
      ++facts.uses;
      facts.last = now;
      facts.priority = age + static_cast<Number>(facts.uses) * cost(trace.depths[block]);
    }
  }
  return hits;
}

constexpr std::uint64_t kSeeds = 60;

double one(std::uint32_t /*depth*/) { return 1; }

// Of blocks of 16 tokens, as the reference computes it.
double llama(std::uint32_t depth) {
  const double in_front = 16.0 * depth + 8;
  return (static_cast<double>(kLinearFlops) + static_cast<double>(kAttentionFlops) * in_front) /
         static_cast<double>(kLinearFlops);
}

// The same in the service's whole numbers.
long double whole_llama(std::uint32_t depth) {
  const RecomputeCost cost = recompute_cost(16);
  return static_cast<long double>(cost.block) + static_cast<long double>(cost.depth) * depth;
}

TEST(Optimum, EqualsItsDefinitionOnSmallTraces) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Trace trace = random_trace(seed);
    for (const std::uint32_t capacity : {1U, 2U, 3U, 5U, 8U, 13U}) {
      SCOPED_TRACE(std::to_string(seed) + " " + std::to_string(capacity));
      ASSERT_EQ(count_hits(trace, "min_bypass", capacity).block_hits, optimum(trace, capacity));
    }
  }
}

TEST(LeafOracles, EqualTheirDefinitionsOnSmallTraces) {
  const std::map<std::string, LeafRule> rules = {{"lru_leaf", LeafRule::lru},
                                                 {"fifo_leaf", LeafRule::fifo},
                                                 {"lfu_leaf", LeafRule::lfu},
                                                 {"lfu_persistent_leaf", LeafRule::lfu_persistent},
                                                 {"lfu_da_leaf", LeafRule::lfu_da},
                                                 {"gdsf_flop_leaf", LeafRule::gdsf_flop},
                                                 {"deepest_first_leaf", LeafRule::deepest_first}};
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Trace trace = random_trace(seed);
    for (const auto& [name, rule] : rules) {
      for (const std::uint32_t capacity : {1U, 3U, 8U}) {
        SCOPED_TRACE(name + " " + std::to_string(seed) + " " + std::to_string(capacity));
        ASSERT_EQ(
            count_hits(trace, name, capacity).block_hits,
            of_leaves<double>(trace, capacity, rule, rule == LeafRule::gdsf_flop ? llama : one));
      }
    }
  }
}

TEST(Policies, OfTheServiceEqualTheirOracles) {
  for (std::uint64_t seed = 1; seed <= 3 * kSeeds; ++seed) {
    const Trace trace = random_trace(seed);
    for (const std::uint32_t capacity : {1U, 2U, 4U, 9U, 20U}) {
      SCOPED_TRACE(std::to_string(seed) + " " + std::to_string(capacity));
      const std::uint64_t lru = count_hits(trace, "lru", capacity).block_hits;
      ASSERT_EQ(lru, count_hits(trace, "lru_leaf", capacity).block_hits);
      ASSERT_EQ(lru, count_hits(trace, "lru_flat", capacity).block_hits);
      ASSERT_EQ(lru, ReuseDistances(trace).block_hits(capacity));
      ASSERT_EQ(count_hits(trace, "lfu-da", capacity).block_hits,
                of_leaves<double>(trace, capacity, LeafRule::lfu_da, one));
      ASSERT_EQ(count_hits(trace, "gdsf", capacity).block_hits,
                of_leaves<long double>(trace, capacity, LeafRule::gdsf_flop, whole_llama));
    }
  }
}

TEST(Policies, NeverBeatTheOptimumAndReachTheCeilingWhereAllFits) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Trace trace = random_trace(seed);
    const std::uint64_t ceiling = ceiling_of(trace).block_hits;
    for (const PolicyEntry& policy : known_policies()) {
      SCOPED_TRACE(std::string(policy.name) + " " + std::to_string(seed));
      for (const std::uint32_t capacity : {2U, 6U}) {
        ASSERT_LE(count_hits(trace, policy.name, capacity).block_hits,
                  count_hits(trace, "min_bypass", capacity).block_hits);
      }
      // S3-FIFO and the like split the room: twice the blocks is enough for each of them.
      ASSERT_EQ(count_hits(trace, policy.name, 2 * trace.unique_blocks()).block_hits, ceiling);
    }
  }
}

TEST(Policies, OfStacksHaveMoreHitsWithMoreRoom) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Trace trace = random_trace(seed);
    for (const char* policy : {"lru", "min_bypass"}) {
      std::uint64_t before = 0;
      for (std::uint32_t capacity = 1; capacity < 30; ++capacity) {
        const std::uint64_t hits = count_hits(trace, policy, capacity).block_hits;
        ASSERT_GE(hits, before) << policy << " " << seed << " " << capacity;
        before = hits;
      }
    }
  }
}

TEST(Policies, KeepTheFirstBlocksOfARequestThatDoesNotFit) {
  TraceBuilder builder;
  builder.trace().block_tokens = 16;
  const std::vector<std::uint64_t> prompt = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(builder.add({}, prompt));
  ASSERT_TRUE(builder.add({}, prompt));
  for (const char* policy : {"lru", "arc", "s3fifo", "gdsf", "lfu-da", "min_bypass", "lru_leaf"}) {
    EXPECT_EQ(count_hits(builder.trace(), policy, 4).block_hits, 4U) << policy;
  }
}

TEST(Hits, CountTokensOfAPartialLastBlockOnce) {
  TraceBuilder builder;
  builder.trace().block_tokens = 512;
  const std::vector<std::uint64_t> prompt = {1, 2};
  TraceRequest request;
  request.input_tokens = 600;
  ASSERT_TRUE(builder.add(request, prompt));
  ASSERT_TRUE(builder.add(request, prompt));
  const HitCounts counts = count_hits(builder.trace(), "lru", 10);
  EXPECT_EQ(counts.block_hits, 2U);
  EXPECT_EQ(counts.token_hits, 600U);
  EXPECT_EQ(counts.tokens, 1200U);
  EXPECT_DOUBLE_EQ(counts.compute_saved, 0.5);
}

TEST(ReuseDistances, TellTheSmallestCacheThatHits) {
  TraceBuilder builder;
  builder.trace().block_tokens = 1;
  const std::vector<std::uint64_t> first = {1, 2, 3};
  const std::vector<std::uint64_t> other = {9};
  ASSERT_TRUE(builder.add({}, first));
  ASSERT_TRUE(builder.add({}, other));
  ASSERT_TRUE(builder.add({}, first));  // 9 lies above 1, 2, 3: distances 2, 3, 4
  const ReuseDistances reuse(builder.trace());
  EXPECT_EQ(reuse.reused(), 3U);
  EXPECT_EQ(reuse.block_hits(1), 0U);
  EXPECT_EQ(reuse.block_hits(2), 1U);
  EXPECT_EQ(reuse.block_hits(3), 2U);
  EXPECT_EQ(reuse.block_hits(4), 3U);
  EXPECT_EQ(reuse.distance_at(0.5), 3U);
  EXPECT_EQ(reuse.distance_at(1), 4U);
}

TEST(ComputeCost, OfABlockIsThatOfItsTokensInItsMiddle) {
  for (const std::uint32_t tokens : {1U, 64U, 512U}) {
    const RecomputeCost cost = recompute_cost(tokens);
    for (const std::uint32_t depth : {0U, 1U, 100U}) {
      const double flops = prefill_flops(std::uint64_t{depth + 1} * tokens) -
                           prefill_flops(std::uint64_t{depth} * tokens);
      const double half_a_token = 0.5 * static_cast<double>(kAttentionFlops) * tokens;
      EXPECT_NEAR((cost.block + static_cast<double>(cost.depth) * depth) * 256 * tokens,
                  flops + half_a_token, 1e-12 * prefill_flops(std::uint64_t{depth + 1} * tokens));
    }
  }
}

}  // namespace
}  // namespace kv::cachesim
