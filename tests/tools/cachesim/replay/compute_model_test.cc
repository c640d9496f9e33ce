// Compute times: the measured points, what lies between and beyond, and steps.
#include "tools/cachesim/replay/compute_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace kv::cachesim {
namespace {

using std::chrono::milliseconds;

std::string file_text() {
  std::ifstream file(std::string(KV_SOURCE_DIR) +
                     "/tools/cachesim/replay/data/prefill_kernel_times.csv");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const ComputeTable& table(const std::string& gpu, const std::string& model, std::uint32_t parallel,
                          const std::string& weights) {
  const auto found = std::ranges::find_if(known_compute_tables(), [&](const ComputeTable& each) {
    return each.gpu == gpu && each.model == model && each.tensor_parallel == parallel &&
           each.weights == weights;
  });
  EXPECT_NE(found, known_compute_tables().end());
  return *found;
}

const ComputeTable& h100() { return table("h100_sxm", "Llama-3.1-8B", 1, "bfloat16"); }

double prefill_ms(const ComputeModel& model, std::uint64_t tokens) {
  const Duration time = model.step_time(tokens, model.attention_ns(0, tokens), 0);
  return static_cast<double>(time.count()) / 1e6;
}

// The file's own total, which is a column that the program does not read.
TEST(ComputeModel, APromptAtOnceTakesTheTotalOfItsRow) {
  std::istringstream lines(file_text());
  std::string line;
  std::getline(lines, line);
  int rows = 0;
  while (std::getline(lines, line)) {
    SCOPED_TRACE(line);
    std::vector<std::string> fields;
    std::istringstream columns(line);
    for (std::string field; std::getline(columns, field, ',');) fields.push_back(field);
    const ComputeTable& measured =
        table(fields.at(0), fields.at(1), static_cast<std::uint32_t>(std::stoul(fields.at(2))),
              fields.at(3));
    const ComputeModel model({.table = &measured});
    EXPECT_NEAR(prefill_ms(model, std::stoull(fields.at(4))), std::stod(fields.at(5)), 0.0025);
    ++rows;
  }
  EXPECT_EQ(rows, 96);
  EXPECT_EQ(known_compute_tables().size(), 12U);
}

TEST(ComputeModel, BetweenThePointsTimeLiesBetween) {
  const ComputeModel model({.table = &h100()});
  EXPECT_NEAR(prefill_ms(model, 3'072), (43.625 + 92.854) / 2, 0.003);
  double before = 0;
  for (std::uint64_t tokens = 1; tokens < 20'000; tokens += 37) {
    const double now = prefill_ms(model, tokens);
    EXPECT_GE(now, before) << tokens;
    before = now;
  }
}

// Attention grows with the square there, the linear layers with the tokens.
TEST(ComputeModel, BeyondThePointsTimeGrowsAsWorkDoes) {
  const ComputeModel model({.table = &h100()});
  EXPECT_NEAR(static_cast<double>(model.attention_ns(0, 131'072)) / 1e6, 105.932 * 64, 0.01);
  const double linear = static_cast<double>(model.step_time(32'768, 0, 0).count()) / 1e6;
  EXPECT_NEAR(linear,
              2 * (310.668 + 52.886) - (157.868 + 26.443) +
                  (310.668 + 52.886 - 2 * (157.868 + 26.443)) + (157.868 + 26.443),
              0.01);
}

TEST(ComputeModel, APromptInPiecesHasTheAttentionOfTheWhole) {
  const ComputeModel model({.table = &h100()});
  for (const std::uint64_t piece : {100U, 512U, 5'000U}) {
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at < 60'000; at += piece) {
      sum += model.attention_ns(at, std::min<std::uint64_t>(at + piece, 60'000));
    }
    EXPECT_EQ(sum, model.attention_ns(0, 60'000));
  }
  // The same piece takes longer with more in front of it.
  EXPECT_GT(model.attention_ns(8'192, 8'704), model.attention_ns(0, 512));
}

TEST(ComputeModel, DecodingReadsWhatIsCachedAtTheMemorysSpeed) {
  const ComputeModel model(
      {.table = &h100(), .token_bytes = 131'072, .memory_bytes_per_second = 3'350'000'000'000});
  const Duration none = model.step_time(8, 0, 0);
  const Duration some = model.step_time(8, 0, 1'000'000);
  EXPECT_EQ((some - none).count(), 131'072ULL * 1'000'000 * 1'000 / 3'350'000);
  // Few rows read the weights as many do: 5.715 ms of GEMMs, 0.413 by element.
  EXPECT_EQ(none.count(), 6'128'000);
}

TEST(ComputeModel, AStepTakesItsOverheadAndIsSlowerThanItsKernels) {
  const ComputeModel model(
      {.table = &h100(), .step_overhead = milliseconds(2), .slowdown_thousandths = 1'500});
  const ComputeModel kernels({.table = &h100()});
  EXPECT_NEAR(prefill_ms(model, 4'096), 2 + 1.5 * prefill_ms(kernels, 4'096), 1e-5);
}

TEST(ComputeModel, WithoutATableNothingTakesTime) {
  const ComputeModel model({});
  EXPECT_EQ(model.attention_ns(0, 1'000'000), 0U);
  EXPECT_EQ(model.step_time(8'192, 5, 1'000'000), Duration(0));
}

TEST(ComputeTables, RefuseWhatIsNoTable) {
  const std::string whole = file_text();
  const std::string header = whole.substr(0, whole.find('\n') + 1);
  const std::string row = "g,m,1,f,128,6.62,5.715,0.491,0.413,1e12,271\n";
  const std::string later = "g,m,1,f,256,6.62,5.715,0.491,0.413,1e12,271\n";
  EXPECT_TRUE(parse_compute_tables(header + row + later).has_value());
  EXPECT_EQ(parse_compute_tables(header)->size(), 0U);
  EXPECT_FALSE(parse_compute_tables("a,b\n").has_value());
  EXPECT_FALSE(parse_compute_tables(row + later).has_value());
  for (const std::string rows :
       {"", "g,m,1,f,128,6.62,5.715,0.491,0.413,1e12,271\n", "g,m,1,f,256,6.62\n",
        "g,m,0,f,256,1,1,1,1,1,1\n", "g,m,1,f,-5,1,1,1,1,1,1\n", "g,m,1,f,256,1,x,1,1,1,1\n",
        "g,m,1,f,256,1,1.1234567,1,1,1,1\n", "g,m,1,f,256,1,1,1,1,1,1,9\n"}) {
    std::string text = header + row;
    text += rows;
    const auto tables = parse_compute_tables(text);
    ASSERT_FALSE(tables.has_value()) << text;
    EXPECT_EQ(tables.error().code, ErrorCode::invalid);
  }
}

}  // namespace
}  // namespace kv::cachesim
