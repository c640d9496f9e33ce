#include "allocator/flat_map.h"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv {
namespace {

std::uint32_t find_any(const FlatMap& map, std::uint64_t hash) {
  return map.find(hash, [](std::uint32_t) { return true; });
}

TEST(FlatMap, FindsNothingInAnEmptyTable) {
  const FlatMap map(4);
  EXPECT_EQ(find_any(map, 0), FlatMap::kNone);
  EXPECT_EQ(map.size(), 0U);
  const FlatMap none(0);
  EXPECT_EQ(find_any(none, ~std::uint64_t{0}), FlatMap::kNone);
}

TEST(FlatMap, HoldsItsWholeCapacityWhenAllHashesAreEqual) {
  constexpr std::uint32_t kEntries = 500;
  FlatMap map(kEntries);
  for (std::uint32_t i = 0; i < kEntries; ++i) map.insert(~std::uint64_t{0}, i);
  for (std::uint32_t i = 0; i < kEntries; ++i) {
    const auto is_i = [&](std::uint32_t value) { return value == i; };
    EXPECT_EQ(map.find(~std::uint64_t{0}, is_i), i);
  }
  EXPECT_EQ(map.size(), kEntries);
}

TEST(FlatMap, TakesAtMostElevenBytesAnEntry) {
  const FlatMap map(1'000'000);
  EXPECT_LE(map.bytes(), 11'000'000U);
}

// The model holds (hash, value) pairs; hashes come from a small set, so that they collide.
TEST(FlatMap, AnswersAsAMultimapDoesUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    const auto capacity = static_cast<std::uint32_t>(1 + prng.below(40));
    const std::uint64_t hash_count = 1 + prng.below(60);
    FlatMap map(capacity);
    std::map<std::uint32_t, std::uint64_t> model;  // value -> hash
    std::uint32_t next_value = 0;
    for (int op = 0; op < 300; ++op) {
      const std::uint64_t hash = Prng(prng.below(hash_count)).next();
      if (prng.chance(1, 2) && model.size() < capacity) {
        map.insert(hash, next_value);
        model[next_value++] = hash;
      } else if (!model.empty()) {
        auto it = model.begin();
        std::advance(it, static_cast<long>(prng.below(model.size())));
        if (prng.chance(1, 3)) {
          map.replace(it->second, it->first, next_value);
          model[next_value++] = it->second;
        } else {
          map.erase(it->second, it->first);
        }
        model.erase(it);
      }
      ASSERT_EQ(map.size(), model.size());
      for (const auto& [value, its_hash] : model) {
        const auto same = [&](std::uint32_t found) { return found == value; };
        ASSERT_EQ(map.find(its_hash, same), value);
      }
      std::size_t with_hash = 0;
      const auto count = [&](std::uint32_t found) {
        with_hash += model.contains(found) && model[found] == hash ? 1U : 0U;
        return false;
      };
      ASSERT_EQ(map.find(hash, count), FlatMap::kNone);
      std::size_t expected = 0;
      for (const auto& entry : model) expected += entry.second == hash ? 1U : 0U;
      ASSERT_EQ(with_hash, expected);
    }
  }
}

}  // namespace
}  // namespace kv
