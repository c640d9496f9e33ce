// Clients whose lease is over while nothing of them is fenced: they end at once, however long their
// process lives.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr Duration kMillisecond = std::chrono::milliseconds(1);

class SilentClient : public testing::Test {
 protected:
  explicit SilentClient(Engine::Options options = options_with_slots(8, 8, 0))
      : driver_(options), client_(driver_.attach_with_pool()) {}
  // The clients that ended in the step of the Tick or in those after it.
  std::vector<ClientId> expire() {
    driver_.advance(driver_.engine().options().lease + kMillisecond);
    driver_.tick();
    std::vector<ClientId> ended = driver_.last_actions().ended_clients;
    while (driver_.continue_wanted()) {
      driver_.input(Continue{});
      const auto& more = driver_.last_actions().ended_clients;
      ended.insert(ended.end(), more.begin(), more.end());
    }
    EXPECT_EQ(driver_.status().counters.expired_clients, 1U);
    return ended;
  }

  EngineDriver driver_;
  ClientId client_;
};

TEST_F(SilentClient, ThatHoldsNothingEndsWithItsLease) {
  EXPECT_EQ(expire(), std::vector{client_});
  EXPECT_EQ(driver_.status().clients, 0U);
  ASSERT_EQ(driver_.notices(client_).size(), 1U);
  EXPECT_EQ(driver_.notices(client_)[0].kind, NoticeKind::lease_expired);
  EXPECT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::stale);
  EXPECT_EQ(driver_.call(client_, Bye{}).error.code, ErrorCode::stale);
}

TEST_F(SilentClient, ThatOnlyOpenedSequencesEndsWithThem) {
  driver_.open(client_, kFirst, numbered_tokens(1, 100));
  EXPECT_EQ(expire(), std::vector{client_});
  EXPECT_EQ(driver_.status().clients, 0U);
  EXPECT_EQ(driver_.status().sequences, 0U);
}

// All that its table names is cached: nothing that it may write.
TEST_F(SilentClient, OfWhichEveryBlockIsPublishedEnds) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  driver_.step(client_, StepScript().publish(kFirst, 8));
  ASSERT_EQ(driver_.tier(Tier::device).covered, 2U);
  EXPECT_EQ(expire(), std::vector{client_});
  EXPECT_EQ(driver_.tier(Tier::device).evictable, 2U);
  EXPECT_EQ(driver_.status().sequences, 0U);
}

TEST_F(SilentClient, OfWhichSlotsAreFencedStaysUntilItsBye) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 4));
  EXPECT_TRUE(expire().empty());
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 1U);
  EXPECT_EQ(driver_.status().clients, 1U);
  EXPECT_EQ(driver_.call(client_, Bye{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 0U);
  EXPECT_EQ(driver_.status().clients, 0U);
}

// No sequence has the slot any more, but the step that gave it back may still write into it.
TEST_F(SilentClient, WithASlotThatWaitsForAStepStaysUntilItsBye) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  driver_.call(client_, StepScript().publish(kFirst, 4).at(1, 1));
  driver_.call(client_, StepScript().truncate(kFirst, 4).at(2, 1));
  EXPECT_TRUE(expire().empty());
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 1U);
  EXPECT_EQ(driver_.call(client_, Bye{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.status().clients, 0U);
}

// Of a client with fenced slots, what has none still makes room for others.
TEST_F(SilentClient, KeepsOnlyTheSequencesOfWhichSlotsAreFenced) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 4));
  driver_.open(client_, SequenceId(2), numbered_tokens(1, 100));
  EXPECT_TRUE(expire().empty());
  EXPECT_EQ(driver_.status().sequences, 1U);
}

class SilentClients : public SilentClient {
 protected:
  static Engine::Options options() {
    Engine::Options options = options_with_slots(8, 8, 0);
    options.client_capacity = 2;
    return options;
  }
  SilentClients() : SilentClient(options()) {}
};

TEST_F(SilentClients, TakeNoPlaceOfOthersHoweverManyTheyAre) {
  for (std::uint64_t life = 1; life <= 50; ++life) {
    SCOPED_TRACE(life);
    const ClientId silent = driver_.attach();
    ASSERT_EQ(driver_.status().clients, 2U);
    driver_.advance(driver_.engine().options().lease / 2);
    driver_.call(client_, Heartbeat{});
    driver_.advance(driver_.engine().options().lease / 2 + kMillisecond);
    driver_.tick();
    ASSERT_EQ(driver_.last_actions().ended_clients, std::vector{silent});
    ASSERT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::ok);
  }
}

}  // namespace
}  // namespace kv::core
