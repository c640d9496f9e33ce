#include "cachesvc/wire/counter_names.h"

#include <cstring>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cachesvc/wire/shell_counters.h"

namespace kv::testing {
namespace {

using codec::CounterName;
using codec::kCounterNames;

TEST(CounterNames, CoverEveryWordOfTheCountersOnce) {
  core::Counters counters;
  for (const CounterName& counter : kCounterNames) {
    ASSERT_NE(counter.value == nullptr, counter.by_tier == nullptr) << counter.name;
    if (counter.value != nullptr) ++(counters.*counter.value);
    if (counter.by_tier != nullptr) {
      for (std::uint64_t& count : counters.*counter.by_tier) ++count;
    }
  }
  std::uint64_t words[sizeof(counters) / sizeof(std::uint64_t)];
  std::memcpy(words, &counters, sizeof(counters));
  for (const std::uint64_t word : words) EXPECT_EQ(word, 1U);
}

TEST(CounterNames, AreUniqueWordsInSnakeCase) {
  std::set<std::string> names;
  for (const CounterName& counter : kCounterNames) {
    EXPECT_TRUE(names.insert(std::string(counter.name)).second) << counter.name;
    EXPECT_EQ(counter.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos);
    EXPECT_FALSE(counter.name.empty());
  }
  for (const codec::ShellCounterName& counter : codec::kShellCounterNames) {
    EXPECT_TRUE(names.insert(std::string(counter.name)).second) << counter.name;
    EXPECT_EQ(counter.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos);
  }
}

TEST(CounterNames, CoverEveryWordOfTheShellsCountersOnce) {
  codec::ShellCounters counters;
  for (const codec::ShellCounterName& counter : codec::kShellCounterNames) {
    ++(counters.*counter.value);
  }
  std::uint64_t words[sizeof(counters) / sizeof(std::uint64_t)];
  std::memcpy(words, &counters, sizeof(counters));
  for (const std::uint64_t word : words) EXPECT_EQ(word, 1U);
}

}  // namespace
}  // namespace kv::testing
