// PrefixCache beside a model that keeps a map from paths to blocks and derives every fact from
// scratch.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "allocator/block_key.h"
#include "cachesvc/core/prefix_cache.h"

namespace kv::core {
namespace {

using Path = std::vector<Token>;
constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::disk};

struct ModelBlock {
  BlockId id;
  Digest key;
  std::uint32_t pins = 0;
  std::uint64_t last_use = 0;
  std::array<std::set<std::uint32_t>, 3> groups;  // by tier: groups with a copy
  [[nodiscard]] bool has_any_slot() const {
    return std::ranges::any_of(groups, [](auto& g) { return !g.empty(); });
  }
};

class CacheModel {
 public:
  CacheModel(std::uint64_t seed, std::uint32_t group_count, PolicyKind policy)
      : prng_(seed),
        group_count_(group_count),
        policy_(policy),
        cache_(options(seed, group_count, policy)) {
    root_ = cache_.open_root(Digest{}).value();
  }

  void step() {
    switch (prng_.below(9)) {
      case 0:
      case 1:
        return insert();
      case 2:
      case 3:
        return add_copies();
      case 4:
        return evict();
      case 5:
        return quarantine();
      case 6:
        return pin();
      case 7:
        return unpin();
      default:
        return touch();
    }
  }

  void check() {
    ASSERT_EQ(cache_.tree().block_count(), blocks_.size());
    std::uint32_t holes = 0;
    std::map<std::pair<std::size_t, std::uint32_t>, std::uint32_t> covered, cached;
    for (const auto& [path, block] : blocks_) {
      ASSERT_TRUE(cache_.tree().contains(block.id));
      ASSERT_EQ(cache_.is_covered(block.id), is_covered(path));
      ASSERT_EQ(cache_.records().pins(block.id), block.pins);
      ASSERT_EQ(cache_.find_key(block.key), block.id);
      holes += !block.has_any_slot() && has_child(path) ? 1U : 0U;
      bool any = false;
      for (std::size_t t = 0; t < 3; ++t) {
        ASSERT_EQ(cache_.has_copy(block.id, kTiers[t]), has_whole_copy(block, t));
        ASSERT_EQ(cache_.has_lower_copy(block.id, kTiers[t]), has_lower_copy(block, t));
        any = any || has_whole_copy(block, t);
        for (const std::uint32_t g : block.groups[t]) {
          ++cached[{t, g}];
          covered[{t, g}] += is_covered(path) ? 1U : 0U;
        }
      }
      ASSERT_EQ(cache_.has_any_copy(block.id), any);
    }
    ASSERT_EQ(cache_.hole_count(), holes);
    for (std::size_t t = 0; t < 3; ++t) {
      check_victim(t);
      if (testing::Test::HasFatalFailure()) return;
      for (std::uint32_t g = 0; g < group_count_; ++g) {
        ASSERT_EQ(cache_.covered_count(kTiers[t], GroupId(g)), (covered[{t, g}]));
        ASSERT_EQ(cache_.evictable(kTiers[t], GroupId(g)), (cached[{t, g}] - covered[{t, g}]));
        ASSERT_EQ(cache_.pool(kTiers[t], GroupId(g)).count(SlotState::cached), (cached[{t, g}]));
      }
    }
    check_match();
  }

 private:
  static PrefixCache::Options options(std::uint64_t seed, std::uint32_t group_count,
                                      PolicyKind policy) {
    PrefixCache::Options options;
    options.policies = {policy, policy, policy};
    options.layout.block_tokens = 2;
    options.layout.groups.resize(group_count);
    Prng prng(seed ^ 0x5EEDU);
    for (auto& slots : options.slot_count) slots = static_cast<std::uint32_t>(2 + prng.below(19));
    options.hash_seed = seed;
    return options;
  }

  // --- facts of the model
  [[nodiscard]] bool is_below(const Path& path, const Path& ancestor) const {
    return path.size() > ancestor.size() &&
           std::equal(ancestor.begin(), ancestor.end(), path.begin());
  }
  [[nodiscard]] bool is_covered(const Path& path) const {
    return std::ranges::any_of(blocks_, [&](const auto& entry) {
      return entry.second.pins > 0 && (entry.first == path || is_below(entry.first, path));
    });
  }
  [[nodiscard]] bool has_child(const Path& path) const {
    return std::ranges::any_of(blocks_,
                               [&](const auto& entry) { return is_below(entry.first, path); });
  }
  [[nodiscard]] bool child_has_copy(const Path& path, std::size_t t) const {
    return std::ranges::any_of(blocks_, [&](const auto& entry) {
      return is_below(entry.first, path) && entry.first.size() == path.size() + 2 &&
             !entry.second.groups[t].empty();
    });
  }
  [[nodiscard]] bool has_whole_copy(const ModelBlock& block, std::size_t t) const {
    return block.groups[t].size() == group_count_;
  }
  [[nodiscard]] bool has_lower_copy(const ModelBlock& block, std::size_t t) const {
    for (std::size_t lower = t + 1; lower < 3; ++lower) {
      if (has_whole_copy(block, lower)) return true;
    }
    return false;
  }
  // In the order in which LRU would take them.
  using Candidate = std::tuple<bool, std::uint64_t, std::int64_t, BlockId>;
  [[nodiscard]] std::set<Candidate> candidates(std::size_t t) const {
    std::set<Candidate> candidates;
    for (const auto& [path, block] : blocks_) {
      if (block.groups[t].empty() || is_covered(path) || child_has_copy(path, t)) continue;
      candidates.emplace(!has_lower_copy(block, t), block.last_use,
                         -static_cast<std::int64_t>(path.size()), block.id);
    }
    return candidates;
  }
  // What goes next is one of those that may; of LRU which one; of all the early turn first.
  void check_victim(std::size_t t) const {
    const BlockId got = cache_.victim(kTiers[t]);
    const std::set<Candidate> may_go = candidates(t);
    ASSERT_EQ(got.is_none(), may_go.empty());
    if (may_go.empty()) return;
    if (policy_ == PolicyKind::lru) {
      ASSERT_EQ(got, std::get<3>(*may_go.begin()));
    }
    const bool late = std::get<0>(*may_go.begin());
    ASSERT_TRUE(std::ranges::any_of(may_go, [&](const Candidate& candidate) {
      return std::get<0>(candidate) == late && std::get<3>(candidate) == got;
    }));
  }
  void remove_empty() {
    for (bool removed = true; removed;) {
      removed = false;
      for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
        if (it->second.pins > 0 || it->second.has_any_slot() || has_child(it->first)) continue;
        blocks_.erase(it);
        removed = true;
        break;
      }
    }
  }

  // --- operations
  std::map<Path, ModelBlock>::iterator any_block() {
    auto it = blocks_.begin();
    std::advance(it, static_cast<long>(prng_.below(blocks_.size())));
    return it;
  }

  void insert() {
    Path path;
    BlockId parent;
    if (!blocks_.empty() && prng_.chance(7, 8)) {
      const auto above = any_block();
      path = above->first;
      parent = above->second.id;
    }
    const Token tokens[2] = {static_cast<Token>(prng_.below(2)),
                             static_cast<Token>(prng_.below(2))};
    path.insert(path.end(), tokens, tokens + 2);
    const Digest key = sha256(std::as_bytes(std::span<const Token>(path)));
    const auto got = cache_.insert_pinned(root_, parent, tokens, key,
                                          static_cast<std::uint32_t>(prng_.below(4)));
    ASSERT_TRUE(got.has_value());
    const auto known = blocks_.find(path);
    if (known != blocks_.end()) {
      ASSERT_EQ(*got, known->second.id);
      ++known->second.pins;
      return;
    }
    for (const auto& entry : blocks_) ASSERT_NE(entry.second.id, *got);
    blocks_[path] =
        ModelBlock{.id = *got, .key = key, .pins = 1, .last_use = use_ + 1, .groups = {}};
  }

  void add_copies() {
    if (blocks_.empty()) return;
    const auto it = any_block();
    const std::size_t t = prng_.below(3);
    // Mostly prefix-closed, as the engine does it.
    if (it->first.size() > 2 && prng_.chance(7, 8)) {
      const Path parent(it->first.begin(), it->first.end() - 2);
      if (blocks_.at(parent).groups[t].empty()) return;
    }
    for (std::uint32_t g = 0; g < group_count_; ++g) {
      if (it->second.groups[t].contains(g) || prng_.chance(1, 10)) continue;
      const auto slot = cache_.take_slot(kTiers[t], GroupId(g));
      if (!slot.has_value()) return;
      cache_.add_copy(it->second.id, GroupId(g), kTiers[t], *slot);
      it->second.groups[t].insert(g);
    }
  }

  void drop(std::map<Path, ModelBlock>::iterator it, std::size_t t) {
    const auto groups = it->second.groups[t];
    for (const std::uint32_t g : groups) {
      cache_.drop_copy(it->second.id, GroupId(g), kTiers[t]);
      it->second.groups[t].erase(g);
    }
    remove_empty();
  }

  void evict() {
    const std::size_t t = prng_.below(3);
    const BlockId block = cache_.victim(kTiers[t]);
    check_victim(t);
    if (block.is_none()) return;
    const auto it =
        std::ranges::find_if(blocks_, [&](const auto& entry) { return entry.second.id == block; });
    drop(it, t);
  }

  void quarantine() {
    if (blocks_.empty() || prng_.chance(1, 2)) return;
    const auto it = any_block();
    drop(it, prng_.below(3));
  }

  void pin() {
    if (blocks_.empty()) return;
    const auto it = any_block();
    cache_.pin(it->second.id);
    ++it->second.pins;
  }

  void unpin() {
    for (int i = 0; i < 3 && !blocks_.empty(); ++i) {
      const auto it = any_block();
      if (it->second.pins == 0) continue;
      cache_.unpin(it->second.id);
      --it->second.pins;
      remove_empty();
    }
  }

  void touch() {
    if (blocks_.empty()) return;
    const auto deepest = any_block();
    cache_.touch(deepest->second.id, prng_.chance(1, 2) ? PrefixCache::Use::by_another_request
                                                        : PrefixCache::Use::by_the_same_request);
    ++use_;
    for (auto& [path, block] : blocks_) {
      if (path == deepest->first || is_below(deepest->first, path)) block.last_use = use_;
    }
  }

  void check_match() {
    Path tokens = blocks_.empty() ? Path{} : any_block()->first;
    for (std::uint64_t i = prng_.below(4); i > 0; --i) {
      tokens.push_back(static_cast<Token>(prng_.below(2)));
    }
    std::vector<BlockId> expected;
    PrefixCache::Match match;
    bool hit = true;
    for (std::size_t end = 2; end + 1 <= tokens.size(); end += 2) {
      const auto it = blocks_.find(Path(tokens.begin(), tokens.begin() + static_cast<long>(end)));
      if (it == blocks_.end()) break;
      expected.push_back(it->second.id);
      ++match.known_blocks;
      std::size_t t = 0;
      while (t < 3 && !has_whole_copy(it->second, t)) ++t;
      hit = hit && t < 3;
      if (!hit) continue;
      ++match.hit_blocks;
      ++match.hit_blocks_by_tier[t];
    }
    std::vector<BlockId> path;
    const auto got = cache_.match(root_, tokens, path);
    ASSERT_EQ(path, expected);
    ASSERT_EQ(got.known_blocks, match.known_blocks);
    ASSERT_EQ(got.hit_blocks, match.hit_blocks);
    ASSERT_EQ(got.hit_blocks_by_tier, match.hit_blocks_by_tier);
  }

  Prng prng_;
  std::uint32_t group_count_;
  PolicyKind policy_;
  PrefixCache cache_;
  RootId root_;
  std::map<Path, ModelBlock> blocks_;
  std::uint64_t use_ = 0;
};

void run(std::uint32_t group_count, std::uint64_t seeds, PolicyKind policy = PolicyKind::lru) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    CacheModel model(seed, group_count, policy);
    for (int op = 0; op < 150; ++op) {
      SCOPED_TRACE(op);
      model.step();
      if (testing::Test::HasFatalFailure()) return;
      model.check();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(PrefixCacheModel, AgreesWithABruteForceModelWithOneGroup) { run(1, 300); }

TEST(PrefixCacheModel, AgreesWithABruteForceModelWithThreeGroups) { run(3, 150); }

TEST(PrefixCacheModel, TakesVictimsOnlyFromWhatMayGoUnderEveryPolicy) {
  for (const PolicyKind policy : kPolicyKinds) {
    SCOPED_TRACE(policy_name(policy));
    run(1, 60, policy);
    run(2, 30, policy);
  }
}

}  // namespace
}  // namespace kv::core
