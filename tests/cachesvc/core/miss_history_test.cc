#include "cachesvc/core/miss_history.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <new>
#include <set>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "allocator/block_key.h"

namespace {

std::size_t bytes_allocated = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

// Never inlined: else g++ sees free() on the one side and operator new on the other.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  bytes_allocated += bytes;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return operator new(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace kv::core {
namespace {

Digest key_of(std::uint32_t number) {
  const Token tokens[] = {number};
  return next_block_key(Digest{}, tokens);
}

TimePoint at(std::int64_t milliseconds) {
  return TimePoint(std::chrono::milliseconds(milliseconds));
}

TEST(MissHistory, TellsTheNewestFactOfAKey) {
  MissHistory history(8, at(5));
  EXPECT_EQ(history.find(key_of(1)), nullptr);
  history.record(key_of(1), {at(10), 3, MissReason::evicted, MissCause::room, Tier::disk});
  history.record(key_of(2), {at(20), 0, MissReason::corrupt, MissCause::none, Tier::host});
  history.record(key_of(1), {at(30), 7, MissReason::evicted, MissCause::cleared, Tier::device});
  const MissHistory::Fact* fact = history.find(key_of(1));
  ASSERT_NE(fact, nullptr);
  EXPECT_EQ(fact->when, at(30));
  EXPECT_EQ(fact->reuses, 7U);
  EXPECT_EQ(fact->cause, MissCause::cleared);
  EXPECT_EQ(fact->tier, Tier::device);
  EXPECT_EQ(history.find(key_of(2))->reason, MissReason::corrupt);
  EXPECT_EQ(history.size(), 2U);
  EXPECT_EQ(history.known_since(), at(5));
  EXPECT_FALSE(history.is_lost(key_of(1)));
}

// The model: all records ever, of which the last `capacity` are looked through from the end.
TEST(MissHistory, AgreesWithAListOfAllRecords) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    const auto capacity = static_cast<std::uint32_t>(1 + prng.below(40));
    MissHistory history(capacity, at(0));
    std::deque<std::pair<std::uint32_t, std::uint32_t>> latest;  // number, reuses
    std::set<std::uint32_t> fallen;
    TimePoint since = at(0);
    std::map<std::uint32_t, TimePoint> when;
    for (std::uint32_t i = 0; i < 6 * capacity; ++i) {
      const auto number = static_cast<std::uint32_t>(prng.below(3 * std::uint64_t{capacity}));
      if (latest.size() == capacity) {
        const std::uint32_t old = latest.front().first;
        latest.pop_front();
        const bool again = old == number || std::ranges::any_of(latest, [old](const auto& other) {
                             return other.first == old;
                           });
        if (!again) {
          fallen.insert(old);
          since = std::max(since, when.at(old));
        }
      }
      history.record(key_of(number), {at(i + 1), i});
      latest.emplace_back(number, i);
      fallen.erase(number);
      when[number] = at(i + 1);
      for (std::uint32_t n = 0; n < 3 * capacity; ++n) {
        const auto found = std::find_if(latest.rbegin(), latest.rend(),
                                        [n](const auto& o) { return o.first == n; });
        const MissHistory::Fact* fact = history.find(key_of(n));
        ASSERT_EQ(fact != nullptr, found != latest.rend()) << n;
        if (fact != nullptr) {
          ASSERT_EQ(fact->reuses, found->second);
          ASSERT_FALSE(history.is_lost(key_of(n)));
        }
        ASSERT_TRUE(!fallen.contains(n) || history.is_lost(key_of(n))) << n;
      }
      ASSERT_EQ(history.known_since(), since);
    }
  }
}

// Counted over keys that were never recorded, when as many are lost as one filter takes.
TEST(MissHistory, TakesFewKeysForLostThatNeverWereRecorded) {
  constexpr std::uint32_t kCapacity = 1'000;
  MissHistory history(kCapacity, at(0));
  for (std::uint32_t i = 0; i < 7 * kCapacity; ++i) history.record(key_of(i), {at(i)});
  for (std::uint32_t i = 0; i < 6 * kCapacity; ++i) ASSERT_TRUE(history.is_lost(key_of(i))) << i;
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i)
    wrong += history.is_lost(key_of(1'000'000 + i)) ? 1 : 0;
  EXPECT_LT(wrong, 300U);
}

TEST(MissHistory, ForgetsInTheEndThatAKeyWasThere) {
  constexpr std::uint32_t kCapacity = 100;
  MissHistory history(kCapacity, at(0));
  for (std::uint32_t i = 0; i < 14 * kCapacity; ++i) history.record(key_of(i), {at(i)});
  std::uint32_t lost = 0;
  for (std::uint32_t i = 0; i < kCapacity; ++i) lost += history.is_lost(key_of(i)) ? 1 : 0;
  EXPECT_LT(lost, 10U);
  EXPECT_TRUE(history.is_lost(key_of(12 * kCapacity)));
}

TEST(MissHistory, TakesAtMost64BytesAnEntryAndNoMemoryLater) {
  constexpr std::uint32_t kCapacity = 1U << 16U;
  const std::size_t before = bytes_allocated;
  MissHistory history(kCapacity, at(0));
  const std::size_t made = bytes_allocated - before;
  EXPECT_LE(made, std::size_t{64} * kCapacity);
  EXPECT_NEAR(static_cast<double>(history.bytes()), static_cast<double>(made),
              0.001 * static_cast<double>(made));
  for (std::uint32_t i = 0; i < 2 * kCapacity; ++i) history.record(key_of(i), {at(i)});
  EXPECT_EQ(bytes_allocated - before, made);
}

TEST(MissHistory, OfNoCapacityKnowsNothing) {
  MissHistory history(0, at(0));
  history.record(key_of(1), {at(1)});
  EXPECT_EQ(history.find(key_of(1)), nullptr);
  EXPECT_FALSE(history.is_lost(key_of(1)));
}

}  // namespace
}  // namespace kv::core
