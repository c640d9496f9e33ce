// Each way of misbehaving is counted once, where it happened.
#include "tools/world/transfer_history.h"

#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cachesvc/core/actions.h"
#include "tools/world/virtual_client.h"
#include "tools/world/virtual_world.h"

namespace kv::world {
namespace {

using core::BlockOutcome;
constexpr TimePoint kStart{};
constexpr BlockOutcome kOk = BlockOutcome::ok;
constexpr BlockOutcome kBad = BlockOutcome::io_error;

// Counts by name, those that are not 0.
std::vector<std::pair<std::string, std::uint64_t>> seen(const TransferHistory& history) {
  const TransferHistory::Counts& counts = history.counts();
  std::vector<std::pair<std::string, std::uint64_t>> found;
  for (const auto& [name, count] : {std::pair{"late", counts.late},
                                    {"failed", counts.failed},
                                    {"partial", counts.partial},
                                    {"reordered", counts.reordered},
                                    {"repeated_in_flight", counts.repeated_in_flight},
                                    {"repeated_after_end", counts.repeated_after_end},
                                    {"contradicted", counts.contradicted},
                                    {"after_clear", counts.after_clear},
                                    {"after_epoch", counts.after_epoch}}) {
    if (count > 0) found.emplace_back(name, count);
  }
  return found;
}
using Seen = std::vector<std::pair<std::string, std::uint64_t>>;

Digest digest(int number) {
  Digest made;
  made.bytes[0] = static_cast<std::byte>(number);
  return made;
}

class TransferHistoryTest : public ::testing::Test {
 protected:
  TransferHistoryTest() : engine_({.tier_bytes = {1024, 1024, 4096, 0}}) {}
  // A save of two blocks to the host, in the namespace of this number.
  void start(std::uint64_t id, int name = 1) {
    core::Actions actions;
    actions.transfer_blocks.resize(2);
    actions.transfer_blocks[0].key = digest(static_cast<int>(id));
    core::StartTransfer transfer;
    transfer.id = TransferId{id};
    transfer.from = Tier::device;
    transfer.to = Tier::host;
    transfer.block_count = 2;
    transfer.namespace_digest = digest(name);
    history_.started(kStart, transfer, actions, engine_);
  }
  void end(std::uint64_t id, std::array<BlockOutcome, 2> outcomes = {kOk, kOk},
           Duration after = {}) {
    history_.ended(kStart + after, TransferId{id}, outcomes);
  }
  core::Engine engine_;
  TransferHistory history_;
};

TEST_F(TransferHistoryTest, CountsNothingWhenAllGoesWell) {
  start(1);
  start(2);
  end(1);
  end(2);
  EXPECT_EQ(seen(history_), Seen{});
}

TEST_F(TransferHistoryTest, TellsFailedFromPartial) {
  start(1);
  start(2);
  end(1, {kBad, kOk});
  end(2, {kBad, kBad});
  EXPECT_EQ(seen(history_), (Seen{{"failed", 1}, {"partial", 1}}));
}

TEST_F(TransferHistoryTest, SeesWhatOvertakesAnEarlierOneOfItsLink) {
  start(1);
  start(2);
  end(2);
  end(1);
  EXPECT_EQ(seen(history_), (Seen{{"reordered", 1}}));
}

TEST_F(TransferHistoryTest, SeesWhatTookLong) {
  start(1);
  end(1, {kOk, kOk}, TransferHistory::kLate + Duration(1));
  EXPECT_EQ(seen(history_), (Seen{{"late", 1}}));
}

TEST_F(TransferHistoryTest, SeesRepeatedReports) {
  start(1);
  end(1);
  history_.repeated(TransferId{1}, false, engine_);
  history_.repeated(TransferId{1}, true, engine_);
  EXPECT_EQ(seen(history_), (Seen{{"repeated_after_end", 2}, {"contradicted", 1}}));
}

TEST_F(TransferHistoryTest, SeesWhatEndsAfterItsContentWasCleared) {
  start(1, 1);
  start(2, 2);
  history_.cleared(digest(1), false);
  end(1);
  end(2);
  EXPECT_EQ(seen(history_), (Seen{{"after_clear", 1}}));
  start(3, 2);
  history_.cleared(digest(2), true);
  end(3);
  start(4, 2);
  end(4);  // begun afterwards
  EXPECT_EQ(seen(history_), (Seen{{"after_clear", 1}, {"after_epoch", 1}}));
}

TEST_F(TransferHistoryTest, ForgetsWhatWasOnItsWayWhenTheServiceEnds) {
  start(1);
  history_.forget_flights();
  end(1, {kBad, kBad});
  EXPECT_EQ(seen(history_), Seen{});
}

// Three blocks that lie in the host only, and a client that loads them.
class LoadsTest : public ::testing::Test {
 protected:
  LoadsTest()
      : world_(options()),
        maker_(world_, "t0", core::ClientRole::runner),
        loader_(world_, "t0", core::ClientRole::runner) {
    maker_.attach_pool();
    loader_.attach_pool();
    const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6, 7};
    const SequenceId sequence{1};
    maker_.open(sequence, "w0", tokens, 1, false, true);
    maker_.admit(sequence, 0);
    maker_.compute(maker_.sequences().at(sequence), 7);
    maker_.send_step({{sequence, core::StepOp::publish, {}, 7, false}});
    maker_.complete_steps(1);
    maker_.send_step({{sequence, core::StepOp::free, {}, 0, false}});
    maker_.complete_steps(1);
    maker_.send_step({});
    maker_.ask(core::Demote{});
    world_.run_all();
    loader_.open(sequence, "w0", tokens, 1, false, true);
    loader_.admit(sequence, 0);
    EXPECT_TRUE(loader_.sequences().at(sequence).loading);
  }
  static VirtualWorld::Options options() {
    VirtualWorld::Options options;
    LayerGroup group;
    group.layer_count = group.kv_head_count = group.head_dim_k = group.head_dim_v = 1;
    options.layout = {2, {group}};
    options.engine.tier_bytes = {128, 128, 0, 0};
    options.engine.lease = std::chrono::seconds(1);
    return options;
  }
  [[nodiscard]] const TransferHistory::Counts& counts() const { return world_.transfer_counts(); }
  VirtualWorld world_;
  VirtualClient maker_, loader_;
};

TEST_F(LoadsTest, OfALivingClientAreNothingToCount) {
  world_.run_all();
  EXPECT_EQ(counts().after_death + counts().after_expiry + counts().after_free, 0U);
}

TEST_F(LoadsTest, AreCountedWhenTheirClientIsDead) {
  loader_.die(0);
  world_.run_all();
  EXPECT_EQ(counts().after_death, 1U);
  EXPECT_EQ(counts().after_expiry + counts().after_free, 0U);
}

TEST_F(LoadsTest, AreCountedWhenTheirSequenceIsFree) {
  loader_.send_step({{SequenceId{1}, core::StepOp::free, {}, 0, false}});
  world_.run_all();
  EXPECT_EQ(counts().after_free, 1U);
  EXPECT_EQ(counts().after_expiry + counts().after_death, 0U);
}

TEST_F(LoadsTest, AreCountedWhenTheLeaseOfTheirClientHasEnded) {
  world_.stall_links(std::chrono::seconds(2));
  world_.pass_time(std::chrono::milliseconds(1'100));
  world_.run_all();
  EXPECT_EQ(counts().after_expiry, 1U);
  EXPECT_EQ(counts().late, 1U);
  EXPECT_EQ(counts().after_free + counts().after_death, 0U);
  EXPECT_EQ(world_.problems(), std::vector<std::string>{});
}

}  // namespace
}  // namespace kv::world
