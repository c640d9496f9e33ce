// The numbers of a replay: sums, percentiles and rates of an outcome made by hand.
#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tools/cachesim/replay/replay_report.h"

namespace kv::cachesim {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint at(std::int64_t ms) { return TimePoint(milliseconds(ms)); }

struct Made {
  Trace trace;
  ReplayOptions options;
  ReplayOutcome outcome;
};

// 100 requests of 100 tokens: the n-th (from 1) waits n ms, loads 10, computes 20, and then has
// ten tokens more in 5 ms each; 30 tokens of it were on the device, 20 in the host, 10 on disk.
Made hundred() {
  Made made;
  made.options.block_bytes = 1'000;
  made.outcome.counters.resize(1);
  for (int n = 1; n <= 100; ++n) {
    TraceRequest request;
    request.input_tokens = 100;
    request.output_tokens = 11;
    request.block_count = 10;
    made.trace.requests.push_back(request);
    RequestResult result;
    result.arrival = at(1'000);
    result.admitted = at(1'000 + n);
    result.ready = at(1'010 + n);
    result.first_token = at(1'030 + n);
    result.end = at(1'080 + n);
    result.hit_blocks = 6;
    result.hit_tokens = {30, 20, 10};
    result.computed_tokens = 40;
    made.outcome.results.push_back(result);
  }
  made.outcome.counters[0].hit_tokens = {300, 200, 100, 0};
  made.outcome.end = TimePoint(seconds(43'200));
  made.outcome.computing = seconds(10'800);
  made.outcome.links[static_cast<std::size_t>(LinkName::host_to_disk)] = {7'000, 3, seconds(4'320)};
  made.outcome.tiers[0] = {10, 8, 4};
  return made;
}

TEST(ReplayReport, CountsTokensByTierAndTimesByPercentile) {
  const Made made = hundred();
  const ordered_json report = report_json(made.trace, made.options, made.outcome);
  EXPECT_EQ(report["requests"]["total"], 100);
  EXPECT_EQ(report["requests"]["refused"], 0);
  EXPECT_EQ(report["tokens"]["input"], 10'000);
  EXPECT_EQ(report["tokens"]["hit"]["device"], 3'000);
  EXPECT_EQ(report["tokens"]["hit"]["host"], 2'000);
  EXPECT_EQ(report["tokens"]["hit"]["disk"], 1'000);
  EXPECT_EQ(report["tokens"]["computed"], 4'000);
  EXPECT_EQ(report["tokens"]["generated"], 1'100);
  EXPECT_EQ(report["token_hit_ratio"], 0.6);
  EXPECT_EQ(report["block_hits"], 600);
  EXPECT_EQ(report["block_accesses"], 1'000);
  constexpr std::int64_t kMs = 1'000'000;
  EXPECT_EQ(report["queue_ns"], (ordered_json{{"count", 100},
                                              {"mean", 50'500'000},
                                              {"p50", 50 * kMs},
                                              {"p90", 90 * kMs},
                                              {"p99", 99 * kMs},
                                              {"max", 100 * kMs}}));
  EXPECT_EQ(report["load_ns"]["mean"], 10 * kMs);
  EXPECT_EQ(report["ttft_ns"]["p90"], 120 * kMs);
  EXPECT_EQ(report["tpot_ns"]["p99"], 5 * kMs);
  EXPECT_EQ(report["request_ns"]["max"], 180 * kMs);
  EXPECT_EQ(report["computing"], 0.25);
  EXPECT_EQ(report["links"]["host_to_disk"]["bytes"], 7'000);
  EXPECT_EQ(report["links"]["host_to_disk"]["transfers"], 3);
  EXPECT_EQ(report["links"]["host_to_disk"]["busy"], 0.1);
  EXPECT_EQ(report["disk_bytes_written_per_day"], 14'000);  // half a day
  EXPECT_EQ(report["tiers"]["device"]["capacity_bytes"], 10'000);
  EXPECT_EQ(report["tiers"]["device"]["used_blocks_max"], 8);
  EXPECT_EQ(report["tiers"]["device"]["used_blocks_mean"], 4);
}

TEST(ReplayReport, RequestsThatWereRefusedHaveTokensAndNoTimes) {
  Made made = hundred();
  RequestResult refused;
  refused.arrival = at(1);
  refused.end = at(2);
  refused.refused = true;
  made.outcome.results[4] = refused;
  const ordered_json report = report_json(made.trace, made.options, made.outcome);
  EXPECT_EQ(report["requests"]["refused"], 1);
  EXPECT_EQ(report["tokens"]["refused"], 100);
  EXPECT_EQ(report["tokens"]["hit"]["device"], 2'970);
  EXPECT_EQ(report["ttft_ns"]["count"], 99);
  EXPECT_NE(report_text(report).find("larger than the device tier"), std::string::npos);
}

TEST(ReplayReport, ConservationIsOfTokensAndOfTheEnginesHits) {
  Made made = hundred();
  EXPECT_TRUE(check_conservation(made.trace, made.outcome).has_value());
  ++made.outcome.results[7].computed_tokens;
  EXPECT_FALSE(check_conservation(made.trace, made.outcome).has_value());
  --made.outcome.results[7].computed_tokens;
  ++made.outcome.counters[0].hit_tokens[1];
  EXPECT_FALSE(check_conservation(made.trace, made.outcome).has_value());
}

TEST(ReplayReport, TheTableHasTheSameNumbers) {
  const Made made = hundred();
  const std::string text = report_text(report_json(made.trace, made.options, made.outcome));
  for (const char* expected :
       {"3000   30.00%", "2000   20.00%", "1000   10.00%", "4000   40.00%",
        "43200.00 s, computing 25.0%", "50.50 ms", "13.7 KiB a day", "host_to_disk", "6.8 KiB"}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected << "\n" << text;
  }
  EXPECT_EQ(text.find("refused"), std::string::npos);
}

}  // namespace
}  // namespace kv::cachesim
