#include "allocator/block_pool.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv {
namespace {

TEST(BlockPool, GivesTheLastFreedSlotFirst) {
  BlockPool pool(3);
  const SlotId a = pool.take().value();
  const SlotId b = pool.take().value();
  pool.release(a);
  pool.release(b);
  EXPECT_EQ(pool.take().value(), b);
  EXPECT_EQ(pool.take().value(), a);
}

TEST(BlockPool, SaysExhaustedWhenNothingIsFree) {
  BlockPool pool(1);
  ASSERT_TRUE(pool.take().has_value());
  EXPECT_EQ(pool.take().error().code, ErrorCode::exhausted);
  EXPECT_EQ(BlockPool(0).take().error().code, ErrorCode::exhausted);
}

TEST(BlockPool, RaisesTheGenerationWithEveryTake) {
  BlockPool pool(1);
  for (std::uint32_t i = 1; i <= 5; ++i) {
    const SlotId slot = pool.take().value();
    EXPECT_EQ(pool.generation(slot), i);
    pool.release(slot);
  }
}

TEST(BlockPool, ClaimsAGivenSlotWithItsGeneration) {
  BlockPool pool(4);
  ASSERT_TRUE(pool.take_exactly(SlotId(2), 77).has_value());
  EXPECT_EQ(pool.generation(SlotId(2)), 77U);
  EXPECT_EQ(pool.take_exactly(SlotId(2), 78).error().code, ErrorCode::exists);
  EXPECT_EQ(pool.take_exactly(SlotId(4), 1).error().code, ErrorCode::not_found);
  EXPECT_EQ(pool.generation(SlotId(2)), 77U);
  for (int i = 0; i < 3; ++i) EXPECT_NE(pool.take().value(), SlotId(2));
}

TEST(BlockPool, TakesNoMoreMemoryHoweverOftenASlotIsClaimed) {
  BlockPool pool(4);
  const std::uint64_t bytes = pool.bytes();
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool.take_exactly(SlotId(i % 4), i).has_value());
    pool.release(SlotId(i % 4));
  }
  EXPECT_EQ(pool.bytes(), bytes);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(pool.take().has_value());
  EXPECT_FALSE(pool.take().has_value());
}

TEST(BlockPool, KeepsAFencedSlotOutOfUse) {
  BlockPool pool(2);
  const SlotId slot = pool.take().value();
  pool.fence(slot);
  EXPECT_EQ(pool.count(SlotState::fenced), 1U);
  EXPECT_NE(pool.take().value(), slot);
  EXPECT_FALSE(pool.take().has_value());
  pool.unfence(slot);
  EXPECT_EQ(pool.take().value(), slot);
}

TEST(BlockPoolDeathTest, StopsOnAReleaseOfAFreeSlot) {
  BlockPool pool(1);
  const SlotId slot = pool.take().value();
  pool.release(slot);
  EXPECT_DEATH(pool.release(slot), "SlotState::held");
}

TEST(BlockPool, CountsEveryStateExactlyUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    const auto slots = static_cast<std::uint32_t>(1 + prng.below(20));
    BlockPool pool(slots);
    std::vector<SlotState> model(slots, SlotState::free);
    std::vector<std::uint32_t> generations(slots, 0);
    for (int op = 0; op < 300; ++op) {
      const SlotId slot(static_cast<std::uint32_t>(prng.below(slots)));
      SlotState& state = model[slot.value];
      switch (prng.below(4)) {
        case 0:
          if (const auto taken = pool.take(); taken.has_value()) {
            ASSERT_EQ(model[taken->value], SlotState::free);
            model[taken->value] = SlotState::held;
            ++generations[taken->value];
          } else {
            ASSERT_EQ(std::count(model.begin(), model.end(), SlotState::free), 0);
          }
          break;
        case 1: {
          const auto generation = static_cast<std::uint32_t>(prng.below(100));
          ASSERT_EQ(pool.take_exactly(slot, generation).has_value(), state == SlotState::free);
          if (state == SlotState::free) generations[slot.value] = generation;
          if (state == SlotState::free) state = SlotState::held;
          break;
        }
        case 2:
          if (state == SlotState::held && prng.chance(1, 3)) {
            pool.fence(slot);
            state = SlotState::fenced;
          } else if (state == SlotState::held) {
            pool.set_cached(slot);
            state = SlotState::cached;
          } else if (state == SlotState::cached) {
            pool.set_held(slot);
            state = SlotState::held;
          }
          break;
        default:
          if (state == SlotState::fenced) {
            pool.unfence(slot);
          } else if (state != SlotState::free) {
            pool.release(slot);
          }
          state = SlotState::free;
      }
      for (std::uint32_t i = 0; i < slots; ++i) {
        ASSERT_EQ(pool.state(SlotId(i)), model[i]);
        ASSERT_EQ(pool.generation(SlotId(i)), generations[i]);
      }
      for (const SlotState each :
           {SlotState::free, SlotState::held, SlotState::cached, SlotState::fenced}) {
        ASSERT_EQ(pool.count(each), std::count(model.begin(), model.end(), each));
      }
    }
  }
}

}  // namespace
}  // namespace kv
