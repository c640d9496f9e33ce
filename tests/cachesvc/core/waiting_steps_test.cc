// Admissions that wait are tried again within the bounds of a step, each in its turn.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr std::uint32_t kLong = 3'000;  // blocks of one token: more than a step may look at
constexpr std::uint64_t kWaiting = 8;
constexpr SequenceId kLoading(1);
constexpr SequenceId kShort(2);
constexpr SequenceId kShortLater(3);
constexpr SequenceId kOther(4);
constexpr SequenceId kWaitingFrom(100);

// A long prompt whose load hangs, and those who wait for it.
class WaitingSteps : public testing::Test {
 protected:
  WaitingSteps() : driver_(options()), client_(driver_.attach_with_pool(1)) {
    driver_.cache_prompt(client_, long_);
    driver_.cache_prompt(client_, short_);
    driver_.call(client_, Demote{.header = {}, .tier = Tier::device});
    driver_.admit(client_, kOther, numbered_tokens(200'000, 4));
    driver_.hold_transfers(true);
    driver_.admit(client_, kLoading, long_);
    for (std::uint64_t i = 0; i < kWaiting; ++i) {
      const SequenceId sequence(kWaitingFrom.value + i);
      driver_.open(client_, sequence, long_);
      waiting_.push_back(driver_.send(client_, Admit{.header = {}, .sequence = sequence}));
      driver_.settle();
    }
  }
  static Engine::Options options() {
    Engine::Options options = options_with_slots(40'000, 40'000, 0, 1);
    options.device_host_transfers = 64;  // the long prompt's, 64 blocks each, and one more
    return options;
  }
  // The number of Continues.
  std::uint64_t go_on() {
    std::uint64_t continues = 0;
    for (; driver_.continue_wanted() && continues < 1'000; ++continues) driver_.input(Continue{});
    return continues;
  }

  EngineDriver driver_;
  ClientId client_;
  std::vector<Token> long_ = numbered_tokens(1, kLong);
  std::vector<Token> short_ = numbered_tokens(100'000, 10);
  std::vector<RequestId> waiting_;
};

TEST_F(WaitingSteps, ThoseWhoWaitWithLongPromptsAreMatchedInAsManySteps) {
  for (const RequestId id : waiting_) ASSERT_EQ(driver_.reply_count(client_, id), 0U);
  ASSERT_FALSE(driver_.continue_wanted());
  driver_.send(client_, StepScript().free(kOther).at(9, 9));
  // One match uses a step up: the first one is in the step itself.
  EXPECT_EQ(go_on(), kWaiting - 1);
  for (const RequestId id : waiting_) EXPECT_EQ(driver_.reply_count(client_, id), 0U);
  EXPECT_FALSE(driver_.continue_wanted());
}

TEST_F(WaitingSteps, WhoWaitsBehindThemGetsItsTurn) {
  const std::size_t hanging = driver_.transfers().pending().size();
  driver_.admit(client_, kShort, short_);
  ASSERT_EQ(driver_.transfers().pending().size(), hanging + 1);
  driver_.open(client_, kShortLater, short_);
  const RequestId id = driver_.send(client_, Admit{.header = {}, .sequence = kShortLater});
  driver_.settle();
  ASSERT_EQ(driver_.reply_count(client_, id), 0U);
  driver_.finish_transfer(hanging);
  // In the first round; its admission is the reason for one more.
  for (std::uint64_t i = 0; i < kWaiting; ++i) driver_.input(Continue{});
  ASSERT_EQ(driver_.reply_count(client_, id), 1U);
  EXPECT_EQ(go_on(), kWaiting);
  EXPECT_EQ(driver_.reply(client_, id).error.code, ErrorCode::ok);
}

TEST_F(WaitingSteps, WhoComesInTheMiddleOfARoundHasItsTurnAfterThem) {
  driver_.send(client_, StepScript().free(kOther).at(9, 9));
  ASSERT_TRUE(driver_.continue_wanted());
  driver_.open(client_, kShort, long_);  // settles no more than it must: a round goes on
  const RequestId late = driver_.send(client_, Admit{.header = {}, .sequence = kShort});
  driver_.hold_transfers(false);
  driver_.settle();
  for (const RequestId id : waiting_) {
    ASSERT_EQ(driver_.reply_count(client_, id), 1U);
    EXPECT_EQ(driver_.reply(client_, id).error.code, ErrorCode::ok);
  }
  EXPECT_EQ(driver_.reply(client_, late).error.code, ErrorCode::ok);
}

TEST_F(WaitingSteps, TheEndOfAClientInTheMiddleOfARoundLeavesNothing) {
  driver_.send(client_, StepScript().free(kOther).at(9, 9));
  driver_.input(Continue{});
  ASSERT_TRUE(driver_.continue_wanted());
  driver_.input(ClientGone{client_});
  driver_.hold_transfers(false);
  driver_.settle();
  EXPECT_FALSE(driver_.continue_wanted());
  EXPECT_EQ(driver_.status().sequences, 0U);
  EXPECT_EQ(driver_.tier(Tier::device).held, 0U);
}

}  // namespace
}  // namespace kv::core
