// What survives the end of the service, orderly or not.
#include <gtest/gtest.h>

#include "tests/end_to_end/service_fixture.h"

namespace kv::test {
namespace {

TEST_F(ServiceTest, WhatFlushReportedDurableIsHitAfterAKill) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto prompt = prompt_of(21, 400);
  (void)runner.run(SequenceId(1), prompt);
  const auto flushed = connect(Client::Role::admin)->flush(in(seconds(30)));
  ASSERT_TRUE(flushed) << flushed.error().reason;
  EXPECT_EQ(flushed->durable_blocks, 25U);
  EXPECT_EQ(flushed->unsaved_blocks, 0U);

  kill_service();
  const auto during = runner.client().status(in(seconds(20)));
  ASSERT_FALSE(during);
  EXPECT_EQ(during.error().code, ErrorCode::unavailable);

  ASSERT_NO_FATAL_FAILURE(start_service());
  // The old attachment stays ended, even though a service is there again.
  EXPECT_FALSE(runner.client().status(in(seconds(20))));
  ASSERT_TRUE(runner.client().reattach(in(seconds(20))));
  runner.restart_steps();
  runner.attach();
  wait_recovered(runner.client());
  EXPECT_EQ(counter(runner.client(), "recovered_blocks"), 25U);
  const auto account = runner.run(SequenceId(1), prompt);
  EXPECT_EQ(account.hit_tokens[2], 384U);  // 16 x floor(399 / 16)
  EXPECT_EQ(account.computed_tokens, 16U);
}

TEST_F(ServiceTest, ARestartBetweenTwoCallsIsStaleAndNeverAnOldAnswer) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto before = runner.client().boot();
  kill_service();
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto status = runner.client().status(in(seconds(20)));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::stale);
  ASSERT_TRUE(runner.client().reattach(in(seconds(20))));
  EXPECT_NE(runner.client().boot(), before);
  EXPECT_TRUE(runner.client().status(in(seconds(20))));
}

TEST_F(ServiceTest, AnOrderlyStopSavesWhatOnlyTheDeviceHeld) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto prompt = prompt_of(22, 100);
  {
    TestRunner runner(connect());
    (void)runner.run(SequenceId(1), prompt);
  }
  stop_service();
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  wait_recovered(runner.client());
  EXPECT_EQ(runner.run(SequenceId(1), prompt).hit_tokens[2], 96U);
}

}  // namespace
}  // namespace kv::test
