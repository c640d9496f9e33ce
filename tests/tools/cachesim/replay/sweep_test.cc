// Sweeps: their combinations, and rows that are those of replays one by one.
#include "tools/cachesim/replay/sweep.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tools/cachesim/replay/made_trace.h"
#include "tools/cachesim/replay/replay_report.h"

namespace kv::cachesim {
namespace {

TEST(Variation, IsAKeyAndItsValues) {
  const auto values_of = [](const char* text) {
    const auto variation = parse_variation(text);
    return variation ? variation->values : std::vector<std::string>{};
  };
  EXPECT_EQ(parse_variation("host.capacity=0").value_or(Variation{}).key, "host.capacity");
  EXPECT_EQ(values_of("host.capacity=0"), (std::vector<std::string>{"0"}));
  EXPECT_EQ(values_of("a.b=1,2GiB,x"), (std::vector<std::string>{"1", "2GiB", "x"}));
  for (const char* text : {"", "a", "=1", "a=", "a=,1", "a=1,", "a=1,,2"}) {
    EXPECT_FALSE(parse_variation(text).has_value()) << text;
  }
}

TEST(Variation, CombinationsChangeTheLastFastest) {
  EXPECT_EQ(combinations({}), (std::vector<Settings>{{}}));
  EXPECT_EQ(combinations({{"a", {"1", "2"}}, {"b", {"x", "y"}}}),
            (std::vector<Settings>{{{"a", "1"}, {"b", "x"}},
                                   {{"a", "1"}, {"b", "y"}},
                                   {{"a", "2"}, {"b", "x"}},
                                   {{"a", "2"}, {"b", "y"}}}));
}

// The n-th point takes the longer, the smaller n is: with several workers, the later ones end
// first.
std::vector<SweepPoint> points() {
  std::vector<SweepPoint> made;
  for (std::uint32_t machines = 6; machines > 0; --machines) {
    ReplayOptions options = options_of(20 + machines, 40);
    options.machines = machines;
    options.router = RouterKind::random;
    made.push_back({{{"instance.count", std::to_string(machines)}}, options});
  }
  return made;
}

TEST(Sweep, RowsAreThoseOfSingleReplaysInOrder) {
  TraceMaker maker;
  for (std::uint64_t i = 0; i < 300; ++i) {
    maker.add(3 * i, 3 * kBlockTokens, 20, {i % 7, 100 + i % 29, 1'000 + i});
  }
  const Trace& trace = maker.trace();
  const std::vector<SweepPoint> all = points();
  for (const unsigned workers : {1U, 4U, 50U}) {
    SCOPED_TRACE(workers);
    std::size_t at = 0;
    const std::thread::id caller = std::this_thread::get_id();
    const std::string problem = sweep(
        trace, all, workers, [&](const SweepPoint& point, const nlohmann::ordered_json& report) {
          ASSERT_LT(at, all.size());
          EXPECT_EQ(std::this_thread::get_id(), caller);
          EXPECT_EQ(point.settings, all[at].settings);
          const ReplayOutcome alone = replay(trace, all[at].options);
          EXPECT_EQ(report, report_json(trace, all[at].options, alone));
          ++at;
        });
    EXPECT_EQ(problem, "");
    EXPECT_EQ(at, all.size());
  }
}

}  // namespace
}  // namespace kv::cachesim
