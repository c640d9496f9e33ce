#include "cachesvc/core/prefix_cache.h"

#include <list>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "allocator/block_key.h"

namespace kv::core {
namespace {

constexpr GroupId kGroup{0};

PrefixCache::Options one_tier(std::uint32_t slots, std::uint32_t block_tokens) {
  PrefixCache::Options options;
  options.layout.block_tokens = block_tokens;
  options.layout.groups.resize(1);
  options.slot_count = {slots, 0, 0};
  return options;
}

Digest key_of(std::uint64_t number) {
  return sha256(std::as_bytes(std::span<const std::uint64_t>(&number, 1)));
}

// A device-only cache of one-token blocks that serves one request after another, as the reference
// counts of LLM prefix caches are defined.
class RequestReplay {
 public:
  explicit RequestReplay(std::uint32_t capacity)
      : capacity_(capacity), cache_(one_tier(capacity, 1)) {
    root_ = cache_.open_root(Digest{}).value();
  }

  // Returns the hit blocks.
  std::uint32_t serve(const std::vector<Token>& ids) {
    std::vector<Token> tokens = ids;
    tokens.push_back(0);  // one token is always computed
    std::vector<BlockId> path;
    const auto match = cache_.match(root_, tokens, path);
    EXPECT_EQ(match.hit_blocks, match.known_blocks);
    const std::size_t kept = std::min<std::size_t>(ids.size(), capacity_);
    BlockId deepest = path.empty() ? BlockId::none() : path[std::min(path.size(), kept) - 1];
    if (!deepest.is_none()) cache_.pin(deepest);
    for (std::size_t i = path.size(); i < kept; ++i) {
      if (cache_.pool(Tier::device, kGroup).count(SlotState::free) == 0) evict();
      const auto left = static_cast<std::uint32_t>(kept - i - 1);
      const BlockId block =
          cache_.insert_pinned(root_, deepest, {&ids[i], 1}, key_of(next_key_++), left).value();
      cache_.add_copy(block, kGroup, Tier::device, cache_.take_slot(Tier::device, kGroup).value());
      if (!deepest.is_none()) cache_.unpin(deepest);
      deepest = block;
    }
    if (!deepest.is_none()) {
      cache_.touch(deepest);
      cache_.unpin(deepest);
    }
    return match.hit_blocks;
  }

 private:
  void evict() {
    const BlockId victim = cache_.victim(Tier::device);
    ASSERT_FALSE(victim.is_none());
    cache_.drop_copy(victim, kGroup, Tier::device);
  }
  std::uint32_t capacity_;
  PrefixCache cache_;
  RootId root_;
  std::uint64_t next_key_ = 0;
};

// Flat LRU over (prefix) paths, touched tail to head: the published equal of leaf-first LRU.
class FlatLru {
 public:
  explicit FlatLru(std::size_t capacity) : capacity_(capacity) {}
  std::uint32_t serve(const std::vector<Token>& ids) {
    std::vector<std::vector<Token>> paths;
    for (std::size_t n = 1; n <= ids.size(); ++n) {
      paths.emplace_back(ids.begin(), ids.begin() + static_cast<long>(n));
    }
    std::uint32_t hits = 0;
    while (hits < paths.size() && where_.contains(paths[hits])) ++hits;
    if (paths.size() > capacity_) paths.resize(capacity_);
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
      if (const auto it = where_.find(*path); it != where_.end()) order_.erase(it->second);
      order_.push_back(*path);
      where_[*path] = std::prev(order_.end());
    }
    while (order_.size() > capacity_) {
      where_.erase(order_.front());
      order_.pop_front();
    }
    return hits;
  }

 private:
  std::size_t capacity_;
  std::list<std::vector<Token>> order_;
  std::map<std::vector<Token>, std::list<std::vector<Token>>::iterator> where_;
};

TEST(PrefixCache, EvictsAsFlatLruTouchedFromTailToHeadDoes) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    const auto capacity = static_cast<std::uint32_t>(2 + prng.below(30));
    RequestReplay replay(capacity);
    FlatLru model(capacity);
    for (int request = 0; request < 100; ++request) {
      std::vector<Token> ids(1 + prng.below(10));
      for (auto& id : ids) id = static_cast<Token>(prng.below(3));
      ASSERT_EQ(replay.serve(ids), model.serve(ids)) << "request " << request;
    }
  }
}

TEST(PrefixCache, AlwaysLeavesOneTokenToCompute) {
  PrefixCache cache(one_tier(4, 4));
  const RootId root = cache.open_root(Digest{}).value();
  const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  BlockId parent;
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto block = cache.insert_pinned(
        root, parent, std::span(tokens).subspan(std::size_t{4} * i, 4), key_of(i), 1 - i);
    cache.add_copy(*block, kGroup, Tier::device, cache.take_slot(Tier::device, kGroup).value());
    parent = *block;
  }
  for (std::size_t length = 0; length <= 8; ++length) {
    std::vector<BlockId> path;
    const auto match = cache.match(root, std::span(tokens).first(length), path);
    EXPECT_EQ(match.hit_blocks, length == 0 ? 0 : (length - 1) / 4);
  }
}

TEST(PrefixCache, ReLinksTheRestWhenAHoleIsFilledAgain) {
  PrefixCache cache(one_tier(4, 1));
  const RootId root = cache.open_root(Digest{}).value();
  const std::vector<Token> tokens = {1, 2, 3, 4};
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const BlockId parent = blocks.empty() ? BlockId::none() : blocks.back();
    blocks.push_back(*cache.insert_pinned(root, parent, {&tokens[i], 1}, key_of(i), 2 - i));
    cache.add_copy(blocks[i], kGroup, Tier::device, cache.take_slot(Tier::device, kGroup).value());
  }
  for (const BlockId block : blocks) cache.unpin(block);
  cache.drop_copy(blocks[1], kGroup, Tier::device);  // quarantined
  std::vector<BlockId> path;
  auto match = cache.match(root, tokens, path);
  EXPECT_EQ(match.known_blocks, 3U);
  EXPECT_EQ(match.hit_blocks, 1U);
  EXPECT_EQ(cache.hole_count(), 1U);
  const BlockId again = *cache.insert_pinned(root, blocks[0], {&tokens[1], 1}, key_of(1), 0);
  EXPECT_EQ(again, blocks[1]);
  cache.add_copy(again, kGroup, Tier::device, cache.take_slot(Tier::device, kGroup).value());
  match = cache.match(root, tokens, path);
  EXPECT_EQ(match.hit_blocks, 3U);
  EXPECT_EQ(cache.hole_count(), 0U);
}

TEST(PrefixCache, ForgetsAHoleWithItsLastDescendant) {
  PrefixCache cache(one_tier(4, 1));
  const RootId root = cache.open_root(Digest{}).value();
  const Token tokens[] = {1, 2};
  const BlockId parent = *cache.insert_pinned(root, BlockId::none(), {tokens, 1}, key_of(1), 1);
  const BlockId child = *cache.insert_pinned(root, parent, {tokens + 1, 1}, key_of(2), 0);
  for (const BlockId block : {parent, child}) {
    cache.add_copy(block, kGroup, Tier::device, cache.take_slot(Tier::device, kGroup).value());
    cache.unpin(block);
  }
  cache.drop_copy(parent, kGroup, Tier::device);
  EXPECT_EQ(cache.hole_count(), 1U);
  cache.drop_copy(child, kGroup, Tier::device);
  EXPECT_EQ(cache.hole_count(), 0U);
  EXPECT_EQ(cache.tree().block_count(), 0U);
  EXPECT_TRUE(cache.find_key(key_of(1)).is_none());
}

// Two children at every level, so that every node is one block and a pin has to climb them all.
TEST(PrefixCache, PinsAndClearsATreeOf65536Levels) {
  constexpr std::uint32_t kDepth = 65'536;
  PrefixCache cache(one_tier(2 * kDepth, 1));
  const RootId root = cache.open_root(Digest{}).value();
  BlockId deepest;
  std::uint64_t number = 0;
  for (std::uint32_t level = 0; level < kDepth; ++level) {
    BlockId children[2];
    for (Token token = 0; token < 2; ++token) {
      children[token] =
          cache.insert_pinned(root, deepest, {&token, 1}, key_of(number++), 0).value();
      const SlotId slot = cache.take_slot(Tier::device, kGroup).value();
      cache.add_copy(children[token], kGroup, Tier::device, slot);
    }
    if (!deepest.is_none()) cache.unpin(deepest);
    cache.unpin(children[1]);
    deepest = children[0];
  }
  cache.touch(deepest);
  EXPECT_EQ(cache.covered_count(Tier::device, kGroup), kDepth);
  EXPECT_EQ(cache.evictable(Tier::device, kGroup), kDepth);
  cache.unpin(deepest);
  EXPECT_EQ(cache.covered_count(Tier::device, kGroup), 0U);
  cache.pin(deepest);
  EXPECT_EQ(cache.covered_count(Tier::device, kGroup), kDepth);
  cache.unpin(deepest);
  std::uint32_t dropped = 0;
  for (BlockId block = cache.victim(Tier::device); !block.is_none();
       block = cache.victim(Tier::device)) {
    cache.drop_copy(block, kGroup, Tier::device);
    ++dropped;
  }
  EXPECT_EQ(dropped, 2 * kDepth);
  EXPECT_EQ(cache.tree().block_count(), 0U);
}

}  // namespace
}  // namespace kv::core
