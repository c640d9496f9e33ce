// The end of clients: leases, fences, Bye, death, with and without transfers under way.
#include <algorithm>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr Duration kLease = std::chrono::seconds(10);
constexpr Duration kMillisecond = std::chrono::milliseconds(1);

class Lease : public testing::Test {
 protected:
  Lease() : driver_(options()), client_(driver_.attach_with_pool()) {}
  static Engine::Options options() {
    Engine::Options options = options_with_slots(8, 8, 0);
    options.lease = kLease;
    return options;
  }
  // One published block and three private ones (12 tokens and 4 new ones).
  void hold_blocks() {
    driver_.admit(client_, kFirst, numbered_tokens(1, 12), 4);
    driver_.step(client_, StepScript().publish(kFirst, 4));
  }
  void expire() {
    driver_.advance(kLease + kMillisecond);
    driver_.tick();
    driver_.settle();
  }

  EngineDriver driver_;
  ClientId client_;
};

TEST_F(Lease, EveryRequestRenewsIt) {
  for (int i = 0; i < 3; ++i) {
    driver_.advance(kLease - kMillisecond);
    driver_.tick();
    EXPECT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::ok);
  }
  EXPECT_EQ(driver_.status().counters.expired_clients, 0U);
}

TEST_F(Lease, TimeInWhichNobodyListenedCountsForNoClient) {
  hold_blocks();
  const ClientId other = driver_.attach_with_pool();
  driver_.advance(kLease / 2);
  driver_.call(other, Heartbeat{});
  const Duration pause = 10 * kLease;
  driver_.advance(pause);
  driver_.tick(pause);
  driver_.settle();
  EXPECT_EQ(driver_.status().counters.expired_clients, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 3U);
  // Each has what it had before the pause: half a lease and a whole one.
  driver_.advance(kLease / 2);
  driver_.tick();
  driver_.settle();
  EXPECT_EQ(driver_.status().counters.expired_clients, 0U);
  driver_.advance(kMillisecond);
  driver_.tick();
  driver_.settle();
  EXPECT_EQ(driver_.status().counters.expired_clients, 1U);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 3U);
  EXPECT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::stale);
  EXPECT_EQ(driver_.call(other, Heartbeat{}).error.code, ErrorCode::ok);
}

TEST_F(Lease, WhatIsHeardBeforeTheTickOfAPauseIsCountedOnce) {
  const Duration pause = 10 * kLease;
  driver_.advance(pause);
  EXPECT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::ok);  // it had waited
  driver_.tick(pause);
  driver_.advance(kLease);
  driver_.tick();
  EXPECT_EQ(driver_.status().counters.expired_clients, 0U);
  driver_.advance(kMillisecond);
  driver_.tick();
  EXPECT_EQ(driver_.status().counters.expired_clients, 1U) << "one lease after it was heard";
}

TEST_F(Lease, APauseRevivesNobodyWhoseLeaseWasOver) {
  expire();
  driver_.advance(kLease);
  driver_.tick(kLease);
  EXPECT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::stale);
  EXPECT_EQ(driver_.status().counters.expired_clients, 1U);
}

TEST_F(Lease, ExpiryFencesHeldSlotsAndDropsPins) {
  hold_blocks();
  ASSERT_EQ(driver_.tier(Tier::device).held, 3U);
  ASSERT_EQ(driver_.tier(Tier::device).covered, 1U);
  expire();
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 3U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 1U);
  EXPECT_EQ(driver_.tier(Tier::device).covered, 0U);
  EXPECT_EQ(driver_.status().counters.expired_clients, 1U);
  ASSERT_EQ(driver_.notices(client_).size(), 1U);
  EXPECT_EQ(driver_.notices(client_)[0].kind, NoticeKind::lease_expired);
}

TEST_F(Lease, ExpiredClientIsStaleUntilByeAcknowledgesTheFence) {
  hold_blocks();
  expire();
  EXPECT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::stale);
  EXPECT_EQ(driver_.call(client_, StepScript().free(kFirst).at(9, 9)).error.code, ErrorCode::stale);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 3U);
  EXPECT_EQ(driver_.call(client_, Bye{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).free, 7U);
}

TEST_F(Lease, SlotsThatWaitForAStepAreFencedToo) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 12));
  driver_.call(client_, StepScript().free(kFirst).at(1, 0));
  ASSERT_EQ(driver_.tier(Tier::device).held, 3U);
  expire();
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 3U);
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).free, 8U);
}

TEST_F(Lease, SlotsThatAStepGaveUpAreFencedToo) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 12), 4);
  driver_.call(client_, StepScript().truncate(kFirst, 4).at(1, 0));
  ASSERT_EQ(driver_.tier(Tier::device).held, 4U);  // three of them wait for step 1
  expire();
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 4U);
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).free, 8U);
}

TEST_F(Lease, DeathOfAnExpiredClientEndsItsFence) {
  hold_blocks();
  expire();
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).free, 7U);
  EXPECT_EQ(driver_.status().clients, 0U);
}

TEST_F(Lease, DeathOfALiveClientFreesEverythingOfIt) {
  hold_blocks();
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).free, 7U);
  EXPECT_EQ(driver_.tier(Tier::device).cached, 1U);
  EXPECT_EQ(driver_.tier(Tier::device).covered, 0U);
  EXPECT_EQ(driver_.status().sequences, 0U);
  EXPECT_EQ(driver_.status().clients, 0U);
  EXPECT_EQ(driver_.status().counters.gone_clients, 1U);
  driver_.input(ClientGone{client_});  // again: nothing
  EXPECT_EQ(driver_.status().counters.gone_clients, 1U);
}

TEST_F(Lease, UnfinishedPublishOfADeadClientIsNeverVisible) {
  driver_.admit(client_, kFirst, numbered_tokens(1, 8));
  driver_.call(client_, StepScript().publish(kFirst, 8).at(1, 0));
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).free, 8U);
  EXPECT_EQ(driver_.status().tree_blocks, 0U);
}

TEST_F(Lease, ByeOfALiveClientFreesEverythingOfIt) {
  hold_blocks();
  EXPECT_EQ(driver_.call(client_, Bye{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).free, 7U);
  EXPECT_EQ(driver_.status().sequences, 0U);
  EXPECT_EQ(driver_.call(client_, Heartbeat{}).error.code, ErrorCode::stale);
}

TEST_F(Lease, OthersGoOnWhenOneExpires) {
  hold_blocks();
  const ClientId other = driver_.attach_with_pool();
  driver_.admit(other, kFirst, numbered_tokens(100, 4));
  driver_.advance(kLease - kMillisecond);
  driver_.call(other, Heartbeat{});
  driver_.advance(2 * kMillisecond);
  driver_.tick();
  driver_.settle();
  EXPECT_EQ(driver_.status().counters.expired_clients, 1U);
  EXPECT_EQ(driver_.call(other, Heartbeat{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).held, 1U);
  EXPECT_TRUE(driver_.view(other, kFirst).has_value());
}

TEST_F(Lease, SaveUnderWayKeepsItsBlockAfterTheClientDied) {
  driver_.hold_transfers(true);
  driver_.admit(client_, kFirst, numbered_tokens(1, 4));
  driver_.step(client_, StepScript().publish(kFirst, 4));
  ASSERT_EQ(driver_.transfers().pending().size(), 1U);
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).covered, 1U);
  EXPECT_EQ(driver_.tier(Tier::host).held, 1U);
  driver_.finish_transfer(0);
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).covered, 0U);
  EXPECT_EQ(driver_.tier(Tier::host).cached, 1U);
  EXPECT_EQ(driver_.tier(Tier::host).held, 0U);
}

// Two blocks in the host only; their load is under way when the client ends.
class LoadUnderWay : public Lease {
 protected:
  LoadUnderWay() {
    driver_.cache_prompt(client_, numbered_tokens(1, 8));
    driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
    driver_.hold_transfers(true);
    driver_.admit(client_, kFirst, numbered_tokens(1, 9));  // 2 loads, 1 private
    driver_.settle();
  }
};

TEST_F(LoadUnderWay, KeepsItsSlotsUntilItEndsWhenTheClientDied) {
  ASSERT_EQ(driver_.transfers().pending().size(), 1U);
  ASSERT_EQ(driver_.tier(Tier::device).held, 3U);
  driver_.input(ClientGone{client_});
  driver_.settle();
  EXPECT_GE(driver_.tier(Tier::device).held, 2U);
  EXPECT_EQ(driver_.tier(Tier::host).covered, 2U);
  driver_.finish_transfer(0);
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 0U);
  EXPECT_EQ(driver_.tier(Tier::host).covered, 0U);
  EXPECT_EQ(driver_.engine().transfer_count(), 0U);
}

TEST_F(LoadUnderWay, LeavesNothingBehindWhenTheLeaseExpired) {
  expire();
  EXPECT_EQ(driver_.tier(Tier::device).free, 5U);
  EXPECT_EQ(driver_.tier(Tier::host).covered, 2U);
  driver_.finish_transfer(0);
  driver_.settle();
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
  EXPECT_GE(driver_.tier(Tier::device).fenced, 1U);  // the private one at least
  EXPECT_EQ(driver_.call(client_, Bye{}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 0U);
  EXPECT_EQ(driver_.tier(Tier::host).covered, 0U);
  // No notice of a sequence that is no more.
  const std::vector<Notice>& notices = driver_.notices(client_);
  EXPECT_EQ(std::ranges::count(notices, NoticeKind::sequence_ready, &Notice::kind), 0);
}

TEST_F(LoadUnderWay, WhoWaitsForItGoesOnWhenTheLeaseExpired) {
  const ClientId other = driver_.attach_with_pool();
  driver_.open(other, kFirst, numbered_tokens(1, 9));
  const RequestId waiting = driver_.send(other, Admit{.header = {}, .sequence = kFirst});
  driver_.advance(kLease - kMillisecond);
  driver_.call(other, Heartbeat{});
  driver_.advance(2 * kMillisecond);
  driver_.tick();
  driver_.settle();
  ASSERT_EQ(driver_.status().counters.expired_clients, 1U);
  EXPECT_EQ(driver_.reply_count(other, waiting), 0U);  // the load still writes
  driver_.finish_transfer(0);
  driver_.settle();
  ASSERT_EQ(driver_.reply_count(other, waiting), 1U);
  EXPECT_EQ(driver_.reply(other, waiting).error.code, ErrorCode::ok);
}

}  // namespace
}  // namespace kv::core
