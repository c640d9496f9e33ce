#include "cachesvc/core/prefix_cache.h"

#include <algorithm>
#include <cstring>

#include "allocator/base/check.h"

namespace kv::core {
namespace {

// Blocks that a step may have inserted and pinned before they have a copy.
constexpr std::uint32_t kPinnedMargin = 2'048;

constexpr Tier kSlotTierList[BlockRecords::kSlotTiers] = {Tier::device, Tier::host, Tier::disk};

std::uint32_t block_capacity(const PrefixCache::Options& options) {
  std::uint64_t blocks = std::uint64_t{options.hole_capacity} + kPinnedMargin;
  for (const std::uint32_t slots : options.slot_count) blocks += slots;
  KV_CHECK(blocks < 0x80000000U);
  return static_cast<std::uint32_t>(blocks);
}

std::uint64_t key_hash(const Digest& key) {
  std::uint64_t hash = 0;
  std::memcpy(&hash, key.bytes.data(), sizeof hash);
  return hash;
}

}  // namespace

PrefixCache::PrefixCache(const Options& options)
    : options_(options),
      group_count_(static_cast<std::uint32_t>(options.layout.groups.size())),
      stride_(kChildCopies + group_count_ * static_cast<std::uint32_t>(BlockRecords::kSlotTiers)),
      tree_({.block_tokens = options.layout.block_tokens,
             .block_capacity = block_capacity(options),
             .root_capacity = options.root_capacity,
             .hash_seed = options.hash_seed}),
      records_(block_capacity(options), group_count_),
      key_index_(block_capacity(options)),
      covered_counts_(group_count_ * BlockRecords::kSlotTiers, 0) {
  KV_CHECK(group_count_ > 0 && group_count_ <= kLayerGroupsMax);
  pools_.reserve(group_count_ * BlockRecords::kSlotTiers);
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    for (const std::uint32_t slots : options.slot_count) pools_.emplace_back(slots);
  }
  orders_.reserve(BlockRecords::kSlotTiers);
  for (const std::uint32_t slots : options.slot_count) {
    orders_.emplace_back(slots > 0 ? block_capacity(options) : 0);
  }
  fact_chunks_.reserve((std::size_t{block_capacity(options)} >> kChunkBits) + 1);
}

// ---- match

PrefixCache::Match PrefixCache::match(RootId root, std::span<const Token> tokens,
                                      std::vector<BlockId>& path) const {
  Match match;
  if (tokens.empty()) return match;
  const std::size_t block_tokens = tree_.block_tokens();
  const std::size_t blocks_max = (tokens.size() - 1) / block_tokens;
  runs_.clear();
  match.known_blocks = tree_.match(root, tokens.first(blocks_max * block_tokens), runs_);
  bool hit = true;
  for (const PrefixTree::Run& run : runs_) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const BlockId block(run.first.value + i);
      path.push_back(block);
      hit = hit && has_any_copy(block);
      if (!hit) continue;
      ++match.hit_blocks;
      ++match.hit_blocks_by_tier[tier_index(fastest_tier(block))];
    }
  }
  return match;
}

BlockId PrefixCache::find_key(const Digest& key) const {
  const auto equal = [&](std::uint32_t block) { return records_.key(BlockId(block)) == key; };
  return BlockId(key_index_.find(key_hash(key), equal));
}

// ---- blocks

Result<BlockId> PrefixCache::insert_pinned(RootId root, BlockId parent,
                                           std::span<const Token> tokens, const Digest& key,
                                           std::uint32_t expected_more) {
  if (const BlockId known = tree_.find_child(root, parent, tokens); !known.is_none()) {
    pin(known);
    return known;
  }
  const bool parent_was_hole = !parent.is_none() && is_hole(parent);
  KV_TRY(const PrefixTree::Inserted inserted, tree_.insert(root, parent, tokens, expected_more));
  if (!inserted.split_head.is_none()) split_facts(inserted.split_head, inserted.split_tail);
  const BlockId block = inserted.block;
  const NodeId node = tree_.node(block);
  if (tree_.run(node).first == block) clear_facts(node);
  if (!parent.is_none() && !parent_was_hole && is_hole(parent)) ++hole_count_;
  records_.set_key(block, key);
  records_.set_last_use(block, use_ + 1);
  key_index_.insert(key_hash(key), block.value);
  pin(block);
  return block;
}

void PrefixCache::remove_while_empty(BlockId block) {
  while (!block.is_none() && records_.pins(block) == 0 && !tree_.has_child(block) &&
         !has_slot_anywhere(block)) {
    const BlockId parent = tree_.parent(block);
    const bool parent_was_hole = !parent.is_none() && is_hole(parent);
    key_index_.erase(key_hash(records_.key(block)), block.value);
    records_.reset(block);
    tree_.remove(block);
    if (parent_was_hole && !is_hole(parent)) --hole_count_;
    block = parent;
  }
}

bool PrefixCache::is_hole(BlockId block) const {
  return tree_.has_child(block) && !has_slot_anywhere(block);
}

std::uint32_t PrefixCache::hole_count() const { return hole_count_; }

void PrefixCache::touch(BlockId deepest) {
  ++use_;
  for (BlockId block = deepest; !block.is_none(); block = tree_.parent(block)) {
    records_.set_last_use(block, use_);
    for (const Tier tier : kSlotTierList) {
      Order& order = orders_[tier_index(tier)];
      if (options_.slot_count[tier_index(tier)] == 0) continue;
      for (LruPolicy* policy : {&order.saved, &order.unsaved}) {
        if (!policy->contains(block)) continue;
        policy->remove(block);
        policy->insert(block, use_, tree_.depth(block));
      }
    }
  }
}

// ---- slots and copies

BlockPool& PrefixCache::pool(Tier tier, GroupId group) { return pools_[copy_index(group, tier)]; }

const BlockPool& PrefixCache::pool(Tier tier, GroupId group) const {
  return pools_[copy_index(group, tier)];
}

Result<SlotId> PrefixCache::take_slot(Tier tier, GroupId group) { return pool(tier, group).take(); }

void PrefixCache::release_slot(Tier tier, GroupId group, SlotId slot) {
  KV_CHECK(pool(tier, group).state(slot) == SlotState::held);
  pool(tier, group).release(slot);
}

void PrefixCache::add_copy(BlockId block, GroupId group, Tier tier, SlotId slot) {
  KV_CHECK(tree_.contains(block) && records_.slot(block, group, tier).is_none());
  const bool was_hole = is_hole(block);
  pool(tier, group).set_cached(slot);
  records_.set_slot(block, group, tier, slot);
  if (was_hole) --hole_count_;
  if (is_covered(block)) ++covered_counts_[copy_index(group, tier)];
  count_at_parent(block, group, tier, true);
  refresh_after_copy(block, tier);
}

void PrefixCache::drop_copy(BlockId block, GroupId group, Tier tier) {
  const SlotId slot = records_.slot(block, group, tier);
  KV_CHECK(!slot.is_none());
  records_.set_slot(block, group, tier, SlotId::none());
  pool(tier, group).release(slot);
  if (is_hole(block)) ++hole_count_;
  if (is_covered(block)) --covered_counts_[copy_index(group, tier)];
  count_at_parent(block, group, tier, false);
  refresh_after_copy(block, tier);
  remove_while_empty(block);
}

void PrefixCache::count_at_parent(BlockId block, GroupId group, Tier tier, bool appeared) {
  const NodeId node = tree_.node(block);
  if (tree_.run(node).first != block) return;
  const NodeId parent = tree_.parent_node(node);
  if (parent.is_none()) return;
  std::uint32_t& copies = fact(parent, kChildCopies + copy_index(group, tier));
  if (appeared) {
    ++copies;
  } else {
    --copies;
  }
}

bool PrefixCache::has_slot_anywhere(BlockId block) const {
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    for (const Tier tier : kSlotTierList) {
      if (!records_.slot(block, GroupId(g), tier).is_none()) return true;
    }
  }
  return false;
}

bool PrefixCache::has_copy(BlockId block, Tier tier) const {
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    if (records_.slot(block, GroupId(g), tier).is_none()) return false;
  }
  return true;
}

bool PrefixCache::has_any_copy(BlockId block) const {
  return has_copy(block, Tier::device) || has_lower_copy(block, Tier::device);
}

bool PrefixCache::has_lower_copy(BlockId block, Tier tier) const {
  for (std::size_t t = tier_index(tier) + 1; t < BlockRecords::kSlotTiers; ++t) {
    if (has_copy(block, kSlotTierList[t])) return true;
  }
  return false;
}

Tier PrefixCache::fastest_tier(BlockId block) const {
  for (const Tier tier : kSlotTierList) {
    if (has_copy(block, tier)) return tier;
  }
  KV_CHECK(false && "the block has no copy");
  return Tier::remote;
}

bool PrefixCache::child_has_copy(BlockId block, GroupId group, Tier tier) const {
  const NodeId node = tree_.node(block);
  const PrefixTree::Run run = tree_.run(node);
  const BlockId next(block.value + 1);
  if (next.value < run.first.value + run.count) return !records_.slot(next, group, tier).is_none();
  return fact(node, kChildCopies + copy_index(group, tier)) > 0;
}

// ---- eviction

BlockId PrefixCache::victim(Tier tier) const {
  if (tier_index(tier) >= orders_.size()) return BlockId::none();
  const Order& order = orders_[tier_index(tier)];
  const BlockId saved = order.saved.victim();
  return saved.is_none() ? order.unsaved.victim() : saved;
}

std::uint32_t PrefixCache::evictable(Tier tier, GroupId group) const {
  if (tier_index(tier) >= BlockRecords::kSlotTiers) return 0;
  return pool(tier, group).count(SlotState::cached) - covered_count(tier, group);
}

std::uint32_t PrefixCache::covered_count(Tier tier, GroupId group) const {
  if (tier_index(tier) >= BlockRecords::kSlotTiers) return 0;
  return covered_counts_[copy_index(group, tier)];
}

void PrefixCache::refresh(BlockId block, Tier tier) {
  if (options_.slot_count[tier_index(tier)] == 0) return;
  Order& order = orders_[tier_index(tier)];
  bool has_copies = false;
  bool is_leaf = true;
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    has_copies = has_copies || !records_.slot(block, GroupId(g), tier).is_none();
    is_leaf = is_leaf && !child_has_copy(block, GroupId(g), tier);
  }
  const bool may_go = has_copies && is_leaf && !is_covered(block);
  const bool saved = may_go && has_lower_copy(block, tier);
  const auto place = [&](LruPolicy& policy, bool wanted) {
    if (policy.contains(block) == wanted) return;
    if (wanted) {
      policy.insert(block, records_.last_use(block), tree_.depth(block));
    } else {
      policy.remove(block);
    }
  };
  place(order.saved, saved);
  place(order.unsaved, may_go && !saved);
}

void PrefixCache::refresh_all(BlockId block) {
  for (const Tier tier : kSlotTierList) refresh(block, tier);
}

// A copy in a tier decides of the block there and in the tiers above (is it saved?), and of its
// parent there (is it a leaf?).
void PrefixCache::refresh_after_copy(BlockId block, Tier tier) {
  for (std::size_t t = 0; t <= tier_index(tier); ++t) refresh(block, kSlotTierList[t]);
  if (const BlockId parent = tree_.parent(block); !parent.is_none()) refresh(parent, tier);
}

// ---- pins

bool PrefixCache::is_covered(BlockId block) const {
  const NodeId node = tree_.node(block);
  return block.value - tree_.run(node).first.value < fact(node, kCovered);
}

void PrefixCache::set_covered(BlockId first, std::uint32_t count, bool covered) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const BlockId block(first.value + i);
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      for (const Tier tier : kSlotTierList) {
        if (records_.slot(block, GroupId(g), tier).is_none()) continue;
        std::uint32_t& counted = covered_counts_[copy_index(GroupId(g), tier)];
        counted = covered ? counted + 1 : counted - 1;
      }
    }
    refresh_all(block);
  }
}

void PrefixCache::pin(BlockId block) {
  KV_CHECK(tree_.contains(block));
  records_.set_pins(block, records_.pins(block) + 1);
  NodeId node = tree_.node(block);
  std::uint32_t wanted = block.value - tree_.run(node).first.value + 1;
  while (fact(node, kCovered) < wanted) {
    const std::uint32_t before = fact(node, kCovered);
    fact(node, kCovered) = wanted;
    set_covered(BlockId(tree_.run(node).first.value + before), wanted - before, true);
    if (before > 0) return;
    node = tree_.parent_node(node);
    if (node.is_none()) return;
    ++fact(node, kCoveredChildren);
    wanted = tree_.run(node).count;
  }
}

void PrefixCache::unpin(BlockId block) {
  KV_CHECK(tree_.contains(block) && records_.pins(block) > 0);
  records_.set_pins(block, records_.pins(block) - 1);
  NodeId node = tree_.node(block);
  for (;;) {
    if (fact(node, kCoveredChildren) > 0) break;
    const std::uint32_t first = tree_.run(node).first.value;
    const std::uint32_t before = fact(node, kCovered);
    std::uint32_t after = before;
    while (after > 0 && records_.pins(BlockId(first + after - 1)) == 0) --after;
    if (after == before) break;
    fact(node, kCovered) = after;
    set_covered(BlockId(first + after), before - after, false);
    if (after > 0) break;
    node = tree_.parent_node(node);
    if (node.is_none()) break;
    --fact(node, kCoveredChildren);
  }
  remove_while_empty(block);
}

// ---- facts of nodes

void PrefixCache::clear_facts(NodeId node) {
  while ((node.value >> kChunkBits) >= fact_chunks_.size()) {
    fact_chunks_.push_back(std::make_unique<std::uint32_t[]>(std::size_t{stride_} << kChunkBits));
  }
  for (std::uint32_t i = 0; i < stride_; ++i) fact(node, i) = 0;
}

// The tail kept its id, so its facts of children hold on; the head has one child, the tail.
void PrefixCache::split_facts(NodeId head, NodeId tail) {
  clear_facts(head);
  const std::uint32_t head_count = tree_.run(head).count;
  const std::uint32_t covered = fact(tail, kCovered);
  fact(head, kCovered) = std::min(covered, head_count);
  fact(tail, kCovered) = covered - fact(head, kCovered);
  fact(head, kCoveredChildren) = fact(tail, kCovered) > 0 ? 1 : 0;
  const BlockId first = tree_.run(tail).first;
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    for (const Tier tier : kSlotTierList) {
      fact(head, kChildCopies + copy_index(GroupId(g), tier)) =
          records_.slot(first, GroupId(g), tier).is_none() ? 0 : 1;
    }
  }
}

std::uint64_t PrefixCache::metadata_bytes() const {
  return tree_.bytes() + key_index_.bytes() +
         fact_chunks_.size() * (std::uint64_t{stride_} << kChunkBits) * sizeof(std::uint32_t);
}

}  // namespace kv::core
