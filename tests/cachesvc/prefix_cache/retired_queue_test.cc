// The order in which the blocks of retired roots are given up.
#include "cachesvc/core/retired_queue.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "allocator/block_key.h"

namespace kv::core {
namespace {

constexpr GroupId kGroup{0};
constexpr std::uint32_t kManyHops = 1'000'000;

Digest key_of(std::uint64_t number) {
  return sha256(std::as_bytes(std::span<const std::uint64_t>(&number, 1)));
}

class RetiredQueueTest : public ::testing::Test {
 protected:
  static PrefixCache::Options options() {
    PrefixCache::Options options;
    options.layout.block_tokens = 1;
    options.layout.groups.resize(1);
    options.slot_count = {4'096, 0, 0};
    return options;
  }
  // One device copy each, unpinned.
  void add(RootId root, const std::vector<Token>& tokens) {
    BlockId parent = BlockId::none();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const BlockId block =
          cache_.insert_pinned(root, parent, {&tokens[i], 1}, key_of(++keys_), 0).value();
      if (!cache_.has_copy(block, Tier::device)) {
        cache_.add_copy(block, kGroup, Tier::device,
                        cache_.take_slot(Tier::device, kGroup).value());
      }
      if (!parent.is_none()) cache_.unpin(parent);
      parent = block;
    }
    cache_.unpin(parent);
  }
  BlockId block_at(RootId root, const std::vector<Token>& tokens) {
    BlockId block = BlockId::none();
    for (const Token token : tokens) block = cache_.tree().find_child(root, block, {&token, 1});
    return block;
  }
  // As the Engine does: what nothing holds goes.
  void give_up(BlockId block) {
    if (cache_.is_covered(block) || cache_.tree().has_child(block)) return;
    cache_.drop_copy(block, kGroup, Tier::device);
  }
  void retire(RootId root) {
    cache_.retire_root(root);
    queue_.add(root);
  }
  // How often each block came.
  std::multiset<BlockId> drain() {
    std::multiset<BlockId> came;
    std::uint32_t hops = kManyHops;
    for (BlockId block = queue_.next(cache_, hops); !block.is_none();
         block = queue_.next(cache_, hops)) {
      EXPECT_TRUE(cache_.tree().is_retired(block));
      came.insert(block);
      give_up(block);
    }
    return came;
  }

  PrefixCache cache_{options()};
  RetiredQueue queue_;
  std::uint64_t keys_ = 0;
};

TEST_F(RetiredQueueTest, GivesUpEverythingOfARetiredRootAndNothingElse) {
  const RootId cleared = cache_.open_root(key_of(1'000'001)).value();
  const RootId kept = cache_.open_root(key_of(1'000'002)).value();
  Prng prng(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<Token> tokens(1 + prng.below(12));
    for (Token& token : tokens) token = static_cast<Token>(prng.below(3));
    add(cleared, tokens);
    add(kept, tokens);
  }
  const std::uint32_t blocks = cache_.tree().block_count(cleared);
  ASSERT_EQ(cache_.tree().block_count(kept), blocks);
  ASSERT_GT(blocks, 300U);
  retire(cleared);
  EXPECT_EQ(cache_.tree().retired_block_count(), blocks);
  EXPECT_EQ(drain().size(), blocks);  // each of them once
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.finished(), queue_.added());
  EXPECT_EQ(cache_.tree().block_count(cleared), 0U);
  EXPECT_EQ(cache_.tree().block_count(kept), blocks);
}

TEST_F(RetiredQueueTest, LeavesWhatIsPinnedAndTakesItWhenThePinGoes) {
  const RootId root = cache_.open_root(key_of(1'000'001)).value();
  add(root, {1, 2, 3, 4});
  add(root, {1, 2, 5});
  const BlockId pinned = block_at(root, {1, 2, 3});
  cache_.pin(pinned);
  retire(root);
  EXPECT_EQ(drain().size(), 5U);
  EXPECT_EQ(cache_.tree().block_count(root), 3U);
  EXPECT_TRUE(queue_.empty());
  cache_.unpin(pinned);
  queue_.add_unpinned(pinned);
  EXPECT_EQ(drain().size(), 3U);
  EXPECT_EQ(cache_.tree().block_count(root), 0U);
}

TEST_F(RetiredQueueTest, GoesOnWhenOthersTakeBlocksFromUnderIt) {
  Prng prng(11);
  for (int round = 0; round < 50; ++round) {
    const RootId root =
        cache_.open_root(key_of(2'000'000 + static_cast<std::uint64_t>(round))).value();
    for (int i = 0; i < 20; ++i) {
      std::vector<Token> tokens(1 + prng.below(8));
      for (Token& token : tokens) token = static_cast<Token>(prng.below(2));
      add(root, tokens);
    }
    retire(root);
    std::uint32_t hops = kManyHops;
    while (!queue_.empty()) {
      const BlockId block = queue_.next(cache_, hops);
      if (!block.is_none()) give_up(block);
      // An eviction in between.
      const BlockId victim = cache_.victim(Tier::device);
      if (!victim.is_none() && prng.chance(1, 2)) cache_.drop_copy(victim, kGroup, Tier::device);
    }
    ASSERT_EQ(cache_.tree().block_count(root), 0U) << round;
  }
}

TEST_F(RetiredQueueTest, StopsWhenItsHopsRunOutAndGoesOnThere) {
  const RootId root = cache_.open_root(key_of(1'000'001)).value();
  add(root, std::vector<Token>(50, 1));
  retire(root);
  std::size_t came = 0;
  for (int calls = 0; calls < 1'000 && !queue_.empty(); ++calls) {
    std::uint32_t hops = 1;
    const BlockId block = queue_.next(cache_, hops);
    if (block.is_none()) continue;
    ++came;
    give_up(block);
  }
  EXPECT_EQ(came, 50U);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(RetiredQueueTest, ForgetsARootThatBecameAnotherNamespaces) {
  const RootId root = cache_.open_root(key_of(1'000'001)).value();
  add(root, {1, 2});
  retire(root);
  while (!cache_.victim(Tier::device).is_none()) {
    cache_.drop_copy(cache_.victim(Tier::device), kGroup, Tier::device);
  }
  cache_.rename_root(root, key_of(1'000'002));
  add(root, {1, 2});
  EXPECT_TRUE(drain().empty());
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(cache_.tree().block_count(root), 2U);
}

}  // namespace
}  // namespace kv::core
