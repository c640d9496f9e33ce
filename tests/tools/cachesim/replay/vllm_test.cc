// Times to the first token against those that a real vLLM measured (tests/data/traces, vllm).
//
// Fitted: five numbers for each file (time of a step and of each of its tokens, of attention, of
// reading what is cached, blocks of memory), by a random search that saw the error of every second
// request. Judged: the others. What this shows and what not: it is a test of the queue, of
// admission and of continuous batching, since nearly all of the time is spent in the queue; both
// halves are of one run, so that it says nothing of another load or device; nothing is reused, as
// the file names no content; and vLLM takes memory as tokens come and preempts, where the service
// reserves it all at admission, which the fitted memory hides.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/cachesim/replay/made_trace.h"
#include "tools/cachesim/replay/replay.h"

namespace kv::cachesim {
namespace {

constexpr std::uint32_t kTokensABlock = 16;
constexpr std::uint32_t kStepTokens = 2'048;  // vLLM's default

struct Measured {
  double queued_s = 0, first_token_s = 0;
  std::uint32_t input = 0, output = 0;
};

std::vector<Measured> read(const std::string& name) {
  std::ifstream file(std::string(KV_SOURCE_DIR) + "/tests/data/traces/vllm/" + name +
                     "_requests.jsonl");
  std::vector<Measured> measured;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    measured.push_back(
        {json["queued_ts"], json["first_token_ts"], json["input_toks"], json["output_toks"]});
  }
  std::ranges::sort(measured, {}, &Measured::queued_s);
  return measured;
}

struct Fit {
  std::uint64_t step_ns, row_ns, attention_16k_ns, context_ns;  // context: of a token in front
  std::uint32_t blocks, sequences;
};

// The mean absolute error of the times to the first token, relative, of requests half, half + 2, …
double error_of(const std::vector<Measured>& measured, const Fit& fit, std::size_t half) {
  TraceBuilder builder;
  builder.trace().block_tokens = kTokensABlock;
  std::uint64_t fresh = 0;
  for (const Measured& each : measured) {
    TraceRequest request;  // in microseconds, at a thousand times the speed
    request.time_ms =
        static_cast<std::uint64_t>(std::llround((each.queued_s - measured[0].queued_s) * 1e6));
    request.input_tokens = each.input;
    request.output_tokens = each.output;
    const auto blocks = range(fresh, (each.input + kTokensABlock - 1) / kTokensABlock);
    fresh += blocks.size();
    EXPECT_TRUE(builder.add(request, blocks));
  }
  const ComputeTable table = {
      "fitted",
      "fitted",
      "",
      1,
      {{{1, fit.step_ns + fit.row_ns}, {kStepTokens, fit.step_ns + kStepTokens * fit.row_ns}}},
      {{{8'192, fit.attention_16k_ns / 4}, {16'384, fit.attention_16k_ns}}}};
  ReplayOptions options;
  options.capacity_blocks = {fit.blocks, 0, 0};
  options.block_bytes = 1;
  options.sequences_max = fit.sequences;
  options.step_tokens_max = kStepTokens;
  options.speed_thousandths = 1'000'000;
  options.compute.table = &table;
  options.compute.token_bytes = fit.context_ns;
  options.compute.memory_bytes_per_second = 1'000'000'000;
  const ReplayOutcome outcome = replay(builder.trace(), options);
  double error = 0;
  int count = 0;
  for (std::size_t i = half; i < measured.size(); i += 2, ++count) {
    const RequestResult& result = outcome.results[i];
    EXPECT_FALSE(result.refused);
    const double replayed =
        static_cast<double>((result.first_token - result.arrival).count()) / 1e9;
    const double real = measured[i].first_token_s - measured[i].queued_s;
    error += std::fabs(replayed - real) / real;
  }
  return error / count;
}

constexpr double kBar = 0.15;

void expect_agreement(const std::string& name, const Fit& fit) {
  SCOPED_TRACE(name);
  const std::vector<Measured> measured = read(name);
  ASSERT_EQ(measured.size(), 300U);
  const double error = error_of(measured, fit, 1);
  testing::Test::RecordProperty(name, std::to_string(error));
  EXPECT_LT(error, kBar);
  // It is the model that agrees: with steps that take twice as long it does not.
  Fit slower = fit;
  slower.step_ns *= 2;
  slower.row_ns *= 2;
  slower.context_ns *= 2;
  EXPECT_GT(error_of(measured, slower, 1), 2 * kBar);
}

TEST(ReplayAgainstVllm, FirstTokensOfLlamaOnAnRtxPro6000AreWithin15PerCent) {
  expect_agreement("RTXPRO6000_Llama-3.1-8B", {12'471'508, 34'530, 136'993'049, 83, 18'611, 128});
}

TEST(ReplayAgainstVllm, FirstTokensOfQwenOnAnRtxPro6000AreWithin15PerCent) {
  expect_agreement("RTXPRO6000_Qwen3-32B", {29'387'795, 147'371, 422'792'906, 96, 20'137, 128});
}

TEST(ReplayAgainstVllm, FirstTokensOfLlamaOnAnRtx4090AreWithin15PerCent) {
  expect_agreement("RTX4090_Llama-3.1-8B", {18'430'230, 78'358, 270'952'214, 254, 4'302, 256});
}

}  // namespace
}  // namespace kv::cachesim
