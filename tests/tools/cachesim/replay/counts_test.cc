// In a world where nothing takes time, a replay through the Engine hits what `hits` counts, and
// what the reference numbers say (tests/data/traces/README.md).
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tools/cachesim/hits.h"
#include "tools/cachesim/read_trace.h"
#include "tools/cachesim/replay/replay.h"

namespace kv::cachesim {
namespace {

using nlohmann::json;

std::string data(const std::string& name) {
  return std::string(KV_SOURCE_DIR) + "/tests/data/traces/" + name;
}

struct Known {
  std::string name;  // in reference_hits.json
  std::string file;
  ReadOptions reading{};
};
Known conversation() { return {"mooncake-conversation", "conversation_trace.jsonl.gz"}; }
Known synthetic() { return {"mooncake-synthetic", "synthetic_trace.jsonl.gz"}; }
Known weka_first_100() {
  Known known{"weka-first100-stagger60", "weka_requests.jsonl.gz"};
  known.reading.sessions = 100;
  return known;
}

const Trace& trace_of(const Known& known) {
  static std::map<std::string, Trace> traces;
  const auto [entry, fresh] = traces.try_emplace(known.name);
  if (fresh) {
    EXPECT_TRUE(read_trace(data(known.file), known.reading, entry->second).has_value());
  }
  return entry->second;
}

const json& reference(const Known& known) {
  static const json all = json::parse(std::ifstream(data("reference_hits.json")));
  return all.at("traces").at(known.name).at("policies").at("lru");
}

std::uint64_t reference_hits(const Known& known, std::uint32_t capacity) {
  return reference(known).at(std::to_string(capacity)).get<std::uint64_t>();
}

bool all_sizes() { return std::getenv("KV_CACHESIM_FULL") != nullptr; }

// `wanted`, or with KV_CACHESIM_FULL all capacities of the reference.
std::vector<std::uint32_t> capacities(const Known& known, std::vector<std::uint32_t> wanted) {
  if (!all_sizes()) return wanted;
  wanted.clear();
  for (const auto& [text, hits] : reference(known).items()) {
    wanted.push_back(static_cast<std::uint32_t>(std::stoul(text)));
  }
  return wanted;
}

struct Counts {
  std::uint64_t blocks = 0;
  std::array<std::uint64_t, kTiers> tokens{};
  std::uint64_t all_tokens = 0, computed = 0, input = 0;
};
Counts count(const Trace& trace, const ReplayOptions& options) {
  const ReplayOutcome outcome = replay(trace, options);
  Counts counts;
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const RequestResult& result = outcome.results[i];
    counts.blocks += result.hit_blocks;
    for (std::size_t t = 0; t < kTiers; ++t) counts.tokens[t] += result.hit_tokens[t];
    counts.computed += result.computed_tokens;
    counts.input += trace.requests[i].input_tokens;
    EXPECT_FALSE(result.refused);
  }
  for (const std::uint64_t tokens : counts.tokens) counts.all_tokens += tokens;
  EXPECT_EQ(counts.all_tokens + counts.computed, counts.input);
  return counts;
}

ReplayOptions counts_only(std::uint32_t device, std::uint32_t host = 0, std::uint32_t disk = 0) {
  ReplayOptions options;
  options.counts_only = true;
  options.capacity_blocks = {device, host, disk};
  options.block_bytes = 1;
  return options;
}

void expect_counts_of_lru(const Known& known, std::uint32_t capacity) {
  SCOPED_TRACE(known.name + " " + std::to_string(capacity));
  const Trace& trace = trace_of(known);
  const Counts counts = count(trace, counts_only(capacity));
  EXPECT_EQ(counts.blocks, reference_hits(known, capacity));
  const HitCounts flat = count_hits(trace, "lru_flat", capacity);
  EXPECT_EQ(counts.blocks, flat.block_hits);
  EXPECT_EQ(counts.all_tokens, flat.token_hits);
}

TEST(ReplayCounts, OfOneTierAreThoseOfLruOnConversation) {
  for (const std::uint32_t capacity : capacities(conversation(), {182, 1'827, 18'279})) {
    expect_counts_of_lru(conversation(), capacity);
  }
}

TEST(ReplayCounts, OfOneTierAreThoseOfLruOnSynthetic) {
  for (const std::uint32_t capacity : capacities(synthetic(), {43, 439, 4'392})) {
    expect_counts_of_lru(synthetic(), capacity);
  }
}

TEST(ReplayCounts, OfOneTierAreThoseOfLruOnTheFirstSessionsOfWeka) {
  for (const std::uint32_t capacity : capacities(weka_first_100(), {56'163})) {
    expect_counts_of_lru(weka_first_100(), capacity);
  }
}

TEST(ReplayCounts, OfOneTierAreThoseOfLruOnAllSessionsOfWeka) {
  if (!all_sizes()) GTEST_SKIP() << "94 million accesses: with KV_CACHESIM_FULL=1";
  for (const std::uint32_t capacity : {34'509U, 345'095U}) {
    expect_counts_of_lru({"weka-stagger60", "weka_requests.jsonl.gz"}, capacity);
  }
}

// Copies are written through, and a use counts in every tier: each tier is an LRU of its own, so
// that the device hits what LRU of its size would, and all together what LRU of the largest would.
TEST(ReplayCounts, OfTwoTiersAreThoseOfLruOfEachSize) {
  struct Case {
    Known known;
    std::uint32_t device, host;
  };
  for (const Case& each : {Case{conversation(), 1'827, 18'279}, Case{synthetic(), 439, 4'392}}) {
    SCOPED_TRACE(each.known.name);
    const Trace& trace = trace_of(each.known);
    const Counts counts = count(trace, counts_only(each.device, each.host));
    EXPECT_EQ(counts.blocks, reference_hits(each.known, each.host));
    EXPECT_EQ(counts.tokens[0], count_hits(trace, "lru_flat", each.device).token_hits);
    EXPECT_EQ(counts.all_tokens, count_hits(trace, "lru_flat", each.host).token_hits);
  }
}

// The host tier keeps room there for what is read from disk, so that only the device's hits and
// those of all tiers together are LRU's.
TEST(ReplayCounts, OfThreeTiersAreThoseOfLruOfTheLargest) {
  const Trace& trace = trace_of(conversation());
  const Counts counts = count(trace, counts_only(1'827, 9'139, 50'000));
  EXPECT_EQ(counts.blocks, reference_hits(conversation(), 50'000));
  EXPECT_EQ(counts.tokens[0], count_hits(trace, "lru_flat", 1'827).token_hits);
  EXPECT_GT(counts.tokens[1], counts.tokens[0]);
  EXPECT_GT(counts.tokens[2], 0U);
}

}  // namespace
}  // namespace kv::cachesim
