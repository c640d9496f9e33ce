#include "allocator/run_allocator.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv {
namespace {

TEST(RunAllocator, GivesConsecutiveRoomWhereThereIsAny) {
  RunAllocator ids(1000);
  const std::uint32_t a = ids.take_with_room(100);
  const std::uint32_t b = ids.take_with_room(100);
  EXPECT_GE(b > a ? b - a : a - b, 100U);
  for (std::uint32_t i = 1; i < 100; ++i) {
    EXPECT_TRUE(ids.take_at(a + i));
    EXPECT_TRUE(ids.take_at(b + i));
  }
  EXPECT_EQ(ids.free_count(), 800U);
}

TEST(RunAllocator, TakesTheFirstStretchThatIsLongEnoughAndElseTheLongest) {
  RunAllocator ids(64);
  for (std::uint32_t id = 0; id < 64; ++id) ASSERT_TRUE(ids.take_at(id));
  for (const auto& [first, length] : {std::pair(4U, 3U), std::pair(20U, 10U), std::pair(40U, 5U)}) {
    for (std::uint32_t i = 0; i < length; ++i) ids.give(first + i);
  }
  EXPECT_EQ(ids.take_with_room(8), 20U);
  EXPECT_EQ(ids.take_with_room(50), 21U);  // 21 to 29: nothing is longer now
}

TEST(RunAllocator, RefusesIdsInUseAndOutOfRange) {
  RunAllocator ids(65);
  EXPECT_TRUE(ids.take_at(64));
  EXPECT_FALSE(ids.take_at(64));
  EXPECT_FALSE(ids.take_at(65));
  EXPECT_FALSE(ids.is_free(65));
}

TEST(RunAllocator, HandsOutEveryIdOnceUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    // Sizes around the word and summary boundaries, too.
    const auto capacity =
        static_cast<std::uint32_t>(prng.chance(1, 2) ? 1 + prng.below(200) : 4090 + prng.below(12));
    RunAllocator ids(capacity);
    std::set<std::uint32_t> taken;
    for (int op = 0; op < 600; ++op) {
      const auto id = static_cast<std::uint32_t>(prng.below(capacity));
      if (prng.chance(1, 3) && !taken.empty()) {
        const auto it = taken.lower_bound(id);
        const std::uint32_t given = it == taken.end() ? *taken.begin() : *it;
        ids.give(given);
        taken.erase(given);
      } else if (prng.chance(1, 3)) {
        ASSERT_EQ(ids.take_at(id), !taken.contains(id));
        taken.insert(id);
      } else {
        const std::uint32_t got =
            ids.take_with_room(static_cast<std::uint32_t>(1 + prng.below(70)));
        ASSERT_EQ(got == RunAllocator::kNone, taken.size() == capacity);
        if (got == RunAllocator::kNone) continue;
        ASSERT_LT(got, capacity);
        ASSERT_TRUE(taken.insert(got).second);
      }
      ASSERT_EQ(ids.free_count(), capacity - taken.size());
      ASSERT_EQ(ids.is_free(id), !taken.contains(id));
    }
  }
}

}  // namespace
}  // namespace kv
