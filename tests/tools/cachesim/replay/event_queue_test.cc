// What is due next, against a search through all sources.
#include "tools/cachesim/replay/event_queue.h"

#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv::cachesim {
namespace {

TimePoint at(std::uint64_t ns) { return TimePoint(Duration(static_cast<Duration::rep>(ns))); }

TEST(EventQueue, NamesTheEarliestAndOfEqualsTheFirst) {
  for (const std::uint32_t sources : {1U, 2U, 3U, 8U, 13U}) {
    SCOPED_TRACE(sources);
    Prng prng(sources);
    EventQueue queue(sources);
    EXPECT_EQ(queue.next().time, kNever);
    std::vector<TimePoint> due(sources, kNever);
    for (int i = 0; i < 2'000; ++i) {
      const auto source = static_cast<std::uint32_t>(prng.below(sources));
      due[source] = prng.chance(1, 5) ? kNever : at(prng.below(20));
      queue.set(source, due[source]);
      std::uint32_t first = 0;
      for (std::uint32_t s = 1; s < sources; ++s) {
        if (due[s] < due[first]) first = s;
      }
      ASSERT_EQ(queue.next().time, due[first]);
      if (due[first] != kNever) {
        ASSERT_EQ(queue.next().source, first);
      }
    }
  }
}

}  // namespace
}  // namespace kv::cachesim
