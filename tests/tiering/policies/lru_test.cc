#include "tiering/policies/lru.h"

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv {
namespace {

TEST(LruPolicy, HasNoVictimWhenEmpty) {
  const LruPolicy policy(3);
  EXPECT_TRUE(policy.victim().is_none());
  EXPECT_EQ(policy.size(), 0U);
}

TEST(LruPolicy, ChoosesTheOldestThenTheDeepestThenTheSmallestId) {
  LruPolicy policy(4);
  policy.insert(BlockId(0), 5, 9);
  policy.insert(BlockId(3), 4, 1);
  policy.insert(BlockId(2), 4, 2);
  policy.insert(BlockId(1), 4, 2);
  for (const std::uint32_t expected : {1U, 2U, 3U, 0U}) {
    EXPECT_EQ(policy.victim(), BlockId(expected));
    policy.remove(policy.victim());
  }
  EXPECT_TRUE(policy.victim().is_none());
}

TEST(LruPolicy, LetsTheEarlyTurnGoFirstWhateverItsUse) {
  LruPolicy policy(3);
  policy.insert(BlockId(0), 1, 0, LruPolicy::Turn::late);
  policy.insert(BlockId(1), 9, 0, LruPolicy::Turn::early);
  policy.insert(BlockId(2), 8, 0, LruPolicy::Turn::early);
  for (const std::uint32_t expected : {2U, 1U, 0U}) {
    EXPECT_EQ(policy.victim(), BlockId(expected));
    policy.remove(policy.victim());
  }
}

TEST(LruPolicyDeathTest, StopsOnASecondInsertAndOnARemoveOfWhatIsNotThere) {
  LruPolicy policy(2);
  policy.insert(BlockId(0), 1, 0);
  EXPECT_DEATH(policy.insert(BlockId(0), 2, 0), "contains");
  EXPECT_DEATH(policy.remove(BlockId(1)), "contains");
}

// The model is a sorted set; keys come from small ranges, so that ties and late inserts are common.
TEST(LruPolicy, EqualsASortedSetUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    const auto capacity = static_cast<std::uint32_t>(1 + prng.below(40));
    const bool mostly_newest = prng.chance(1, 2);
    LruPolicy policy(capacity);
    using Key = std::tuple<bool, std::uint64_t, std::int64_t, std::uint32_t>;
    std::set<Key> model;
    std::map<std::uint32_t, Key> keys;
    std::uint64_t now = 1;
    for (int op = 0; op < 400; ++op) {
      const auto id = static_cast<std::uint32_t>(prng.below(capacity));
      if (keys.contains(id)) {
        policy.remove(BlockId(id));
        model.erase(keys[id]);
        keys.erase(id);
      } else {
        now += prng.below(2);
        const std::uint64_t use = mostly_newest && prng.chance(3, 4) ? now : prng.below(now + 1);
        const auto depth = static_cast<std::uint32_t>(prng.below(5));
        const bool late = prng.chance(1, 3);
        policy.insert(BlockId(id), use, depth,
                      late ? LruPolicy::Turn::late : LruPolicy::Turn::early);
        ASSERT_EQ(policy.turn(BlockId(id)) == LruPolicy::Turn::late, late);
        keys[id] = Key(late, use, -static_cast<std::int64_t>(depth), id);
        model.insert(keys[id]);
      }
      ASSERT_EQ(policy.size(), model.size());
      ASSERT_EQ(policy.contains(BlockId(id)), keys.contains(id));
      ASSERT_EQ(policy.victim(),
                model.empty() ? BlockId::none() : BlockId(std::get<3>(*model.begin())));
    }
    while (!model.empty()) {
      ASSERT_EQ(policy.victim(), BlockId(std::get<3>(*model.begin())));
      policy.remove(policy.victim());
      model.erase(model.begin());
    }
    ASSERT_TRUE(policy.victim().is_none());
  }
}

}  // namespace
}  // namespace kv
