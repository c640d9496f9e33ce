// The tree at its limits: depth on a small stack, a million blocks in long and in one-block nodes.
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include "allocator/base/prng.h"
#include "allocator/prefix_tree.h"

namespace kv {
namespace {

constexpr std::size_t kSmallStackBytes = std::size_t{128} << 10U;

// Runs `work` on a thread whose stack would not survive recursion on depth.
void on_small_stack(void (*work)()) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kSmallStackBytes), 0);
  pthread_t thread{};
  const auto call = [](void* argument) -> void* {
    reinterpret_cast<void (*)()>(argument)();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, call, reinterpret_cast<void*>(work)), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

void build_and_clear_a_deep_chain() {
  constexpr std::uint32_t kDepth = 65'536;
  PrefixTree tree({.block_tokens = 1, .block_capacity = kDepth, .run_blocks_max = 1});
  const RootId root = tree.open_root(Digest{}).value();
  std::vector<Token> tokens(kDepth);
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < kDepth; ++i) {
    tokens[i] = i * 7;
    const BlockId parent = blocks.empty() ? BlockId::none() : blocks.back();
    blocks.push_back(tree.insert(root, parent, {&tokens[i], 1}, 0).value().block);
  }
  EXPECT_EQ(tree.node_count(), kDepth);
  EXPECT_EQ(tree.depth(blocks.back()), kDepth - 1);
  std::vector<PrefixTree::Run> path;
  EXPECT_EQ(tree.match(root, tokens, path), kDepth);
  EXPECT_EQ(path.size(), kDepth);
  for (; !blocks.empty(); blocks.pop_back()) tree.remove(blocks.back());
  EXPECT_EQ(tree.node_count(), 0U);
}

TEST(PrefixTreeScale, GoesAsDeepAsItsCapacityOnASmallStack) {
  on_small_stack(build_and_clear_a_deep_chain);
}

TEST(PrefixTreeScale, HoldsAMillionOneBlockPromptsAndClearsThem) {
  constexpr std::uint32_t kBlocks = 1'000'000;
  PrefixTree tree({.block_tokens = 16, .block_capacity = kBlocks, .hash_seed = 3});
  const RootId root = tree.open_root(Digest{}).value();
  const auto prompt = [](std::uint32_t number) {
    std::vector<Token> tokens(16, 1);
    tokens[number % 16] = number + 2;
    return tokens;
  };
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    ASSERT_TRUE(tree.insert(root, BlockId::none(), prompt(i), 0).has_value());
  }
  EXPECT_EQ(tree.insert(root, BlockId::none(), prompt(kBlocks), 0).error().code,
            ErrorCode::exhausted);
  EXPECT_EQ(tree.node_count(), kBlocks);
  Prng prng(1);
  for (int i = 0; i < 10'000; ++i) {
    const auto number = static_cast<std::uint32_t>(prng.below(std::uint64_t{2} * kBlocks));
    const BlockId found = tree.find_child(root, BlockId::none(), prompt(number));
    ASSERT_EQ(!found.is_none(), number < kBlocks);
  }
  for (std::uint32_t i = 0; i < kBlocks; ++i) tree.remove(BlockId(i));
  EXPECT_EQ(tree.block_count(), 0U);
  EXPECT_EQ(tree.node_count(), 0U);
}

TEST(PrefixTreeScale, HoldsAChainOfAMillionBlocksInLongNodes) {
  constexpr std::uint32_t kBlocks = 1'000'000;
  PrefixTree tree({.block_tokens = 16, .block_capacity = kBlocks});
  const RootId root = tree.open_root(Digest{}).value();
  std::vector<Token> tokens(std::size_t{kBlocks} * 16);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i);
  BlockId parent;
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    parent = tree.insert(root, parent, std::span(tokens).subspan(std::size_t{i} * 16, 16),
                         kBlocks - 1 - i)
                 .value()
                 .block;
  }
  EXPECT_EQ(tree.node_count(), (kBlocks + 127) / 128);
  std::vector<PrefixTree::Run> path;
  EXPECT_EQ(tree.match(root, tokens, path), kBlocks);
  while (!parent.is_none()) {
    const BlockId above = tree.parent(parent);
    tree.remove(parent);
    parent = above;
  }
  EXPECT_EQ(tree.block_count(), 0U);
}

}  // namespace
}  // namespace kv
