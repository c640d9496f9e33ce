#include "cachesvc/core/retired_queue.h"

#include <algorithm>

namespace kv::core {

void RetiredQueue::add(RootId root) {
  passes_.push_back({root, NodeId::none(), 0, false});
  ++added_;
}

void RetiredQueue::add_unpinned(BlockId block) {
  if (unpinned_.empty() || unpinned_.back() != block) unpinned_.push_back(block);
}

BlockId RetiredQueue::next(const PrefixCache& cache, std::uint32_t& hops) {
  for (; hops > 0 && !empty(); --hops) {
    const BlockId block =
        unpinned_.empty() ? next_of_pass(cache, passes_.front()) : next_unpinned(cache);
    if (!block.is_none()) return block;
  }
  return BlockId::none();
}

// From a block that lost its pin upward, as far as nothing holds the path.
BlockId RetiredQueue::next_unpinned(const PrefixCache& cache) {
  const PrefixTree& tree = cache.tree();
  const BlockId block = unpinned_.back();
  const bool goes = tree.contains(block) && tree.is_retired(block) && !cache.is_covered(block) &&
                    !tree.has_child(block);
  const BlockId parent = goes ? tree.parent(block) : BlockId::none();
  if (parent.is_none()) {
    unpinned_.pop_back();
  } else {
    unpinned_.back() = parent;
  }
  return goes ? block : BlockId::none();
}

BlockId RetiredQueue::next_of_pass(const PrefixCache& cache, Pass& pass) {
  const PrefixTree& tree = cache.tree();
  if (!tree.is_retired(pass.root)) {  // it was empty, and is another namespace's now
    finish();
    return BlockId::none();
  }
  const bool stands = !pass.node.is_none() && tree.run(pass.node).count > 0 &&
                      tree.root(tree.run(pass.node).first) == pass.root;
  if (!stands) {
    begin(tree, pass);
    return BlockId::none();
  }
  const PrefixTree::Run run = tree.run(pass.node);
  if (pass.descending) {
    if (const NodeId child = tree.first_child(pass.node); !child.is_none()) {
      pass.node = child;
      return BlockId::none();
    }
    pass.descending = false;
    pass.left = run.count;
  }
  pass.left = std::min(pass.left, run.count);
  BlockId block = BlockId::none();
  if (pass.left > 0) block = BlockId(run.first.value + --pass.left);
  // The node may be gone when the cursor comes back: it leaves before its last block goes.
  if (pass.left == 0) move_on(tree, pass);
  return block;
}

void RetiredQueue::begin(const PrefixTree& tree, Pass& pass) {
  pass.node = tree.first_root_child(pass.root);
  pass.descending = true;
  if (pass.node.is_none()) finish();
}

void RetiredQueue::move_on(const PrefixTree& tree, Pass& pass) {
  const NodeId sibling = tree.next_sibling(pass.node);
  const NodeId above = tree.parent_node(pass.node);
  pass.descending = !sibling.is_none();
  pass.node = sibling.is_none() ? above : sibling;
  if (pass.node.is_none()) {
    finish();
    return;
  }
  pass.left = tree.run(pass.node).count;
}

void RetiredQueue::finish() {
  passes_.erase(passes_.begin());
  ++finished_;
}

}  // namespace kv::core
