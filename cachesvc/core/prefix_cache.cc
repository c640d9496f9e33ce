#include "cachesvc/core/prefix_cache.h"

#include <algorithm>
#include <cstring>

#include "allocator/base/check.h"

namespace kv::core {
namespace {

// Blocks that a step may have inserted and pinned before they have a copy.
constexpr std::uint32_t kPinnedMargin = 2'048;

std::uint32_t block_capacity(const PrefixCache::Options& options) {
  std::uint64_t blocks = std::uint64_t{options.hole_capacity} + kPinnedMargin;
  for (const std::uint32_t slots : options.slot_count) blocks += slots;
  KV_CHECK(blocks < 0x80000000U);
  return static_cast<std::uint32_t>(blocks);
}

std::array<bool, BlockRecords::kSlotTiers> tiers_on(const PrefixCache::Options& options) {
  std::array<bool, BlockRecords::kSlotTiers> on{};
  for (std::size_t t = 0; t < on.size(); ++t) on[t] = options.slot_count[t] > 0;
  return on;
}

std::uint32_t count_of(const std::array<bool, BlockRecords::kSlotTiers>& on) {
  return static_cast<std::uint32_t>(std::count(on.begin(), on.end(), true));
}

std::uint64_t key_hash(const Digest& key) {
  std::uint64_t hash = 0;
  std::memcpy(&hash, key.bytes.data(), sizeof hash);
  return hash;
}

}  // namespace

std::uint64_t PrefixCache::bytes_max(const Options& options) {
  constexpr std::uint64_t kMapEntry = 11;   // FlatMap: 8 bytes, three quarters full
  constexpr std::uint64_t kNode = 44;       // PrefixTree: a node of one block, and its map entry
  constexpr std::uint64_t kPolicy = 20;     // LruPolicy, of every block that there may be
  constexpr std::uint64_t kSlot = 16;       // BlockPool
  constexpr std::uint64_t kChunks = 1'024;  // nodes and facts come in chunks of so many
  const std::uint64_t groups = options.layout.groups.size();
  const std::uint64_t tiers = count_of(tiers_on(options));
  const std::uint64_t tree = options.layout.block_tokens * sizeof(Token) + 5 + kMapEntry + kNode;
  const std::uint64_t facts = (kChildCopies + groups * tiers) * sizeof(std::uint32_t);
  const std::uint64_t records =
      sizeof(Digest) + 13 + groups * (tiers + 1) * sizeof(std::uint32_t) + kMapEntry;
  std::uint64_t bytes =
      (block_capacity(options) + kChunks) * (tree + facts + records + kPolicy * tiers);
  for (const std::uint32_t slots : options.slot_count) bytes += slots * groups * kSlot;
  return bytes + options.root_capacity * std::uint64_t{128};
}

PrefixCache::PrefixCache(const Options& options)
    : options_(options),
      group_count_(static_cast<std::uint32_t>(options.layout.groups.size())),
      stride_(kChildCopies + group_count_ * count_of(tiers_on(options))),
      tree_({.block_tokens = options.layout.block_tokens,
             .block_capacity = block_capacity(options),
             .root_capacity = options.root_capacity,
             .hash_seed = options.hash_seed}),
      records_(block_capacity(options), group_count_, tiers_on(options)),
      key_index_(block_capacity(options)),
      covered_counts_(std::size_t{group_count_} * kTiers, 0) {
  KV_CHECK(group_count_ > 0 && group_count_ <= kLayerGroupsMax);
  orders_.reserve(kTiers);
  for (std::uint32_t t = 0; t < kTiers; ++t) {
    const bool on = options.slot_count[t] > 0;
    orders_.emplace_back(PolicyOptions{.kind = options.policies[t],
                                       .block_capacity = on ? block_capacity(options) : 0,
                                       .slot_count = options.slot_count[t],
                                       .recompute_cost = options.recompute_cost});
    if (!on) continue;
    tier_order_[t] = tier_count_;
    tiers_[tier_count_++] = static_cast<Tier>(t);
  }
  pools_.reserve(std::size_t{group_count_} * kTiers);
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    for (const std::uint32_t slots : options.slot_count) pools_.emplace_back(slots);
  }
  fact_chunks_.reserve((std::size_t{block_capacity(options)} >> kChunkBits) + 1);
}

// ---- match

PrefixCache::Match PrefixCache::match(RootId root, std::span<const Token> tokens,
                                      std::vector<BlockId>& path) const {
  if (tokens.empty()) return {};
  const std::size_t block_tokens = tree_.block_tokens();
  const std::size_t blocks_max = (tokens.size() - 1) / block_tokens;
  return match_blocks(root, tokens.first(blocks_max * block_tokens), path);
}

PrefixCache::Match PrefixCache::match_blocks(RootId root, std::span<const Token> tokens,
                                             std::vector<BlockId>& path) const {
  Match match;
  runs_.clear();
  match.known_blocks = tree_.match(root, tokens, runs_);
  bool hit = true;
  for (const PrefixTree::Run& run : runs_) {
    for (std::uint32_t i = 0; i < run.count; ++i) path.emplace_back(run.first.value + i);
    if (!hit) continue;
    // Most hits are whole runs in the fastest tier.
    std::uint32_t i = records_.leading_slots(run.first, run.count, tiers_[0]);
    match.hit_blocks += i;
    match.hit_blocks_by_tier[tier_index(tiers_[0])] += i;
    for (; i < run.count && hit; ++i) {
      const std::uint32_t tier = fastest_copy(BlockId(run.first.value + i));
      hit = tier < kTiers;
      if (!hit) break;
      ++match.hit_blocks;
      ++match.hit_blocks_by_tier[tier];
    }
  }
  return match;
}

BlockId PrefixCache::find_key(const Digest& key) const {
  const auto equal = [&](std::uint32_t block) {
    return records_.key(BlockId(block)) == key && !tree_.is_retired(BlockId(block));
  };
  return BlockId(key_index_.find(key_hash(key), equal));
}

bool PrefixCache::is_retired_key(const Digest& key) const {
  const auto equal = [&](std::uint32_t block) {
    return records_.key(BlockId(block)) == key && tree_.is_retired(BlockId(block));
  };
  return key_index_.find(key_hash(key), equal) != FlatMap::kNone;
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

std::uint32_t PrefixCache::hole_count() const { return hole_count_; }

void PrefixCache::touch(BlockId deepest, Use use) {
  KV_CHECK(tree_.contains(deepest));
  ++use_;
  const bool covered = is_covered(deepest);
  std::uint32_t last = deepest.value;
  for (NodeId node = tree_.node(deepest); !node.is_none();) {
    const std::uint32_t first = tree_.run(node).first.value;
    const std::uint32_t depth = tree_.depth(BlockId(first));
    for (std::uint32_t id = first; id <= last; ++id) records_.set_last_use(BlockId(id), use_);
    for (std::uint32_t id = first; use == Use::by_another_request && id <= last; ++id) {
      records_.add_reuse(BlockId(id));
    }
    for (const Tier tier : tiers()) {
      EvictionOrder& order = orders_[tier_index(tier)];
      // LRU knows only what may go, and of a covered path that is nothing.
      if (covered && !order.is_told_of_copies()) continue;
      for (std::uint32_t id = first; id <= last; ++id) {
        order.touch(BlockId(id), use_, depth + (id - first), use == Use::by_another_request);
      }
    }
    node = tree_.parent_node(node);
    if (!node.is_none()) last = tree_.run(node).first.value + tree_.run(node).count - 1;
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
  EvictionOrder& order = orders_[tier_index(tier)];
  if (order.is_told_of_copies() && !has_slot(block, tier)) {
    order.insert(block,
                 {key_hash(records_.key(block)), records_.last_use(block), tree_.depth(block)});
  }
  pool(tier, group).set_cached(slot);
  records_.set_slot(block, group, tier, slot);
  if (was_hole) --hole_count_;
  if (has_copy(block, tier)) ++copy_counts_[tier_index(tier)];
  if (is_covered(block)) ++covered_counts_[copy_index(group, tier)];
  count_at_parent(block, group, tier, true);
  refresh_after_copy(block, tier);
}

void PrefixCache::drop_copy(BlockId block, GroupId group, Tier tier) {
  const SlotId slot = records_.slot(block, group, tier);
  KV_CHECK(!slot.is_none());
  EvictionOrder& order = orders_[tier_index(tier)];
  const bool evicted = order.is_told_of_copies() && order.is_evictable(block);
  if (has_copy(block, tier)) --copy_counts_[tier_index(tier)];
  records_.set_slot(block, group, tier, SlotId::none());
  pool(tier, group).release(slot);
  if (is_hole(block)) ++hole_count_;
  if (is_covered(block)) --covered_counts_[copy_index(group, tier)];
  count_at_parent(block, group, tier, false);
  refresh_after_copy(block, tier);
  if (order.is_told_of_copies() && !has_slot(block, tier)) order.remove(block, evicted);
  remove_while_empty(block);
}

void PrefixCache::count_at_parent(BlockId block, GroupId group, Tier tier, bool appeared) {
  const NodeId node = tree_.node(block);
  if (tree_.run(node).first != block) return;
  const NodeId parent = tree_.parent_node(node);
  if (parent.is_none()) return;
  std::uint32_t& copies = fact(parent, child_copies(group, tier));
  copies = appeared ? copies + 1 : copies - 1;
}

bool PrefixCache::has_any_copy(BlockId block) const { return fastest_copy(block) < kTiers; }

bool PrefixCache::has_lower_copy(BlockId block, Tier tier) const {
  return std::ranges::any_of(tiers(),
                             [&](Tier lower) { return lower > tier && has_copy(block, lower); });
}

Tier PrefixCache::fastest_tier(BlockId block) const {
  const std::uint32_t tier = fastest_copy(block);
  KV_CHECK(tier < kTiers);
  return static_cast<Tier>(tier);
}

// ---- eviction

BlockId PrefixCache::victim(Tier tier) const {
  return tier_index(tier) < kTiers ? orders_[tier_index(tier)].victim() : BlockId::none();
}

std::uint32_t PrefixCache::evictable(Tier tier, GroupId group) const {
  if (tier_index(tier) >= kTiers) return 0;
  return pool(tier, group).count(SlotState::cached) - covered_count(tier, group);
}

std::uint32_t PrefixCache::covered_count(Tier tier, GroupId group) const {
  return tier_index(tier) < kTiers ? covered_counts_[copy_index(group, tier)] : 0;
}

void PrefixCache::refresh(BlockId block, Tier tier) {
  EvictionOrder& order = orders_[tier_index(tier)];
  const bool may_go = has_slot(block, tier) && !is_covered(block) && !child_has_slot(block, tier);
  const EvictionTurn turn =
      may_go && !has_lower_copy(block, tier) ? EvictionTurn::late : EvictionTurn::early;
  if (order.is_evictable(block)) {
    if (may_go && order.turn(block) == turn) return;
    order.set_not_evictable(block);
  }
  if (may_go) order.set_evictable(block, records_.last_use(block), tree_.depth(block), turn);
}

// A copy in a tier decides of the block there and in the tiers above (is it saved?), and of its
// parent there (is it a leaf?).
void PrefixCache::refresh_after_copy(BlockId block, Tier tier) {
  for (const Tier above : tiers()) {
    if (above <= tier) refresh(block, above);
  }
  if (const BlockId parent = tree_.parent(block); !parent.is_none()) refresh(parent, tier);
}

// ---- pins

void PrefixCache::set_covered(BlockId first, std::uint32_t count, bool covered) {
  for (const Tier tier : tiers()) {
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      std::uint32_t copies = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        const BlockId block(first.value + i);
        copies += records_.slot(block, GroupId(g), tier).is_none() ? 0U : 1U;
      }
      std::uint32_t& counted = covered_counts_[copy_index(GroupId(g), tier)];
      counted = covered ? counted + copies : counted - copies;
    }
    EvictionOrder& order = orders_[tier_index(tier)];
    for (std::uint32_t i = 0; i < count; ++i) {
      const BlockId block(first.value + i);
      // Most blocks of a path have a child with a copy: they may go neither before nor after.
      if (i + 1 < count && has_slot(BlockId(block.value + 1), tier)) continue;
      if (!covered) {
        refresh(block, tier);
      } else if (order.is_evictable(block)) {
        order.set_not_evictable(block);
      }
    }
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
    for (const Tier tier : tiers()) {
      fact(head, child_copies(GroupId(g), tier)) =
          records_.slot(first, GroupId(g), tier).is_none() ? 0 : 1;
    }
  }
}

std::uint64_t PrefixCache::metadata_bytes() const {
  std::uint64_t bytes =
      tree_.bytes() + records_.bytes() + key_index_.bytes() +
      fact_chunks_.size() * (std::uint64_t{stride_} << kChunkBits) * sizeof(std::uint32_t);
  for (const BlockPool& pool : pools_) bytes += pool.bytes();
  for (const EvictionOrder& order : orders_) bytes += order.bytes();
  return bytes;
}

}  // namespace kv::core
