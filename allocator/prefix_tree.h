// PrefixTree: a radix tree over blocks, one root per namespace. Topology and tokens only.
//
// A node is a run of blocks with consecutive BlockIds, so its tokens lie in one stretch of the
// token array and a match is a few memcmp. A node has at most run_blocks_max blocks; a longer path
// is a chain of nodes. Inserting below the last block of a childless node extends the run in place
// while the next id is free; inserting below an inner block splits the run: the tail keeps its
// NodeId (and so its children), the head gets a new one. A match never changes anything.
//
// Invariants: a child's first block differs from its siblings' (in tokens); no node is empty;
// parent, child and sibling links agree; depth(child) = depth(parent) + blocks of the parent.
// Owner: PrefixCache. Threads: none. No recursion. Memory is sized at construction, but the nodes:
// they come in chunks, up to one node a block, and are kept for reuse.
// Cost: match O(tokens compared + nodes passed); insert O(1), with a split O(run_blocks_max).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "allocator/flat_map.h"
#include "allocator/run_allocator.h"

namespace kv {

class PrefixTree {
 public:
  struct Options {
    std::uint32_t block_tokens = 16;
    std::uint32_t block_capacity = 0;  // blocks of all namespaces together
    std::uint32_t root_capacity = 64;
    std::uint32_t run_blocks_max = 128;
    std::uint64_t hash_seed = 0;  // secret in a service: keeps child look-up unpredictable
  };
  // Blocks first, first + 1, ... first + count - 1, each the child of the one before.
  struct Run {
    BlockId first;
    std::uint32_t count = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };
  // What an insert did to the topology, for those who keep per-node facts beside the tree.
  struct Inserted {
    BlockId block;
    NodeId split_head;  // set when a node was split: the new node with the blocks in front ...
    NodeId split_tail;  // ... and the old one, which keeps its id and its children
  };

  explicit PrefixTree(const Options& options);

  // The namespace's root, made on first sight. fails: exhausted (root_capacity).
  [[nodiscard]] Result<RootId> open_root(const Digest& namespace_digest);
  [[nodiscard]] RootId find_root(const Digest& namespace_digest) const;  // none() when unknown
  // An empty root, retired or not, becomes another namespace's: what gave way when open_root was
  // exhausted. requires: no child, and nobody keeps its RootId; the new namespace has no root.
  void rename_root(RootId root, const Digest& namespace_digest);
  // O(1): the namespace has no root any more. Whoever kept this RootId still reaches its blocks,
  // which can only be removed. requires: not retired.
  void retire_root(RootId root);
  [[nodiscard]] bool is_retired(RootId root) const { return roots_[root.value].retired; }
  [[nodiscard]] bool is_retired(BlockId block) const { return is_retired(root(block)); }
  [[nodiscard]] const Digest& namespace_digest(RootId root) const;
  [[nodiscard]] std::uint32_t root_count() const;       // retired ones included
  [[nodiscard]] std::uint32_t live_root_count() const;  // without them
  [[nodiscard]] std::uint32_t block_count(RootId root) const {
    return roots_[root.value].block_count;
  }
  [[nodiscard]] std::uint32_t retired_block_count() const { return retired_blocks_; }

  // Appends to `path` the runs of the longest known path of whole blocks of `tokens`, from the
  // root. Returns its number of blocks. Exact: compares every token. Const.
  std::uint32_t match(RootId root, std::span<const Token> tokens, std::vector<Run>& path) const;

  // Adds one block below `parent` (none(): at the root). requires: tokens.size() == block_tokens;
  // no such child exists. `expected_more`: how many blocks the caller means to add below this one,
  // so that room for a run is chosen. fails: exhausted (block_capacity); nothing changed then.
  [[nodiscard]] Result<Inserted> insert(RootId root, BlockId parent, std::span<const Token> tokens,
                                        std::uint32_t expected_more);
  // The child of `parent` (none(): of the root) with exactly these tokens, or none().
  [[nodiscard]] BlockId find_child(RootId root, BlockId parent,
                                   std::span<const Token> tokens) const;
  // requires: the block has no child.
  void remove(BlockId block);

  [[nodiscard]] bool contains(BlockId block) const;
  [[nodiscard]] BlockId parent(BlockId block) const;  // none() at the root
  [[nodiscard]] bool has_child(BlockId block) const;
  [[nodiscard]] std::uint32_t depth(BlockId block) const;  // index in its sequence: 0 is the first
  [[nodiscard]] RootId root(BlockId block) const;
  [[nodiscard]] std::span<const Token> tokens(BlockId block) const;

  // Nodes, for those who keep per-node facts and for listings.
  [[nodiscard]] NodeId node(BlockId block) const;
  [[nodiscard]] Run run(NodeId node) const;
  [[nodiscard]] NodeId parent_node(NodeId node) const;  // none() at the root
  [[nodiscard]] NodeId first_root_child(RootId root) const;
  [[nodiscard]] NodeId first_child(NodeId node) const;  // children hang below the run's last block
  [[nodiscard]] NodeId next_sibling(NodeId node) const;
  [[nodiscard]] std::uint32_t child_count(NodeId node) const;
  [[nodiscard]] std::uint32_t node_capacity() const;  // NodeId.value < node_capacity()

  [[nodiscard]] std::uint32_t block_tokens() const { return options_.block_tokens; }
  [[nodiscard]] std::uint32_t block_count() const { return block_count_; }
  [[nodiscard]] std::uint32_t node_count() const { return node_count_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] std::uint64_t bytes() const;  // memory held, tokens included

 private:
  struct Node {
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // 0: the node is free
    std::uint32_t depth = 0;
    std::uint32_t root = 0;
    std::uint32_t parent = 0;
    std::uint32_t first_child = 0;
    std::uint32_t next_sibling = 0;  // free nodes: the next free one
    std::uint32_t previous_sibling = 0;
    std::uint32_t child_count = 0;
  };
  struct Root {
    Digest digest;
    std::uint32_t first_child = 0;
    std::uint32_t child_count = 0;
    std::uint32_t block_count = 0;
    bool retired = false;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  // Nodes lie in chunks that are made when first needed and then kept.
  static constexpr std::uint32_t kChunkBits = 10;
  static constexpr std::uint32_t kChunkNodes = 1U << kChunkBits;

  [[nodiscard]] Node& at(std::uint32_t node) {
    return node_chunks_[node >> kChunkBits][node & (kChunkNodes - 1)];
  }
  [[nodiscard]] const Node& at(std::uint32_t node) const {
    return node_chunks_[node >> kChunkBits][node & (kChunkNodes - 1)];
  }
  [[nodiscard]] const Token* tokens_of(std::uint32_t block) const {
    return tokens_.get() + std::size_t{block} * options_.block_tokens;
  }
  // Where a child hangs: below a node, or at a root.
  [[nodiscard]] static std::uint32_t owner_of_root(std::uint32_t root) {
    return 0x80000000U | root;
  }
  [[nodiscard]] static bool is_root(std::uint32_t owner) { return (owner & 0x80000000U) != 0; }
  [[nodiscard]] std::uint32_t& first_child_of(std::uint32_t owner);
  [[nodiscard]] std::uint32_t first_child_of(std::uint32_t owner) const;
  [[nodiscard]] std::uint32_t& child_count_of(std::uint32_t owner);
  [[nodiscard]] std::uint32_t child_count_of(std::uint32_t owner) const;

  [[nodiscard]] std::uint64_t child_hash(std::uint32_t owner, const Token* tokens) const;
  // The child node of `owner` whose first block has these tokens, or kNone.
  [[nodiscard]] std::uint32_t find_child_node(std::uint32_t owner, const Token* tokens) const;
  [[nodiscard]] bool equal_blocks(std::uint32_t block, const Token* tokens,
                                  std::uint32_t block_count) const;
  // How many of the first `limit` blocks of a node equal `tokens`. requires: the first one does.
  [[nodiscard]] std::uint32_t equal_prefix(const Node& node, const Token* tokens,
                                           std::uint32_t limit) const;
  [[nodiscard]] std::uint32_t take_node();
  void give_node(std::uint32_t node);
  void link_child(std::uint32_t owner, std::uint32_t node);
  void unlink_child(std::uint32_t owner, std::uint32_t node);
  std::uint32_t split_after(std::uint32_t node, std::uint32_t block_count);
  void store(std::uint32_t block, std::uint32_t node, std::span<const Token> tokens);

  Options options_;
  std::uint64_t block_bytes_ = 0;  // of one block's tokens
  std::vector<Root> roots_;
  std::vector<std::unique_ptr<Node[]>> node_chunks_;
  std::uint32_t nodes_made_ = 0;        // nodes below this id were used at some time
  std::uint32_t free_node_ = kNone;     // a list through next_sibling
  std::unique_ptr<Token[]> tokens_;     // block_tokens a block, by BlockId
  std::vector<std::uint32_t> node_of_;  // by BlockId; kNone: the block is free
  RunAllocator free_blocks_;
  FlatMap children_;  // (owner, first block's tokens) -> node
  FlatMap root_of_;   // digest -> root, without the retired ones
  std::uint32_t retired_blocks_ = 0;
  std::uint32_t block_count_ = 0;
  std::uint32_t node_count_ = 0;
};

inline bool PrefixTree::contains(BlockId block) const {
  return block.value < node_of_.size() && node_of_[block.value] != kNone;
}

inline BlockId PrefixTree::parent(BlockId block) const {
  const Node& node = at(node_of_[block.value]);
  if (block.value > node.first) return BlockId(block.value - 1);
  if (node.parent == kNone) return BlockId::none();
  const Node& above = at(node.parent);
  return BlockId(above.first + above.count - 1);
}

inline bool PrefixTree::has_child(BlockId block) const {
  const Node& node = at(node_of_[block.value]);
  return block.value + 1 < node.first + node.count || node.child_count > 0;
}

inline std::uint32_t PrefixTree::depth(BlockId block) const {
  const Node& node = at(node_of_[block.value]);
  return node.depth + (block.value - node.first);
}

inline RootId PrefixTree::root(BlockId block) const {
  return RootId(at(node_of_[block.value]).root);
}

inline std::span<const Token> PrefixTree::tokens(BlockId block) const {
  return {tokens_of(block.value), options_.block_tokens};
}

inline NodeId PrefixTree::node(BlockId block) const { return NodeId(node_of_[block.value]); }

inline PrefixTree::Run PrefixTree::run(NodeId node) const {
  return Run{BlockId(at(node.value).first), at(node.value).count};
}

inline NodeId PrefixTree::parent_node(NodeId node) const { return NodeId(at(node.value).parent); }

inline NodeId PrefixTree::first_root_child(RootId root) const {
  return NodeId(roots_[root.value].first_child);
}

inline NodeId PrefixTree::first_child(NodeId node) const {
  return NodeId(at(node.value).first_child);
}

inline NodeId PrefixTree::next_sibling(NodeId node) const {
  return NodeId(at(node.value).next_sibling);
}

inline std::uint32_t PrefixTree::child_count(NodeId node) const {
  return at(node.value).child_count;
}

inline std::uint32_t PrefixTree::node_capacity() const { return options_.block_capacity; }

}  // namespace kv
