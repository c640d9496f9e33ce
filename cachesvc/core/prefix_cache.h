// PrefixCache: the prefix tree, its block records, the block pools of every tier and the eviction
// order, kept consistent with each other. What is known, where its copies are, what may go.
//
// Copies: in tier t and group g a block has a copy or not; within a tier copies are prefix-closed
// (the parent of a block with a copy has one, or the block is at the root), except below a
// quarantined copy. A block without any copy but with descendants is a hole; one without either
// leaves the tree. Pins: a pin on a block covers it and all its ancestors; covered blocks lose no
// copy in any tier. Evictable in (t, g): a block with a copy, not covered, none of whose children
// has a copy in (t, g), and no transfer reads or writes that copy (transfers pin the block they
// read or fill). Eviction order of a tier: blocks with a copy in a lower tier first, then the
// unsaved; each by the policy of the tier (tiering/policies).
//
// Owner: the Engine. Threads: none. No allocation after construction, but in `path` arguments that
// grow. Cost: match O(tokens); insert, add_copy, drop_copy, victim O(1) or O(log n); pin and unpin
// O(blocks whose cover changes); touch O(path).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "allocator/block_pool.h"
#include "allocator/block_records.h"
#include "allocator/flat_map.h"
#include "allocator/kv_layout.h"
#include "allocator/prefix_tree.h"
#include "tiering/policies/eviction_order.h"

namespace kv::core {

class PrefixCache {
 public:
  struct Options {
    KvLayout layout;
    // Slots of every tier, equal for each group of the layout; a tier with 0 slots is off.
    std::array<std::uint32_t, BlockRecords::kSlotTiers> slot_count{};
    std::uint32_t root_capacity = 64;
    std::uint32_t hole_capacity = 1024;  // blocks without a copy that may be kept
    std::uint64_t hash_seed = 0;
    std::array<PolicyKind, BlockRecords::kSlotTiers> policies{};  // lru
    RecomputeCost recompute_cost;                                 // of one block: for gdsf
  };
  // What metadata_bytes() can reach with these; LRU in every tier. requires: as the constructor.
  [[nodiscard]] static std::uint64_t bytes_max(const Options& options);
  // requires: validate(layout) passed.
  explicit PrefixCache(const Options& options);

  // --- namespaces
  [[nodiscard]] Result<RootId> open_root(const Digest& namespace_digest) {
    return tree_.open_root(namespace_digest);
  }
  // requires: as PrefixTree::rename_root.
  void rename_root(RootId root, const Digest& namespace_digest) {
    tree_.rename_root(root, namespace_digest);
  }

  // O(1): what the namespace holds is out of every match from here on, and is only given up.
  // requires: as PrefixTree::retire_root.
  void retire_root(RootId root) { tree_.retire_root(root); }

  // --- match: const, pins nothing.
  struct Match {
    std::uint32_t known_blocks = 0;  // longest path in the tree, holes included
    std::uint32_t hit_blocks = 0;    // leading blocks of it with a copy of every group in some tier
    std::array<std::uint32_t, kTierCount> hit_blocks_by_tier{};  // of the hit, by fastest copy
  };
  // Considers at most floor((tokens - 1) / B) blocks: one token is always computed. Appends one
  // BlockId for every known block to `path`.
  Match match(RootId root, std::span<const Token> tokens, std::vector<BlockId>& path) const;
  // The same of all whole blocks of `tokens`.
  Match match_blocks(RootId root, std::span<const Token> tokens, std::vector<BlockId>& path) const;

  // --- insert: a child of `parent` (none(): the root) with these B tokens. Returns the one that
  // exists, or makes it, without a copy and with one pin, which the caller gives back by unpin. An
  // existing one is pinned too. fails: exhausted (too many blocks), nothing changed then.
  [[nodiscard]] Result<BlockId> insert_pinned(RootId root, BlockId parent,
                                              std::span<const Token> tokens, const Digest& key,
                                              std::uint32_t expected_more);

  // --- slots. take: free -> held. fails: exhausted (free one with evict first).
  [[nodiscard]] Result<SlotId> take_slot(Tier tier, GroupId group);
  void release_slot(Tier tier, GroupId group, SlotId slot);  // held -> free
  [[nodiscard]] BlockPool& pool(Tier tier, GroupId group);
  [[nodiscard]] const BlockPool& pool(Tier tier, GroupId group) const;

  // --- copies
  // The held slot becomes the block's copy. requires: it has none there.
  void add_copy(BlockId block, GroupId group, Tier tier, SlotId slot);
  // The copy is dropped and its slot freed. requires: it has one; evictable, or `quarantine` (wrong
  // bytes: allowed at any time the caller knows nobody reads it). May make a hole or remove blocks
  // (this one and holes above it that lost their last descendant).
  void drop_copy(BlockId block, GroupId group, Tier tier);
  [[nodiscard]] bool has_copy(BlockId block, Tier tier) const;  // of every group
  [[nodiscard]] bool has_any_copy(BlockId block) const;         // of every group, in some tier
  [[nodiscard]] bool has_lower_copy(BlockId block, Tier tier) const;  // in a tier below
  [[nodiscard]] Tier fastest_tier(BlockId block) const;               // requires: has_any_copy

  // --- eviction
  // The block whose copies in this tier go next, or none() when nothing is evictable.
  [[nodiscard]] BlockId victim(Tier tier) const;
  [[nodiscard]] std::uint32_t evictable(Tier tier, GroupId group) const;  // exact: cached - covered

  // --- pins
  void pin(BlockId block);
  void unpin(
      BlockId block);  // requires: pinned. Removes the block when it has no copy and no child.
  [[nodiscard]] bool is_covered(BlockId block) const;
  // Some group has a copy in the tier, and no child has one.
  [[nodiscard]] bool is_leaf_in(BlockId block, Tier tier) const {
    return has_slot(block, tier) && !child_has_slot(block, tier);
  }

  // The path from the root to `deepest` was used: its blocks become the most recently used. A
  // request that uses blocks again that it used before (it publishes more, or ends) counts once.
  enum class Use : std::uint8_t { by_another_request, by_the_same_request };
  void touch(BlockId deepest, Use use = Use::by_another_request);

  [[nodiscard]] const PrefixTree& tree() const { return tree_; }
  [[nodiscard]] BlockRecords& records() { return records_; }
  [[nodiscard]] const BlockRecords& records() const { return records_; }
  [[nodiscard]] const KvLayout& layout() const { return options_.layout; }
  // The block with this key, or none(): for recovery and the disk's parents. Retired ones are not
  // found.
  [[nodiscard]] BlockId find_key(const Digest& key) const;
  // A block of a retired root has this key.
  [[nodiscard]] bool is_retired_key(const Digest& key) const;
  [[nodiscard]] std::uint32_t hole_count() const;
  // Blocks with a copy of every group in the tier.
  [[nodiscard]] std::uint32_t copy_count(Tier tier) const { return copy_counts_[tier_index(tier)]; }
  [[nodiscard]] std::uint32_t covered_count(Tier tier, GroupId group) const;
  [[nodiscard]] std::uint64_t metadata_bytes() const;

 private:
  // What is known of a tree node beside the tree: `stride_` numbers a node, in chunks that are made
  // when first needed and then kept.
  //   [0]      covered: leading blocks of the run that pins cover
  //   [1]      covered_children: child nodes of which blocks are covered
  //   [2 + c]  child nodes whose first block has a copy; c counts the groups, and in each the tiers
  //            that are on
  static constexpr std::uint32_t kCovered = 0;
  static constexpr std::uint32_t kCoveredChildren = 1;
  static constexpr std::uint32_t kChildCopies = 2;
  static constexpr std::uint32_t kChunkBits = 10;
  static constexpr std::uint32_t kTiers = static_cast<std::uint32_t>(BlockRecords::kSlotTiers);

  [[nodiscard]] std::uint32_t& fact(NodeId node, std::uint32_t which) {
    return fact_chunks_[node.value >> kChunkBits]
                       [(node.value & ((1U << kChunkBits) - 1)) * stride_ + which];
  }
  [[nodiscard]] std::uint32_t fact(NodeId node, std::uint32_t which) const {
    return fact_chunks_[node.value >> kChunkBits]
                       [(node.value & ((1U << kChunkBits) - 1)) * stride_ + which];
  }
  // requires: the tier is on.
  [[nodiscard]] std::uint32_t child_copies(GroupId group, Tier tier) const {
    return kChildCopies + group.value * tier_count_ + tier_order_[tier_index(tier)];
  }
  [[nodiscard]] static std::uint32_t copy_index(GroupId group, Tier tier) {
    return group.value * kTiers + static_cast<std::uint32_t>(tier);
  }
  // The tiers that are on, fastest first.
  [[nodiscard]] std::span<const Tier> tiers() const { return {tiers_.data(), tier_count_}; }
  void clear_facts(NodeId node);
  void split_facts(NodeId head, NodeId tail);

  // The index of the fastest tier with a copy of every group, or kTiers.
  [[nodiscard]] std::uint32_t fastest_copy(BlockId block) const;
  [[nodiscard]] bool has_slot_anywhere(BlockId block) const;
  [[nodiscard]] bool has_slot(BlockId block, Tier tier) const;  // of some group
  [[nodiscard]] bool child_has_slot(BlockId block, Tier tier) const;
  // A copy of the block appeared or went: the parent node counts its children's.
  void count_at_parent(BlockId block, GroupId group, Tier tier, bool appeared);
  void set_covered(BlockId first, std::uint32_t count, bool covered);
  // Puts the block where it belongs in the eviction order of a tier.
  void refresh(BlockId block, Tier tier);
  void refresh_after_copy(BlockId block, Tier tier);
  // Removes the block and then its ancestors, as far up as they have no copy, child or pin.
  void remove_while_empty(BlockId block);
  [[nodiscard]] bool is_hole(BlockId block) const;

  Options options_;
  std::uint32_t group_count_;
  std::array<Tier, kTiers> tiers_{};
  std::array<std::uint32_t, kTiers> tier_order_{};  // a tier's place in tiers_
  std::uint32_t tier_count_ = 0;
  std::uint32_t stride_;
  PrefixTree tree_;
  BlockRecords records_;
  FlatMap key_index_;                  // first 8 bytes of the key -> block
  std::vector<BlockPool> pools_;       // by copy_index
  std::vector<EvictionOrder> orders_;  // by tier; blocks with a copy below have the early turn
  std::vector<std::uint32_t> covered_counts_;  // by copy_index
  std::vector<std::unique_ptr<std::uint32_t[]>> fact_chunks_;
  mutable std::vector<PrefixTree::Run> runs_;  // of the last match, kept for its memory
  std::array<std::uint32_t, kTierCount> copy_counts_{};
  std::uint32_t hole_count_ = 0;
  std::uint64_t use_ = 0;  // the use counter
};

inline bool PrefixCache::has_slot(BlockId block, Tier tier) const {
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    if (!records_.slot(block, GroupId(g), tier).is_none()) return true;
  }
  return false;
}

inline bool PrefixCache::has_slot_anywhere(BlockId block) const {
  for (const Tier tier : tiers()) {
    if (has_slot(block, tier)) return true;
  }
  return false;
}

inline bool PrefixCache::has_copy(BlockId block, Tier tier) const {
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    if (records_.slot(block, GroupId(g), tier).is_none()) return false;
  }
  return true;
}

inline std::uint32_t PrefixCache::fastest_copy(BlockId block) const {
  for (const Tier tier : tiers()) {
    if (has_copy(block, tier)) return static_cast<std::uint32_t>(tier);
  }
  return kTiers;
}

inline bool PrefixCache::child_has_slot(BlockId block, Tier tier) const {
  const NodeId node = tree_.node(block);
  const PrefixTree::Run run = tree_.run(node);
  const BlockId next(block.value + 1);
  if (next.value < run.first.value + run.count) return has_slot(next, tier);
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    if (fact(node, child_copies(GroupId(g), tier)) > 0) return true;
  }
  return false;
}

inline bool PrefixCache::is_covered(BlockId block) const {
  const NodeId node = tree_.node(block);
  return block.value - tree_.run(node).first.value < fact(node, kCovered);
}

inline bool PrefixCache::is_hole(BlockId block) const {
  return tree_.has_child(block) && !has_slot_anywhere(block);
}

}  // namespace kv::core
