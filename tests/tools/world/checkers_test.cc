// The checkers find what is broken on purpose behind the Engine's back, and nothing else.
#include "tools/world/checkers.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include <gtest/gtest.h>

#include "cachesvc/core/prefix_cache.h"
#include "tools/world/virtual_client.h"
#include "tools/world/virtual_world.h"

namespace kv::world {
namespace {

constexpr GroupId kGroup{0};
constexpr SequenceId kSequence{1};

VirtualWorld::Options options() {
  VirtualWorld::Options options;
  LayerGroup group;
  group.layer_count = group.kv_head_count = group.head_dim_k = group.head_dim_v = 1;
  options.layout = {2, {group}};
  options.engine.tier_bytes = {128, 128, 32'768, 0};
  return options;
}

// A world with one client whose sequence of 7 tokens has published 3 blocks, all saved to the disk.
class CheckersTest : public ::testing::Test {
 protected:
  CheckersTest() : world_(options()), client_(world_, "t0", core::ClientRole::runner) {
    client_.attach_pool();
    const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 7};
    client_.open(kSequence, "w0", tokens, 1, false, true);
    client_.admit(kSequence, 1);
    client_.compute(client_.sequences().at(kSequence), 7);
    client_.send_step({{kSequence, core::StepOp::publish, {}, 7, false}});
    client_.complete_steps(1);
    client_.send_step({});
    world_.run_all();
    cache_ = const_cast<core::PrefixCache*>(world_.engine().cache());
    block_ = world_.engine().sequence(0).deepest;
  }

  // What check() says now must have a line of this invariant.
  void expect_broken(const std::string& invariant) {
    const auto problems = check(world_.engine());
    const bool found = std::ranges::any_of(
        problems, [&](const std::string& text) { return text.starts_with(invariant + ":"); });
    EXPECT_TRUE(found) << "of " << problems.size() << " problems none is of " << invariant;
  }
  std::vector<std::string> residency() {
    std::vector<std::string> problems;
    world_.tiers().check_residency(world_.engine(), {}, problems);
    return problems;
  }
  SlotId slot(Tier tier) { return cache_->records().slot(block_, kGroup, tier); }

  VirtualWorld world_;
  VirtualClient client_;
  core::PrefixCache* cache_ = nullptr;  // of the Engine, to break it
  BlockId block_;                       // the third published block
};

TEST_F(CheckersTest, FindNothingInAHealthyEngine) {
  EXPECT_EQ(world_.problems(), std::vector<std::string>{});
  EXPECT_EQ(check(world_.engine()), std::vector<std::string>{});
  EXPECT_EQ(residency(), std::vector<std::string>{});
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) EXPECT_FALSE(slot(tier).is_none());
  EXPECT_EQ(world_.tiers().disk().size(), 3U);
}

TEST_F(CheckersTest, FindASlotThatNobodyOwns) {
  ASSERT_TRUE(cache_->take_slot(Tier::host, kGroup));
  expect_broken("2");
}

TEST_F(CheckersTest, FindASlotWithTwoOwners) {
  cache_->records().set_slot(cache_->tree().parent(block_), kGroup, Tier::host, slot(Tier::host));
  expect_broken("2");
}

TEST_F(CheckersTest, FindACachedSlotThatWasFreed) {
  cache_->pool(Tier::device, kGroup).release(slot(Tier::device));
  expect_broken("2");
}

TEST_F(CheckersTest, FindAPinWithoutAHolder) {
  cache_->pin(block_);
  expect_broken("3");
}

TEST_F(CheckersTest, FindAHolderWithoutItsPin) {
  cache_->unpin(block_);
  expect_broken("3");
}

TEST_F(CheckersTest, FindAWrongCoverGauge) {
  cache_->records().set_pins(block_, 0);
  expect_broken("3");
}

TEST_F(CheckersTest, FindATierThatIsNotPrefixClosed) {
  const BlockId parent = cache_->tree().parent(block_);
  cache_->drop_copy(parent, kGroup, Tier::host);
  expect_broken("18");
  const std::set<Digest> broken = {cache_->records().key(parent)};
  EXPECT_EQ(check(world_.engine(), {&broken}), std::vector<std::string>{});
}

TEST_F(CheckersTest, FindAKeyThatIsNotThatOfItsTokens) {
  Digest key = cache_->records().key(block_);
  key.bytes[0] ^= std::byte{1};
  cache_->records().set_key(block_, key);
  expect_broken("18");
}

TEST_F(CheckersTest, FindBytesThatAreNotThoseOfTheTokens) {
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
    const Fingerprint good = world_.tiers().read(tier, kGroup, slot(tier));
    world_.tiers().write(tier, kGroup, slot(tier), good + 1);
    const auto problems = residency();
    ASSERT_EQ(problems.size(), 1U) << tier_name(tier);
    EXPECT_TRUE(problems[0].starts_with("12:")) << problems[0];
    world_.tiers().write(tier, kGroup, slot(tier), good);
  }
}

TEST_F(CheckersTest, FindADiskIndexThatDiffersFromTheRecords) {
  const auto entry = world_.tiers().disk().extract({kGroup, slot(Tier::disk)});
  auto problems = residency();
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(problems[0].starts_with("19:")) << problems[0];
  auto stray = entry.mapped();
  world_.tiers().disk()[{kGroup, slot(Tier::disk)}] = stray;
  stray.entry.key.bytes[0] ^= std::byte{1};
  world_.tiers().disk()[{kGroup, SlotId{7}}] = stray;
  problems = residency();
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(problems[0].starts_with("19:")) << problems[0];
}

TEST_F(CheckersTest, FindWhatIsLeftBehindAtADrain) {
  EXPECT_FALSE(check_drained(world_.engine()).empty());
  client_.send_step({{kSequence, core::StepOp::free, {}, 0, false}});
  client_.complete_steps(1);
  client_.bye();
  world_.send(core::ClientGone{client_.id()});
  EXPECT_EQ(check_drained(world_.engine()), std::vector<std::string>{});
  EXPECT_EQ(world_.problems(), std::vector<std::string>{});
}

TEST_F(CheckersTest, SeeAChangeOfStateInTheDigest) {
  const std::uint64_t before = state_digest(world_.engine());
  client_.ask(core::Status{});
  EXPECT_EQ(state_digest(world_.engine()), before);
  cache_->touch(block_);
  EXPECT_NE(state_digest(world_.engine()), before);
}

TEST_F(CheckersTest, SeeThatAGenerationDidNotRise) {
  StepHistory history;
  EXPECT_EQ(history.check(world_.engine()), std::vector<std::string>{});
  auto& pool = cache_->pool(Tier::host, kGroup);
  const auto free_slot = pool.take();
  ASSERT_TRUE(free_slot);
  EXPECT_EQ(history.check(world_.engine()), std::vector<std::string>{});
  const std::uint32_t generation = pool.generation(*free_slot);
  pool.release(*free_slot);
  EXPECT_EQ(history.check(world_.engine()), std::vector<std::string>{});
  ASSERT_TRUE(pool.take_exactly(*free_slot, generation));
  const auto problems = history.check(world_.engine());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(problems[0].starts_with("14:")) << problems[0];
}

TEST_F(CheckersTest, SeeThatABlockInUseLostACopy) {
  StepHistory history;
  EXPECT_EQ(history.check(world_.engine()), std::vector<std::string>{});
  cache_->drop_copy(block_, kGroup, Tier::host);
  const auto problems = history.check(world_.engine());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_TRUE(problems[0].starts_with("4:")) << problems[0];
}

TEST_F(CheckersTest, ExcuseTheLossOfABadCopyOnly) {
  StepHistory one, other;
  EXPECT_EQ(one.check(world_.engine()), std::vector<std::string>{});
  EXPECT_EQ(other.check(world_.engine()), std::vector<std::string>{});
  const Digest key = cache_->records().key(block_);
  cache_->drop_copy(block_, kGroup, Tier::host);
  const std::set<BadCopy> bad = {{Tier::host, key}}, bad_on_disk = {{Tier::disk, key}};
  EXPECT_EQ(one.check(world_.engine(), {&bad, {}}), std::vector<std::string>{});
  EXPECT_EQ(other.check(world_.engine(), {&bad_on_disk, {}}).size(), 1U);
}

// A running sequence pins the block; its host copy may go by a Clear of the host only.
class ClearsOfATierTest : public CheckersTest {
 protected:
  ClearsOfATierTest() : admin_(world_, "t0", core::ClientRole::admin), history_of_none_(seen()) {}
  // A history that has seen the engine as it is now.
  StepHistory seen() {
    StepHistory history;
    EXPECT_EQ(history.check(world_.engine()), std::vector<std::string>{});
    return history;
  }
  void clear_host() {
    admin_.clear(std::nullopt, Tier::host);
    world_.run_all();
    ASSERT_TRUE(slot(Tier::host).is_none());
    ASSERT_EQ(world_.problems(), std::vector<std::string>{});
  }
  static std::string first_of(const std::vector<std::string>& problems) {
    return problems.empty() ? "" : problems.front();
  }
  [[nodiscard]] Digest namespace_digest() const {
    return cache_->tree().namespace_digest(cache_->tree().root(block_));
  }
  VirtualClient admin_;
  StepHistory history_of_none_;
};

TEST_F(ClearsOfATierTest, ExcuseCopiesOfTheirTierAndNamespaceOnly) {
  StepHistory of_all = seen(), of_one = seen(), of_other = seen(), of_disk = seen();
  clear_host();
  const TierClear all{Tier::host, std::nullopt}, one{Tier::host, namespace_digest()},
      other{Tier::host, Digest{}}, disk{Tier::disk, std::nullopt};
  EXPECT_EQ(first_of(of_all.check(world_.engine(), {nullptr, std::array{all}})), "");
  EXPECT_EQ(first_of(of_one.check(world_.engine(), {nullptr, std::array{one}})), "");
  EXPECT_TRUE(
      first_of(of_other.check(world_.engine(), {nullptr, std::array{other}})).starts_with("4:"));
  EXPECT_TRUE(
      first_of(of_disk.check(world_.engine(), {nullptr, std::array{disk}})).starts_with("4:"));
  EXPECT_TRUE(first_of(history_of_none_.check(world_.engine())).starts_with("4:"));
}

// Its client may have left without a reply, so that nobody was told that it ended.
TEST_F(ClearsOfATierTest, ExcuseNothingOnceTheyEnded) {
  StepHistory history = seen();
  const std::array clears = {TierClear{Tier::host, std::nullopt},
                             TierClear{Tier::disk, std::nullopt}};
  clear_host();
  EXPECT_EQ(first_of(history.check(world_.engine(), {nullptr, clears})), "");
  cache_->drop_copy(block_, kGroup, Tier::disk);
  EXPECT_TRUE(first_of(history.check(world_.engine(), {nullptr, clears})).starts_with("4:"));
}

// What it retires is counted as cleared too, and excuses no copy of another namespace.
TEST_F(ClearsOfATierTest, ExcuseNothingInTheStepThatRetiresOtherBlocks) {
  client_.open(SequenceId{2}, "w1", {{1, 2, 3, 4, 5}}, 1, false, true);
  client_.admit(SequenceId{2}, 1);
  client_.compute(client_.sequences().at(SequenceId{2}), 5);
  client_.send_step({{SequenceId{2}, core::StepOp::publish, {}, 5, false}});
  client_.complete_steps(3);
  client_.send_step({});
  world_.run_all();
  StepHistory history = seen();
  const std::uint64_t before = world_.engine().status().counters.cleared_blocks;
  admin_.clear("w1", std::nullopt);
  ASSERT_EQ(world_.engine().status().counters.cleared_blocks, before + 2);
  cache_->drop_copy(block_, kGroup, Tier::host);
  const TierClear clear{Tier::host, std::nullopt};
  EXPECT_TRUE(
      first_of(history.check(world_.engine(), {nullptr, std::array{clear}})).starts_with("4:"));
}

TEST_F(CheckersTest, ReplayTheTraceOfTheWorldToTheSameActions) {
  world_.check_replay();
  EXPECT_EQ(world_.problems(), std::vector<std::string>{});
}

// What was synced is hit after the service was restarted, with the right bytes.
TEST_F(CheckersTest, AcceptARestartThatServesFromDisk) {
  client_.ask(core::Flush{});
  world_.run_all();
  EXPECT_EQ(world_.tiers().synced_entries(), 3U);
  world_.restart();
  world_.run_all();
  VirtualClient next(world_, "t0", core::ClientRole::runner);
  const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 9};
  next.attach_pool();
  next.open(kSequence, "w0", tokens, 1, false, true);
  next.admit(kSequence, 0);
  world_.run_all();
  next.poll();
  const auto& sequence = next.sequences().at(kSequence);
  EXPECT_TRUE(sequence.ready);
  EXPECT_EQ(sequence.account.hit_tokens[tier_index(Tier::disk)], 6U);
  EXPECT_EQ(world_.problems(), std::vector<std::string>{});
}

// A stranger writes into a cached slot: the client that hits it says so.
TEST_F(CheckersTest, NoticeWrongBytesAtAHit) {
  VirtualClient other(world_, "t0", core::ClientRole::runner);
  const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 9};
  other.attach_pool();
  other.open(SequenceId{5}, "w0", tokens, 2, false, true);
  world_.tiers().write(Tier::device, kGroup, slot(Tier::device), 12345);
  other.admit(SequenceId{5}, 0);
  const bool told = std::ranges::any_of(world_.problems(), [](const std::string& text) {
    return text.find("hit block 2 of sequence 5") != std::string::npos;
  });
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace kv::world
