#include "tools/cachesim/leaf_oracle.h"

#include <algorithm>
#include <tuple>

#include "tools/cachesim/compute_cost.h"

namespace kv::cachesim {

LeafOracle::LeafOracle(const Trace& trace, std::uint32_t capacity, LeafRule rule)
    : trace_(trace), capacity_(capacity), rule_(rule), blocks_(trace.unique_blocks()) {}

// Operations of a block's tokens, taken to stand in its middle, over those of the linear layers. In
// this order of operations: sums that are equal but for rounding decide between blocks.
double LeafOracle::cost(double depth) const {
  constexpr auto kLinear = static_cast<double>(kLinearFlops);
  const double tokens = trace_.block_tokens > 0 ? trace_.block_tokens : 1;
  const double in_front = tokens * depth + tokens / 2;
  return (kLinear + static_cast<double>(kAttentionFlops) * in_front) / kLinear;
}

bool LeafOracle::Entry::operator<(const Entry& other) const {
  return std::tuple(other.key, other.last_use, depth, other.block) <
         std::tuple(key, last_use, other.depth, block);
}

void LeafOracle::use(std::uint32_t id) {
  Block& block = blocks_[id];
  ++block.version;
  if (!block.cached && rule_ != LeafRule::lfu_persistent) block.uses = 0;
  ++block.uses;
  if (rule_ != LeafRule::fifo) block.last_use = now_;
  const double depth = trace_.depths[id];
  switch (rule_) {
    case LeafRule::lru:
      block.key = now_;
      break;
    case LeafRule::fifo:
      if (!block.cached) block.key = now_;
      break;
    case LeafRule::lfu:
    case LeafRule::lfu_persistent:
      block.key = block.uses;
      break;
    case LeafRule::lfu_da:
      block.key = age_ + block.uses;
      break;
    case LeafRule::gdsf_flop:
      block.key = age_ + block.uses * cost(depth);
      break;
    case LeafRule::deepest_first:
      block.key = -depth;
      break;
  }
}

void LeafOracle::push_if_leaf(std::uint32_t id) {
  const Block& block = blocks_[id];
  if (!block.cached || block.children > 0) return;
  leaves_.push({block.key, block.last_use, trace_.depths[id], id, block.version});
}

bool LeafOracle::evict() {
  while (!leaves_.empty()) {
    const Entry entry = leaves_.top();
    leaves_.pop();
    Block& block = blocks_[entry.block];
    if (block.version != entry.version || !block.cached || block.children > 0) continue;
    block.cached = false;
    ++block.version;
    --size_;
    age_ = std::max(age_, block.key);
    const std::uint32_t parent = trace_.parents[entry.block];
    if (parent != kNoBlock) {
      --blocks_[parent].children;
      push_if_leaf(parent);
    }
    return true;
  }
  return false;
}

std::uint32_t LeafOracle::take(std::span<const std::uint32_t> blocks) {
  ++now_;
  std::uint32_t hits = 0;
  while (hits < blocks.size() && blocks_[blocks[hits]].cached) use(blocks[hits++]);
  // While the request is at hand its blocks are in no entry of the heap: the last one is a leaf,
  // and comes in when all is done; those in front of it have a child.
  std::uint32_t done = hits;
  for (; done < blocks.size(); ++done) {
    if (size_ == capacity_ && !evict()) break;
    use(blocks[done]);
    Block& block = blocks_[blocks[done]];
    block.cached = true;
    block.children = 0;
    ++size_;
    if (done > 0) ++blocks_[blocks[done - 1]].children;
  }
  if (done > 0) push_if_leaf(blocks[done - 1]);
  return hits;
}

}  // namespace kv::cachesim
