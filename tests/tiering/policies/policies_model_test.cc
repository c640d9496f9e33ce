// The eviction policies beside their slow twins, and what each of them is for.
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "tests/tiering/policies/reference_policies.h"
#include "tiering/policies/arc.h"
#include "tiering/policies/eviction_order.h"
#include "tiering/policies/eviction_policy.h"
#include "tiering/policies/gdsf.h"
#include "tiering/policies/lfu_da.h"
#include "tiering/policies/s3fifo.h"

namespace kv {
namespace {

constexpr std::optional<EvictionTurn> kNever = std::nullopt;

class BothPolicies {
 public:
  BothPolicies(PolicyKind kind, std::uint64_t seed) : prng_(seed) {
    options_.kind = kind;
    options_.slot_count = static_cast<std::uint32_t>(1 + prng_.below(24));
    options_.block_capacity = options_.slot_count + 3;
    options_.recompute_cost = {.block = static_cast<std::uint32_t>(1 + prng_.below(5)),
                               .depth = static_cast<std::uint32_t>(prng_.below(3))};
    policy_ = make_policy(options_);
    reference_ = make_reference(options_);
    content_.resize(options_.block_capacity);
  }

  void step() {
    const auto id = static_cast<std::uint32_t>(prng_.below(options_.block_capacity));
    use_ += prng_.below(2);
    if (!reference_->blocks().contains(id)) return insert(id);
    switch (prng_.below(8)) {
      case 0:
        return remove(id, prng_.chance(1, 2) && reference_->blocks().at(id).evictable);
      case 1:
      case 2:
        return evict();
      case 3:
      case 4:
        return touch(id);
      default:
        return set_evictable(id);
    }
  }

  void check() const {
    const auto expected = reference_->victim();
    ASSERT_EQ(policy_->victim(), expected ? BlockId(*expected) : BlockId::none());
    for (std::uint32_t id = 0; id < options_.block_capacity; ++id) {
      const auto known = reference_->blocks().find(id);
      ASSERT_EQ(policy_->contains(BlockId(id)), known != reference_->blocks().end());
      ASSERT_EQ(policy_->evictable(BlockId(id)),
                known == reference_->blocks().end() ? kNever : known->second.evictable);
    }
  }

 private:
  // Content comes from a small set, so that ghosts are met again; a content is in one block.
  void insert(std::uint32_t id) {
    if (reference_->blocks().size() == options_.slot_count) evict();
    if (reference_->blocks().size() == options_.slot_count) return;
    const std::uint64_t number = prng_.below(3 * std::uint64_t{options_.slot_count});
    if (!present_.insert(number).second) return;
    content_[id] = number;
    const BlockUse use{.identity = number * 0x9E3779B97F4A7C15U,
                       .last_use = use_,
                       .depth = static_cast<std::uint32_t>(number % 7)};
    policy_->insert(BlockId(id), use);
    reference_->insert(id, use);
  }
  void touch(std::uint32_t id) {
    const bool counted = prng_.chance(3, 4);
    policy_->touch(BlockId(id), use_, counted);
    reference_->touch(id, use_, counted);
  }
  void set_evictable(std::uint32_t id) {
    std::optional<EvictionTurn> turn;
    if (prng_.chance(3, 4)) turn = prng_.chance(1, 3) ? EvictionTurn::late : EvictionTurn::early;
    policy_->set_evictable(BlockId(id), turn);
    reference_->set_evictable(id, turn);
  }
  void remove(std::uint32_t id, bool evicted) {
    present_.erase(content_[id]);
    policy_->remove(BlockId(id), evicted);
    reference_->remove(id, evicted);
  }
  void evict() {
    if (const auto victim = reference_->victim()) remove(*victim, true);
  }

  Prng prng_;
  PolicyOptions options_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<ReferencePolicy> reference_;
  std::vector<std::uint64_t> content_;
  std::set<std::uint64_t> present_;
  std::uint64_t use_ = 1;
};

class Policies : public testing::TestWithParam<PolicyKind> {};

TEST_P(Policies, EqualTheirSlowTwinsUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    BothPolicies both(GetParam(), seed);
    for (int op = 0; op < 500; ++op) {
      SCOPED_TRACE(op);
      both.step();
      if (testing::Test::HasFatalFailure()) return;
      both.check();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_P(Policies, StopOnWhatIsInsertedTwiceAndOnWhatIsNotThere) {
  const auto policy =
      make_policy({.kind = GetParam(), .block_capacity = 2, .slot_count = 2, .recompute_cost = {}});
  policy->insert(BlockId(0), {.identity = 1, .last_use = 1, .depth = 0});
  EXPECT_DEATH(policy->insert(BlockId(0), {.identity = 1, .last_use = 1, .depth = 0}), "contains");
  EXPECT_DEATH(policy->touch(BlockId(1), 2, true), "contains");
  EXPECT_DEATH(policy->set_evictable(BlockId(1), EvictionTurn::late), "contains");
  EXPECT_DEATH(policy->remove(BlockId(1), true), "contains");
}

INSTANTIATE_TEST_SUITE_P(All, Policies,
                         testing::Values(PolicyKind::arc, PolicyKind::s3fifo, PolicyKind::gdsf,
                                         PolicyKind::lfu_da),
                         [](const testing::TestParamInfo<PolicyKind>& kind) {
                           std::string name(policy_name(kind.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST(PolicyNames, AreReadBackAsTheirPolicy) {
  for (const PolicyKind kind : kPolicyKinds) EXPECT_EQ(policy_of_name(policy_name(kind)), kind);
  EXPECT_EQ(policy_of_name("mru"), std::nullopt);
}

// A full cache of one-block prompts: what is not there is inserted, for what has to go if need be.
class FullCache {
 public:
  FullCache(PolicyKind kind, std::uint32_t slots)
      : slots_(slots),
        policy_(make_policy({.kind = kind,
                             .block_capacity = 1024,
                             .slot_count = slots,
                             .recompute_cost = {.block = 1, .depth = 1}})) {}
  bool use(std::uint32_t content, std::uint32_t depth = 0) {
    ++use_;
    const BlockId block(content);
    const bool hit = policy_->contains(block);
    if (hit) {
      policy_->touch(block, use_, true);
    } else {
      if (count_ == slots_) {
        policy_->remove(policy_->victim(), true);
        --count_;
      }
      policy_->insert(block, {content * 0x9E3779B97F4A7C15U, use_, depth});
      policy_->set_evictable(block, EvictionTurn::late);
      ++count_;
    }
    return hit;
  }
  [[nodiscard]] bool has(std::uint32_t content) const {
    return policy_->contains(BlockId(content));
  }

 private:
  std::uint32_t slots_;
  std::uint32_t count_ = 0;
  std::uint64_t use_ = 0;
  std::unique_ptr<EvictionPolicy> policy_;
};

TEST(ArcPolicy, KeepsWhatIsUsedAgainThroughAScanOfOneTimeBlocks) {
  FullCache cache(PolicyKind::arc, 20);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t content = 0; content < 8; ++content) cache.use(content);
  }
  for (std::uint32_t content = 100; content < 400; ++content) cache.use(content);
  for (std::uint32_t content = 0; content < 8; ++content) EXPECT_TRUE(cache.has(content));
}

TEST(ArcPolicy, GivesTheRecentMoreRoomWhenTheyAreMissed) {
  ArcPolicy policy(8, 2);
  policy.insert(BlockId(0), {.identity = 10, .last_use = 1, .depth = 0});
  policy.touch(BlockId(0), 2, true);
  policy.insert(BlockId(1), {.identity = 11, .last_use = 3, .depth = 0});
  EXPECT_EQ(policy.recent_target(), 0U);
  policy.remove(BlockId(1), true);
  policy.insert(BlockId(2), {.identity = 11, .last_use = 4, .depth = 0});
  EXPECT_EQ(policy.recent_target(), 1U);
  policy.remove(BlockId(0), true);  // a frequent one goes, and comes back
  policy.insert(BlockId(0), {.identity = 10, .last_use = 5, .depth = 0});
  EXPECT_EQ(policy.recent_target(), 0U);
}

TEST(S3FifoPolicy, KeepsWhatIsUsedAgainThroughAScanOfOneTimeBlocks) {
  FullCache cache(PolicyKind::s3fifo, 20);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t content = 0; content < 8; ++content) cache.use(content);
  }
  for (std::uint32_t content = 100; content < 400; ++content) cache.use(content);
  for (std::uint32_t content = 0; content < 8; ++content) EXPECT_TRUE(cache.has(content));
}

TEST(S3FifoPolicy, LetsABlockThatComesBackSoonStayInMain) {
  FullCache cache(PolicyKind::s3fifo, 10);
  for (std::uint32_t content = 0; content < 11; ++content) cache.use(content);
  EXPECT_FALSE(cache.has(0));
  cache.use(0);  // remembered: enters main
  for (std::uint32_t content = 100; content < 150; ++content) cache.use(content);
  EXPECT_TRUE(cache.has(0));
}

TEST(LfuDaPolicy, LetsGoInTheEndWhatWasUsedOftenOnce) {
  FullCache cache(PolicyKind::lfu_da, 4);
  for (int round = 0; round < 5; ++round) cache.use(0);
  std::uint32_t content = 1;
  while (cache.has(0) && content < 100) cache.use(content++);
  EXPECT_GT(content, 10U);   // longer than LRU would keep it
  EXPECT_LT(content, 100U);  // but not for ever, as LFU would
}

TEST(GdsfPolicy, KeepsTheDeepBlockOfTwoThatWereUsedAlike) {
  FullCache cache(PolicyKind::gdsf, 2);
  cache.use(0, 9);
  cache.use(1, 0);
  cache.use(2, 5);
  EXPECT_TRUE(cache.has(0));
  EXPECT_FALSE(cache.has(1));
}

// Nearly 2^41 a use: H passes 2^61 on the way.
TEST(GdsfPolicy, KeepsItsOrderWhenItsNumbersStartOver) {
  GdsfPolicy policy(3, {.block = 0xFFFFFFFFU, .depth = 0xFFFFFFFFU});
  std::uint64_t use = 0;
  const auto insert = [&](std::uint32_t id) {
    policy.insert(BlockId(id), {.identity = id, .last_use = ++use, .depth = 1000});
    policy.set_evictable(BlockId(id), EvictionTurn::late);
  };
  for (std::uint32_t id = 0; id < 3; ++id) insert(id);
  for (int i = 0; i < 4'000'000; ++i) {
    // With equal costs and uses the oldest goes.
    const BlockId victim = policy.victim();
    ASSERT_EQ(victim, BlockId(static_cast<std::uint32_t>(i % 3)));
    policy.remove(victim, true);
    insert(victim.value);
  }
}

TEST(EvictionOrder, TellsOnlyPoliciesThatAskForItOfCopies) {
  for (const PolicyKind kind : kPolicyKinds) {
    EvictionOrder order({.kind = kind, .block_capacity = 4, .slot_count = 4, .recompute_cost = {}});
    EXPECT_EQ(order.is_told_of_copies(), kind != PolicyKind::lru);
    order.insert(BlockId(2), {.identity = 5, .last_use = 1, .depth = 3});
    EXPECT_FALSE(order.is_evictable(BlockId(2)));
    EXPECT_TRUE(order.victim().is_none());
    order.set_evictable(BlockId(2), 1, 3, EvictionTurn::early);
    EXPECT_TRUE(order.is_evictable(BlockId(2)));
    EXPECT_EQ(order.turn(BlockId(2)), EvictionTurn::early);
    order.touch(BlockId(2), 2, 3, true);
    order.touch(BlockId(3), 2, 3, true);  // not in the tier
    EXPECT_EQ(order.victim(), BlockId(2));
    order.set_not_evictable(BlockId(2));
    EXPECT_TRUE(order.victim().is_none());
    order.remove(BlockId(2), true);
  }
}

}  // namespace
}  // namespace kv
