// Rows LEAK of the scenarios, with their numbers, on one Engine: blocks of 4 tokens, a lease of
// 10 s.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr Duration kLease = std::chrono::seconds(10);

// 4 blocks in the host, all matched; the device has them too, so that nothing is to be loaded.
class PinnedByAMatch : public testing::Test {
 protected:
  PinnedByAMatch() : driver_(options_with_slots(16, 4, 0)), storer_(driver_.attach_with_pool()) {
    driver_.cache_prompt(storer_, numbered_tokens(1, 16));
    EXPECT_EQ(driver_.tier(Tier::host).cached, 4U);
    engine_ = driver_.attach_with_pool();
    const Reply reply = driver_.admit(engine_, kFirst, numbered_tokens(1, 17));
    EXPECT_EQ(reply.error.code, ErrorCode::ok);
    EXPECT_TRUE(std::get<AdmitReply>(reply.body).ready) << "nothing is to be loaded";
    EXPECT_EQ(driver_.tier(Tier::host).covered, 4U);
  }
  void store_four() { driver_.cache_prompt(storer_, numbered_tokens(500, 16)); }
  std::uint64_t evicted() { return driver_.status().counters.evicted_blocks[1]; }

  EngineDriver driver_;
  ClientId storer_, engine_;
};

// SCENARIOS LEAK-05: the engine gives its reservation back.
TEST_F(PinnedByAMatch, Leak05IsFreeAtOnceWhenItIsGivenBack) {
  driver_.step(engine_, StepScript().free(kFirst));
  EXPECT_EQ(driver_.tier(Tier::host).covered, 0U);
  store_four();
  EXPECT_EQ(evicted(), 4U);
  EXPECT_EQ(driver_.tier(Tier::host).cached, 4U);
}

// SCENARIOS LEAK-05: the engine never gives it back.
TEST_F(PinnedByAMatch, Leak05IsFreeWhenTheLeaseHasRunOut) {
  driver_.advance(kLease - std::chrono::milliseconds(1));
  driver_.call(storer_, Heartbeat{});
  driver_.tick();
  EXPECT_EQ(driver_.tier(Tier::host).covered, 4U);
  driver_.advance(std::chrono::milliseconds(2));
  driver_.tick();
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::host).covered, 0U);
  store_four();
  EXPECT_EQ(evicted(), 4U);
}

// SCENARIOS LEAK-05: as long as it is pinned nothing of it goes.
TEST_F(PinnedByAMatch, Leak05IsNotEvictedMeanwhile) {
  store_four();
  EXPECT_EQ(evicted(), 0U);
  EXPECT_EQ(driver_.lookup(storer_, numbered_tokens(1, 17)).hit_tokens, 16U);
}

// SCENARIOS LEAK-06
TEST(Scenarios, Leak06ASecondReleaseIsAnErrorWithoutEffect) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.admit(client, kFirst, numbered_tokens(1, 9));
  EXPECT_EQ(driver.tier(Tier::device).covered, 2U);
  driver.step(client, StepScript().free(kFirst));
  const StatusReply released = driver.status();
  EXPECT_EQ(released.tiers[0].covered, 0U);
  const Reply again = driver.step(client, StepScript().free(kFirst));
  const auto& failures = std::get<StepReply>(again.body).failures;
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].error.code, ErrorCode::not_found);
  EXPECT_EQ(driver.status().tiers, released.tiers);
  // The pins of others are not the ones that went.
  driver.admit(client, SequenceId(2), numbered_tokens(1, 9));
  driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(driver.tier(Tier::device).covered, 2U);
}

// SCENARIOS LEAK-06: the end of a lease frees no block with a transfer in flight.
TEST(Scenarios, Leak06TheEndOfALeaseLeavesBlocksThatAreBeingCopied) {
  EngineDriver driver(options_with_slots(2, 2, 0));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.admit(client, kFirst, numbered_tokens(1, 8));
  driver.step(client, StepScript().publish(kFirst, 8));
  ASSERT_GT(driver.transfers().pending().size(), 0U);
  driver.advance(kLease + std::chrono::milliseconds(1));
  driver.tick();
  driver.settle();
  // Another client would like the slots that are still being read.
  const ClientId next = driver.attach_with_pool();
  EXPECT_EQ(driver.admit(next, kFirst, numbered_tokens(100, 8)).error.code, ErrorCode::exhausted);
  driver.hold_transfers(false);
  driver.settle();
  EXPECT_EQ(driver.call(next, Admit{.header = {}, .sequence = kFirst}).error.code, ErrorCode::ok);
}

// SCENARIOS LEAK-15
TEST(Scenarios, Leak15ChunksThatAreNotPublishedTakeTheirBlocksOnce) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 16));
  EXPECT_EQ(driver.tier(Tier::device).held, 4U);
  driver.step(client, StepScript());  // the first 8 tokens are computed
  driver.step(client, StepScript());  // and the next 8
  EXPECT_EQ(driver.tier(Tier::device).held, 4U);
  driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(driver.tier(Tier::device).cached, 0U);
  EXPECT_EQ(driver.tier(Tier::device).free, 8U);
}

// SCENARIOS LEAK-24
TEST(Scenarios, Leak24TheIndexKeepsToItsCapAndToItsMemory) {
  EngineDriver driver(options_with_slots(1'000, 0, 0));
  const ClientId client = driver.attach_with_pool();
  std::uint64_t metadata_bytes = 0;                // once it is full
  for (Token prompt = 0; prompt < 50; ++prompt) {  // of 100 blocks each: 5,000
    driver.cache_prompt(client, numbered_tokens(1 + prompt * 400, 400));
    const StatusReply status = driver.status();
    ASSERT_LE(status.tree_blocks, 1'000U);
    ASSERT_EQ(status.tiers[0].cached, std::min(1'000U, 100 * (prompt + 1)));
    if (prompt == 9) metadata_bytes = status.metadata_bytes;
  }
  const StatusReply status = driver.status();
  EXPECT_EQ(status.counters.published_blocks, 5'000U);
  EXPECT_EQ(status.counters.evicted_blocks[0], 4'000U) << "what left the index gave its slot back";
  EXPECT_GT(metadata_bytes, 0U);
  EXPECT_EQ(status.metadata_bytes, metadata_bytes);
}

}  // namespace
}  // namespace kv::core
