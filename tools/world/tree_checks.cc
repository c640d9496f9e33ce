#include "tools/world/tree_checks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "allocator/block_key.h"
#include "cachesvc/core/prefix_cache.h"

namespace kv::world {
namespace {

using core::PrefixCache;

std::string name_of(BlockId block) { return "block " + std::to_string(block.value); }

class TreeChecker {
 public:
  TreeChecker(const PrefixCache& cache, const Known& known, std::vector<std::string>& problems)
      : cache_(cache), tree_(cache.tree()), known_(known), problems_(problems) {}

  void blocks() {
    std::uint32_t block_count = 0;
    std::uint32_t holes = 0;
    for (std::uint32_t b = 0; b < cache_.records().block_capacity(); ++b) {
      const BlockId block{b};
      if (!tree_.contains(block)) continue;
      ++block_count;
      links(block);
      identity(block);
      siblings(block);
      for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
        prefix_closed(block, static_cast<Tier>(t));
      }
      if (!has_copy_of_any_group(block)) {
        if (!tree_.has_child(block) && cache_.records().pins(block) == 0) {
          problem(name_of(block) + " has no copy, no child and no pin, but is in the tree");
        }
        if (tree_.has_child(block)) ++holes;
      }
    }
    if (block_count != tree_.block_count()) problem("the tree's block count is wrong");
    root_gauges();
    hole_gauge(holes);
  }

  void nodes() {
    std::uint32_t node_count = 0;
    std::uint32_t block_count = 0;
    std::vector<NodeId> waiting;
    for (std::uint32_t r = 0; r < tree_.root_count(); ++r) {
      for (NodeId node = tree_.first_root_child(RootId{r}); !node.is_none();
           node = tree_.next_sibling(node)) {
        if (!tree_.parent_node(node).is_none()) problem("a root's child has a parent");
        waiting.push_back(node);
      }
    }
    while (!waiting.empty()) {
      const NodeId node = waiting.back();
      waiting.pop_back();
      if (++node_count > tree_.node_capacity()) break;  // a cycle: the counts below differ
      const auto run = tree_.run(node);
      if (run.count == 0) problem("an empty node");
      block_count += run.count;
      run_links(node, run);
      std::uint32_t children = 0;
      for (NodeId child = tree_.first_child(node); !child.is_none();
           child = tree_.next_sibling(child)) {
        if (tree_.parent_node(child) != node) problem("a node's child names another parent");
        if (++children > tree_.node_capacity()) break;
        waiting.push_back(child);
      }
      if (children != tree_.child_count(node)) problem("a node's child count is wrong");
    }
    if (node_count != tree_.node_count()) problem("the tree's node count is wrong");
    if (block_count != tree_.block_count()) problem("the nodes do not hold all blocks");
  }

 private:
  void problem(const std::string& text) { problems_.push_back("18: " + text); }

  [[nodiscard]] bool has_copy_of_any_group(BlockId block) const {
    for (std::uint32_t g = 0; g < cache_.layout().groups.size(); ++g) {
      for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
        if (!cache_.records().slot(block, GroupId{g}, static_cast<Tier>(t)).is_none()) return true;
      }
    }
    return false;
  }

  void links(BlockId block) {
    const BlockId parent = tree_.parent(block);
    if (parent.is_none()) {
      if (tree_.depth(block) != 0) problem(name_of(block) + " has no parent at a depth above 0");
      return;
    }
    if (!tree_.contains(parent)) {
      problem(name_of(block) + " hangs below a block that is not in the tree");
      return;
    }
    if (tree_.depth(block) != tree_.depth(parent) + 1) problem(name_of(block) + ": wrong depth");
    if (tree_.root(block) != tree_.root(parent)) problem(name_of(block) + ": other root");
  }

  // The key is the chain of all tokens to here; the key index finds the block.
  void identity(BlockId block) {
    const BlockId parent = tree_.parent(block);
    const Digest& previous =
        parent.is_none() ? tree_.namespace_digest(tree_.root(block)) : cache_.records().key(parent);
    if (next_block_key(previous, tree_.tokens(block)) != cache_.records().key(block)) {
      problem(name_of(block) + ": its key is not that of its tokens");
    }
    const bool found = cache_.find_key(cache_.records().key(block)) == block;
    if (found == tree_.is_retired(block)) {
      problem(name_of(block) + (found ? " was cleared, and is" : " is not") + " found by its key");
    }
  }

  void siblings(BlockId block) {
    const BlockId found =
        tree_.find_child(tree_.root(block), tree_.parent(block), tree_.tokens(block));
    if (found != block) problem(name_of(block) + " is not found below its parent");
    const auto tokens = tree_.tokens(block);
    auto key = std::make_pair(std::make_pair(tree_.root(block), tree_.parent(block)),
                              std::vector<Token>(tokens.begin(), tokens.end()));
    if (!seen_.emplace(std::move(key), block).second) {
      problem(name_of(block) + " has a sibling with the same tokens");
    }
  }

  void prefix_closed(BlockId block, Tier tier) {
    // What a Clear left behind is given up tier by tier.
    if (!cache_.has_copy(block, tier) || tree_.is_retired(block)) return;
    const BlockId parent = tree_.parent(block);
    if (parent.is_none() || cache_.has_copy(parent, tier)) return;
    const Digest& key = cache_.records().key(parent);
    if (known_.broken_keys != nullptr && known_.broken_keys->contains(key)) return;
    problem(name_of(block) + " has a copy in " + std::string(tier_name(tier)) +
            ", its parent has none");
  }

  void run_links(NodeId node, const PrefixTree::Run& run) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const BlockId block{run.first.value + i};
      if (!tree_.contains(block) || tree_.node(block) != node) {
        problem(name_of(block) + " is not in the node whose run names it");
        continue;
      }
      if (i > 0 && tree_.parent(block).value != block.value - 1) {
        problem(name_of(block) + " is not the child of the block in front in its run");
      }
    }
    const NodeId parent = tree_.parent_node(node);
    if (parent.is_none()) return;
    const auto above = tree_.run(parent);
    if (tree_.parent(run.first).value != above.first.value + above.count - 1) {
      problem("a node does not hang below its parent's last block");
    }
  }

  // Of each root, and of the retired ones together.
  void root_gauges() {
    std::vector<std::uint32_t> counted(tree_.root_count(), 0);
    for (std::uint32_t b = 0; b < cache_.records().block_capacity(); ++b) {
      if (tree_.contains(BlockId{b})) ++counted.at(tree_.root(BlockId{b}).value);
    }
    std::uint32_t retired = 0;
    for (std::uint32_t r = 0; r < counted.size(); ++r) {
      if (counted[r] != tree_.block_count(RootId{r})) problem("a root's block count is wrong");
      if (tree_.is_retired(RootId{r})) {
        retired += counted[r];
      } else if (tree_.find_root(tree_.namespace_digest(RootId{r})) != RootId{r}) {
        problem("a namespace does not find its root");
      }
    }
    if (retired != tree_.retired_block_count()) problem("1: the retired blocks' count is wrong");
  }

  void hole_gauge(std::uint32_t holes) {
    if (holes != cache_.hole_count()) {
      problem("hole_count() is " + std::to_string(cache_.hole_count()) + ", counted " +
              std::to_string(holes));
    }
  }

  const PrefixCache& cache_;
  const PrefixTree& tree_;
  const Known& known_;
  std::vector<std::string>& problems_;
  std::map<std::pair<std::pair<RootId, BlockId>, std::vector<Token>>, BlockId> seen_;
};

class PinChecker {
 public:
  PinChecker(const core::Engine& engine, std::vector<std::string>& problems)
      : engine_(engine),
        cache_(*engine.cache()),
        problems_(problems),
        expected_(cache_.records().block_capacity(), 0),
        covered_(cache_.records().block_capacity(), 0) {
    for (std::uint32_t i = 0; i < engine.sequence_count(); ++i) add(engine.sequence(i).deepest);
    for (std::uint32_t i = 0; i < engine.transfer_count(); ++i) {
      for (const BlockId block : engine.transfer(i).blocks) add(block);
    }
  }

  void balance() {
    for (std::uint32_t b = 0; b < expected_.size(); ++b) {
      const BlockId block{b};
      const std::uint32_t pins = cache_.records().pins(block);
      if (pins == 0 && expected_[b] == 0) continue;
      if (!cache_.tree().contains(block)) {
        problem("3: " + name_of(block) + " is pinned, but not in the tree");
        continue;
      }
      if (pins != expected_[b]) {
        problem("3: " + name_of(block) + " has " + std::to_string(pins) +
                " pins, its holders are " + std::to_string(expected_[b]));
      }
      cover(block);
    }
  }

  // Covered blocks and the gauges of covered and evictable blocks.
  void cover_gauges() {
    const auto groups = static_cast<std::uint32_t>(cache_.layout().groups.size());
    for (std::uint32_t b = 0; b < covered_.size(); ++b) {
      if (!cache_.tree().contains(BlockId{b})) continue;
      if (cache_.is_covered(BlockId{b}) != (covered_[b] != 0)) {
        problem("3: " + name_of(BlockId{b}) + ": covered is told wrongly");
      }
    }
    for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
      const auto tier = static_cast<Tier>(t);
      for (std::uint32_t g = 0; g < groups; ++g) gauges(tier, GroupId{g});
      victim(tier);
    }
  }

  // Neither end of a transfer is free; its blocks are covered and keep the copy that is read (4).
  void transfers() {
    for (std::uint32_t i = 0; i < engine_.transfer_count(); ++i) {
      const auto view = engine_.transfer(i);
      for (std::size_t n = 0; n < view.blocks.size(); ++n) {
        const BlockId block = view.blocks[n];
        const std::string name =
            "4: transfer " + std::to_string(view.id.value) + ", block " + std::to_string(n);
        if (cache_.pool(view.from, view.group).state(view.from_slots[n]) == SlotState::free) {
          problem(name + " reads a free slot");
        }
        if (cache_.pool(view.to, view.group).state(view.to_slots[n]) != SlotState::held) {
          problem(name + " writes a slot that is not held");
        }
        // A load from disk goes on from the host slots it landed in, which are no copies.
        const bool landed =
            view.from == Tier::host && view.to == Tier::device &&
            cache_.pool(view.from, view.group).state(view.from_slots[n]) == SlotState::held;
        if (!landed && cache_.records().slot(block, view.group, view.from) != view.from_slots[n]) {
          problem(name + " reads a slot that is no longer its block's copy");
        }
        const bool lands = view.from == Tier::disk;  // in slots of the sequence, makes no copy
        if (!lands && !cache_.records().arriving(block, view.to))
          problem(name + " is not told as arriving");
      }
    }
  }

 private:
  void problem(const std::string& text) { problems_.push_back(text); }
  void add(BlockId block) {
    if (!block.is_none()) ++expected_.at(block.value);
  }
  void cover(BlockId block) {
    for (BlockId b = block; !b.is_none() && covered_[b.value] == 0; b = cache_.tree().parent(b)) {
      covered_[b.value] = 1;
    }
  }
  void gauges(Tier tier, GroupId group) {
    std::uint32_t covered = 0;
    std::uint32_t cached = 0;
    for (std::uint32_t b = 0; b < covered_.size(); ++b) {
      if (cache_.records().slot(BlockId{b}, group, tier).is_none()) continue;
      ++cached;
      covered += covered_[b];
    }
    const std::string where(tier_name(tier));
    if (covered != cache_.covered_count(tier, group)) {
      problem("24: " + where + ": covered is told as " +
              std::to_string(cache_.covered_count(tier, group)) + ", counted " +
              std::to_string(covered));
    }
    if (cached - covered != cache_.evictable(tier, group)) {
      problem("24: " + where + ": evictable is told as " +
              std::to_string(cache_.evictable(tier, group)) + ", counted " +
              std::to_string(cached - covered));
    }
  }
  // Of some group: a restart may find a block of one group only.
  [[nodiscard]] bool has_slot(BlockId block, Tier tier) const {
    for (std::uint32_t g = 0; g < cache_.layout().groups.size(); ++g) {
      if (!cache_.records().slot(block, GroupId{g}, tier).is_none()) return true;
    }
    return false;
  }
  void victim(Tier tier) {
    const BlockId victim = cache_.victim(tier);
    if (victim.is_none()) {
      for (std::uint32_t g = 0; g < cache_.layout().groups.size(); ++g) {
        if (cache_.evictable(tier, GroupId{g}) == 0) continue;
        problem("3: " + std::string(tier_name(tier)) +
                ": blocks are evictable, no victim is named");
      }
      return;
    }
    if (!has_slot(victim, tier) || covered_[victim.value] != 0) {
      problem("4: the victim of " + std::string(tier_name(tier)) + " must not go");
    }
    for (std::uint32_t b = 0; b < covered_.size(); ++b) {
      if (!cache_.tree().contains(BlockId{b}) || cache_.tree().parent(BlockId{b}) != victim)
        continue;
      if (has_slot(BlockId{b}, tier)) {
        problem("18: the victim of " + std::string(tier_name(tier)) + " has a child in the tier");
      }
    }
  }

  const core::Engine& engine_;
  const PrefixCache& cache_;
  std::vector<std::string>& problems_;
  std::vector<std::uint32_t> expected_;  // pins that have a holder, by block
  std::vector<std::uint8_t> covered_;
};

}  // namespace

void check_tree(const core::Engine& engine, const Known& known,
                std::vector<std::string>& problems) {
  TreeChecker checker(*engine.cache(), known, problems);
  checker.blocks();
  checker.nodes();
}

void check_pins(const core::Engine& engine, std::vector<std::string>& problems) {
  PinChecker checker(engine, problems);
  checker.balance();
  checker.cover_gauges();
  checker.transfers();
}

}  // namespace kv::world
