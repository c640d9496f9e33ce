#include "allocator/prefix_tree.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv {
namespace {

using Path = std::vector<Token>;  // all tokens from the root to a block

Digest digest_of(std::uint8_t number) {
  Digest digest;
  digest.bytes.fill(static_cast<std::byte>(number));
  return digest;
}

std::vector<BlockId> blocks_of(const std::vector<PrefixTree::Run>& runs) {
  std::vector<BlockId> blocks;
  for (const auto& run : runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) blocks.emplace_back(run.first.value + i);
  }
  return blocks;
}

// The tree beside a map from (root, path) to block: everything is asked of both.
class TreeModel {
 public:
  explicit TreeModel(const PrefixTree::Options& options) : tree_(options) {}

  PrefixTree& tree() { return tree_; }
  [[nodiscard]] std::size_t size() const { return block_of_.size(); }
  [[nodiscard]] const std::map<std::pair<std::uint32_t, Path>, BlockId>& blocks() const {
    return block_of_;
  }

  void insert(RootId root, Path parent, std::span<const Token> tokens, std::uint32_t more) {
    const BlockId above = parent.empty() ? BlockId::none() : block_of_.at({root.value, parent});
    Path path = std::move(parent);
    path.insert(path.end(), tokens.begin(), tokens.end());
    const auto known = block_of_.find({root.value, path});
    const BlockId found = tree_.find_child(root, above, tokens);
    ASSERT_EQ(found, known == block_of_.end() ? BlockId::none() : known->second);
    if (!found.is_none()) return;
    const auto inserted = tree_.insert(root, above, tokens, more);
    ASSERT_EQ(inserted.has_value(), size() < tree_.options().block_capacity);
    if (!inserted.has_value()) {
      ASSERT_EQ(inserted.error().code, ErrorCode::exhausted);
      return;
    }
    if (!inserted->split_head.is_none()) {
      ASSERT_EQ(tree_.parent_node(inserted->split_tail), inserted->split_head);
    }
    for (const auto& entry : block_of_) ASSERT_NE(entry.second, inserted->block);
    block_of_[{root.value, path}] = inserted->block;
  }

  void remove(const std::pair<std::uint32_t, Path>& where) {
    const BlockId block = block_of_.at(where);
    ASSERT_EQ(tree_.has_child(block), has_child(where));
    if (has_child(where)) return;
    tree_.remove(block);
    ASSERT_FALSE(tree_.contains(block));
    block_of_.erase(where);
  }

  void check_match(RootId root, const Path& tokens) {
    const std::size_t block_tokens = tree_.block_tokens();
    std::vector<BlockId> expected;
    for (std::size_t end = block_tokens; end <= tokens.size(); end += block_tokens) {
      const Path prefix(tokens.begin(), tokens.begin() + static_cast<long>(end));
      const auto it = block_of_.find({root.value, prefix});
      if (it == block_of_.end()) break;
      expected.push_back(it->second);
    }
    std::vector<PrefixTree::Run> runs;
    ASSERT_EQ(tree_.match(root, tokens, runs), expected.size());
    ASSERT_EQ(blocks_of(runs), expected);
  }

  void check_everything() {
    const std::size_t block_tokens = tree_.block_tokens();
    ASSERT_EQ(tree_.block_count(), size());
    std::set<NodeId> nodes;
    for (const auto& [where, block] : block_of_) {
      const auto& [root, path] = where;
      ASSERT_TRUE(tree_.contains(block));
      ASSERT_EQ(tree_.root(block), RootId(root));
      ASSERT_EQ(tree_.depth(block) + 1, path.size() / block_tokens);
      ASSERT_TRUE(std::ranges::equal(tree_.tokens(block), std::span(path).last(block_tokens)));
      const Path above(path.begin(), path.end() - static_cast<long>(block_tokens));
      ASSERT_EQ(tree_.parent(block), above.empty() ? BlockId::none() : block_of_.at({root, above}));
      ASSERT_EQ(tree_.has_child(block), has_child(where));
      nodes.insert(tree_.node(block));
    }
    ASSERT_EQ(tree_.node_count(), nodes.size());
    check_nodes(nodes);
  }

 private:
  [[nodiscard]] bool has_child(const std::pair<std::uint32_t, Path>& where) const {
    const auto next = std::next(block_of_.find(where));  // paths below a path follow it in order
    return next != block_of_.end() && next->first.first == where.first &&
           next->first.second.size() > where.second.size() &&
           std::equal(where.second.begin(), where.second.end(), next->first.second.begin());
  }

  void check_nodes(const std::set<NodeId>& nodes) {
    std::set<NodeId> reached;
    std::vector<NodeId> open;
    const auto add_children = [&](NodeId first, NodeId parent, std::uint32_t expected) {
      std::uint32_t count = 0;
      for (NodeId child = first; !child.is_none(); child = tree_.next_sibling(child)) {
        ASSERT_EQ(tree_.parent_node(child), parent);
        ASSERT_TRUE(reached.insert(child).second);
        open.push_back(child);
        ++count;
      }
      ASSERT_TRUE(parent.is_none() || count == expected);
    };
    for (std::uint32_t root = 0; root < tree_.root_count(); ++root) {
      add_children(tree_.first_root_child(RootId(root)), NodeId::none(), 0);
    }
    while (!open.empty()) {
      const NodeId node = open.back();
      open.pop_back();
      const auto run = tree_.run(node);
      ASSERT_GT(run.count, 0U);
      ASSERT_LE(run.count, tree_.options().run_blocks_max);
      ASSERT_LT(node.value, tree_.node_capacity());
      for (std::uint32_t i = 0; i < run.count; ++i) {
        ASSERT_EQ(tree_.node(BlockId(run.first.value + i)), node);
      }
      add_children(tree_.first_child(node), node, tree_.child_count(node));
    }
    ASSERT_EQ(reached, nodes);
  }

  PrefixTree tree_;
  std::map<std::pair<std::uint32_t, Path>, BlockId> block_of_;
};

void run_random(std::uint64_t seed, std::uint32_t capacity, int operations, int check_every) {
  Prng prng(seed);
  const std::uint32_t block_tokens = 1U << prng.below(6);
  TreeModel model({.block_tokens = block_tokens,
                   .block_capacity = capacity,
                   .root_capacity = 2,
                   .run_blocks_max = static_cast<std::uint32_t>(1 + prng.below(6)),
                   .hash_seed = seed});
  for (std::uint8_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(model.tree().open_root(digest_of(i)).has_value());
  }
  const auto random_block = [&] {
    Path tokens(block_tokens, 0);
    tokens[prng.below(block_tokens)] = static_cast<Token>(prng.below(2));
    tokens.back() ^= static_cast<Token>(prng.below(2));
    return tokens;
  };
  for (int op = 0; op < operations; ++op) {
    const RootId root(static_cast<std::uint32_t>(prng.below(2)));
    auto where = model.blocks().begin();
    if (model.size() > 0) std::advance(where, static_cast<long>(prng.below(model.size())));
    if (prng.chance(3, 5)) {
      const bool below = model.size() > 0 && prng.chance(7, 8);
      model.insert(below ? RootId(where->first.first) : root, below ? where->first.second : Path{},
                   random_block(), static_cast<std::uint32_t>(prng.below(8)));
    } else if (model.size() > 0) {
      model.remove(where->first);
    }
    if (testing::Test::HasFatalFailure()) return;
    Path tokens =
        model.size() > 0 && prng.chance(3, 4) ? model.blocks().rbegin()->first.second : Path{};
    for (std::uint64_t i = prng.below(4); i > 0; --i) {
      const Path more = random_block();
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    tokens.resize(tokens.size() + prng.below(block_tokens), 1);
    model.check_match(root, tokens);
    if (op % check_every == 0) model.check_everything();
    if (testing::Test::HasFatalFailure()) return;
  }
  model.check_everything();
}

TEST(PrefixTree, EqualsAMapOfPathsUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    run_random(seed, static_cast<std::uint32_t>(2 + seed % 19), 200, 1);
    if (HasFatalFailure()) return;
  }
}

TEST(PrefixTree, EqualsAMapOfPathsWhenItIsLarge) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    run_random(seed, 3000, 6000, 500);
    if (HasFatalFailure()) return;
  }
}

TEST(PrefixTree, KeepsASequenceInOneRunThatGrowsInPlace) {
  PrefixTree tree({.block_tokens = 4, .block_capacity = 1000, .run_blocks_max = 128});
  const RootId root = tree.open_root(digest_of(1)).value();
  BlockId parent = BlockId::none();
  for (Token i = 0; i < 100; ++i) {
    const Token tokens[4] = {i, i, i, i};
    const auto inserted = tree.insert(root, parent, tokens, 99 - i);
    ASSERT_TRUE(inserted.has_value());
    parent = inserted->block;
  }
  EXPECT_EQ(tree.node_count(), 1U);
  EXPECT_EQ(tree.run(tree.node(parent)).count, 100U);
}

TEST(PrefixTree, LeavesRoomForSequencesThatGrowInTurns) {
  PrefixTree tree({.block_tokens = 4, .block_capacity = 1024, .run_blocks_max = 128});
  const RootId root = tree.open_root(digest_of(1)).value();
  std::vector<BlockId> parents(8, BlockId::none());
  for (Token i = 0; i < 64; ++i) {
    for (Token sequence = 0; sequence < 8; ++sequence) {
      const Token tokens[4] = {sequence, i, i, i};
      const auto inserted = tree.insert(root, parents[sequence], tokens, 63 - i);
      ASSERT_TRUE(inserted.has_value());
      parents[sequence] = inserted->block;
    }
  }
  EXPECT_EQ(tree.node_count(), 8U);
}

TEST(PrefixTree, SplitsARunBelowAnInnerBlockAndKeepsTheTailsId) {
  PrefixTree tree({.block_tokens = 1, .block_capacity = 16});
  const RootId root = tree.open_root(digest_of(1)).value();
  std::vector<BlockId> path;
  for (Token i = 0; i < 6; ++i) {
    const auto inserted = tree.insert(root, i == 0 ? BlockId::none() : path.back(), {{i}}, 5 - i);
    path.push_back(inserted.value().block);
  }
  const NodeId tail = tree.node(path[5]);
  const auto inserted = tree.insert(root, path[2], {{99}}, 0).value();
  EXPECT_EQ(inserted.split_tail, tail);
  EXPECT_EQ(tree.node(path[5]), tail);
  EXPECT_EQ(tree.run(tail), (PrefixTree::Run{path[3], 3}));
  EXPECT_EQ(tree.run(inserted.split_head), (PrefixTree::Run{path[0], 3}));
  EXPECT_EQ(tree.child_count(inserted.split_head), 2U);
  EXPECT_EQ(tree.depth(path[5]), 5U);
  EXPECT_EQ(tree.depth(inserted.block), 3U);
}

TEST(PrefixTree, RefusesMoreNamespacesThanItsCapacity) {
  PrefixTree tree({.block_capacity = 4, .root_capacity = 2});
  const RootId first = tree.open_root(digest_of(1)).value();
  ASSERT_TRUE(tree.open_root(digest_of(2)).has_value());
  EXPECT_EQ(tree.open_root(digest_of(3)).error().code, ErrorCode::exhausted);
  EXPECT_EQ(tree.open_root(digest_of(1)).value(), first);
  EXPECT_TRUE(tree.find_root(digest_of(3)).is_none());
  EXPECT_EQ(tree.namespace_digest(first), digest_of(1));
  EXPECT_EQ(tree.root_count(), 2U);
}

TEST(PrefixTree, AnEmptyRootBecomesAnotherNamespaces) {
  PrefixTree tree({.block_tokens = 1, .block_capacity = 4, .root_capacity = 1});
  Digest first;
  Digest second;
  second.bytes[0] = std::byte{1};
  const auto root = tree.open_root(first);
  ASSERT_TRUE(root);
  EXPECT_EQ(tree.open_root(second).error().code, ErrorCode::exhausted);
  tree.rename_root(*root, second);
  EXPECT_TRUE(tree.find_root(first).is_none());
  EXPECT_EQ(tree.find_root(second), *root);
  EXPECT_EQ(tree.namespace_digest(*root), second);
  EXPECT_EQ(tree.root_count(), 1U);
}

}  // namespace
}  // namespace kv
