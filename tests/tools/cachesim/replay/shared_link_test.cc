// A link that is shared: exact ends of few transfers, a reckoning by other means of many, and the
// closed formula of processor sharing.
#include "tools/cachesim/replay/shared_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv::cachesim {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

struct Arrival {
  std::int64_t ns = 0;
  std::uint64_t bytes = 0;
};

TimePoint at(std::int64_t ns) { return TimePoint(nanoseconds(ns)); }

// Ends by transfer, in nanoseconds.
std::vector<std::int64_t> run(const LinkOptions& options, const std::vector<Arrival>& arrivals) {
  SharedLink link(options);
  std::vector<std::int64_t> ends(arrivals.size(), -1);
  std::vector<std::uint64_t> ended;
  const auto pass_until = [&](TimePoint until) {
    while (link.next() <= until && link.next() != kNever) {
      const TimePoint now = link.next();
      ended.clear();
      link.advance(now, ended);
      for (const std::uint64_t id : ended) ends[id] = now.time_since_epoch().count();
    }
  };
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    pass_until(at(arrivals[i].ns));
    link.start(at(arrivals[i].ns), i, arrivals[i].bytes);
  }
  pass_until(kNever - nanoseconds(1));
  EXPECT_EQ(link.next(), kNever);
  EXPECT_EQ(link.transfers(), arrivals.size());
  return ends;
}

constexpr std::uint64_t kByteANs = 1'000'000'000;  // bytes a second

TEST(SharedLink, ATransferAloneTakesTheLatencyAndItsBytes) {
  EXPECT_EQ(run({kByteANs, microseconds(5)}, {{100, 3'000}}), (std::vector<std::int64_t>{8'100}));
  EXPECT_EQ(run({3 * kByteANs, {}}, {{0, 1'000}}), (std::vector<std::int64_t>{334}));
  EXPECT_EQ(run({0, microseconds(5)}, {{100, 3'000}}), (std::vector<std::int64_t>{5'100}));
  EXPECT_EQ(run({0, {}}, {{100, 3'000}, {100, 1}}), (std::vector<std::int64_t>{100, 100}));
}

TEST(SharedLink, TransfersUnderWayGetEqualParts) {
  EXPECT_EQ(run({kByteANs, {}}, {{0, 1'000}, {0, 1'000}}),
            (std::vector<std::int64_t>{2'000, 2'000}));
  // The first has half of it when the second comes; then the second has the rest for itself.
  EXPECT_EQ(run({kByteANs, {}}, {{0, 1'000}, {500, 1'000}}),
            (std::vector<std::int64_t>{1'500, 2'000}));
  // A short one overtakes.
  EXPECT_EQ(run({kByteANs, {}}, {{0, 1'000}, {500, 100}}), (std::vector<std::int64_t>{1'100, 700}));
}

TEST(SharedLink, TheLatencyTakesNoBandwidth) {
  EXPECT_EQ(run({kByteANs, nanoseconds(400)}, {{0, 1'000}, {1'000, 1'000}}),
            (std::vector<std::int64_t>{1'400, 2'400}));
}

// Bytes left of each transfer, from one arrival or end to the next, in long doubles.
std::vector<long double> fluid(long double bytes_a_ns, const std::vector<Arrival>& arrivals) {
  std::vector<long double> ends(arrivals.size(), 0);
  std::map<std::size_t, long double> left;
  long double now = 0;
  std::size_t next = 0;
  while (next < arrivals.size() || !left.empty()) {
    const long double share = left.empty() ? 0 : bytes_a_ns / static_cast<long double>(left.size());
    long double end = std::numeric_limits<long double>::infinity();
    for (const auto& [id, bytes] : left) end = std::min(end, now + bytes / share);
    const bool arrives =
        next < arrivals.size() && static_cast<long double>(arrivals[next].ns) <= end;
    const long double then = arrives ? static_cast<long double>(arrivals[next].ns) : end;
    for (auto& [id, bytes] : left) bytes -= share * (then - now);
    now = then;
    if (arrives) {
      left[next] = static_cast<long double>(arrivals[next].bytes);
      ++next;
    }
    for (auto entry = left.begin(); entry != left.end();) {
      const bool done = entry->second < 1e-9L;
      if (done) ends[entry->first] = now;
      entry = done ? left.erase(entry) : std::next(entry);
    }
  }
  return ends;
}

TEST(SharedLink, EndsWhereAReckoningOfWhatIsLeftEndsToTwoNanoseconds) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    std::vector<Arrival> arrivals;
    std::int64_t time = 0;
    for (int i = 0; i < 60; ++i) {
      time += static_cast<std::int64_t>(prng.below(20'000));
      arrivals.push_back({time, 1 + prng.below(100'000)});
    }
    const std::uint64_t rate = kByteANs + prng.below(20 * kByteANs);
    const auto ends = run({rate, {}}, arrivals);
    const auto expected = fluid(static_cast<long double>(rate) / 1e9L, arrivals);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(ends[i]), static_cast<double>(expected[i]), 2) << i;
    }
  }
}

// M/G/1 with processor sharing: a transfer takes its own time over 1 - load on the average,
// whatever the sizes' distribution (Kleinrock, Queueing Systems II, 4.4).
TEST(SharedLink, AgreesWithTheFormulaOfProcessorSharing) {
  constexpr int kTransfers = 200'000;
  struct Case {
    double load;
    std::uint64_t small, large;  // one in ten is large
  };
  for (const Case& each : {Case{0.5, 1'000'000, 1'000'000}, Case{0.7, 500'000, 5'500'000}}) {
    SCOPED_TRACE(each.load);
    Prng prng(7);
    const double mean =
        0.9 * static_cast<double>(each.small) + 0.1 * static_cast<double>(each.large);
    double time = 0;
    std::vector<Arrival> arrivals;
    double own = 0;
    for (int i = 0; i < kTransfers; ++i) {
      const double chance = (static_cast<double>(prng.next() >> 11U) + 0.5) / 9007199254740992.0;
      time += -std::log(chance) * mean / each.load;
      const std::uint64_t bytes = prng.chance(1, 10) ? each.large : each.small;
      arrivals.push_back({std::llround(time), bytes});
      own += static_cast<double>(bytes);
    }
    const auto ends = run({kByteANs, {}}, arrivals);
    double taken = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      taken += static_cast<double>(ends[i] - arrivals[i].ns);
    }
    const double load = own / time;  // as it came out
    EXPECT_NEAR(taken / own * (1 - load), 1, 0.02);
  }
}

}  // namespace
}  // namespace kv::cachesim
