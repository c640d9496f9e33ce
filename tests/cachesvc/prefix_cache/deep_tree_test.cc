// The deepest tree there can be, on a stack that no recursion would fit.
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include "cachesvc/core/prefix_cache.h"
#include "cachesvc/core/retired_queue.h"

namespace kv::core {
namespace {

constexpr GroupId kGroup{0};
constexpr std::uint32_t kBlockTokens = 16;
constexpr std::uint32_t kLevels = 65'536;
constexpr std::size_t kStackBytes = std::size_t{256} * 1'024;

Digest key_of(std::uint64_t number) {
  Digest digest;
  const std::uint64_t spread = number * 0x9E3779B97F4A7C15U;  // as far apart as real keys are
  for (std::size_t i = 0; i < 8; ++i) digest.bytes[i] = static_cast<std::byte>(spread >> (8 * i));
  return digest;
}

// Pinned, as a sequence pins its deepest block: what hangs above is covered already.
BlockId add_pinned(PrefixCache& cache, RootId root, BlockId parent, std::span<const Token> tokens,
                   std::uint64_t key) {
  const BlockId block = cache.insert_pinned(root, parent, tokens, key_of(key), 0).value();
  cache.add_copy(block, kGroup, Tier::device, cache.take_slot(Tier::device, kGroup).value());
  return block;
}

void evict_all(PrefixCache& cache) {
  while (!cache.victim(Tier::device).is_none()) {
    cache.drop_copy(cache.victim(Tier::device), kGroup, Tier::device);
  }
}

void clear_all(PrefixCache& cache, RootId root) {
  RetiredQueue queue;
  cache.retire_root(root);
  queue.add(root);
  std::uint32_t hops = 10 * kLevels;
  for (BlockId block = queue.next(cache, hops); !block.is_none(); block = queue.next(cache, hops)) {
    cache.drop_copy(block, kGroup, Tier::device);
  }
  EXPECT_TRUE(queue.empty());
}

void insert_look_up_split_and_remove(bool by_clear) {
  PrefixCache::Options options;
  options.layout.block_tokens = kBlockTokens;
  options.layout.groups.resize(1);
  options.slot_count = {2 * kLevels + 2, 0, 0};
  auto cache = std::make_unique<PrefixCache>(options);
  const RootId root = cache->open_root(Digest{}).value();
  std::vector<Token> tokens(std::size_t{kLevels} * kBlockTokens + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i % 251);
  BlockId parent = BlockId::none();
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    const auto own = std::span(tokens).subspan(std::size_t{level} * kBlockTokens, kBlockTokens);
    const BlockId above = parent;
    parent = add_pinned(*cache, root, above, own, 2 * level + 1);
    // A branch at every other level splits each run: as many levels of nodes as there can be.
    const std::vector<Token> branch(kBlockTokens, 1'000 + level);
    if (level % 2 == 0) cache->unpin(add_pinned(*cache, root, above, branch, 2 * level + 2));
    if (!above.is_none()) cache->unpin(above);
  }
  std::vector<BlockId> path;
  EXPECT_EQ(cache->match(root, tokens, path).hit_blocks, kLevels);
  EXPECT_EQ(std::uint64_t{kLevels} * kBlockTokens, 1'048'576U);
  EXPECT_GT(cache->tree().node_count(), kLevels / 2);
  EXPECT_TRUE(cache->is_covered(path.front()));
  cache->unpin(parent);
  EXPECT_FALSE(cache->is_covered(path.front()));
  if (by_clear) {
    clear_all(*cache, root);
  } else {
    evict_all(*cache);
  }
  EXPECT_EQ(cache->tree().node_count(), 0U);
  EXPECT_EQ(cache->tree().block_count(), 0U);
}

void run_on_a_small_stack(void* (*work)(void*)) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, work, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// SCENARIOS CRASH-10
TEST(DeepTree, Crash10AMillionTokensSixteenAtATimeNeedNoDeepStack) {
  run_on_a_small_stack([](void* /*unused*/) -> void* {
    insert_look_up_split_and_remove(false);
    return nullptr;
  });
}

TEST(DeepTree, IsClearedWithoutADeepStack) {
  run_on_a_small_stack([](void* /*unused*/) -> void* {
    insert_look_up_split_and_remove(true);
    return nullptr;
  });
}

}  // namespace
}  // namespace kv::core
