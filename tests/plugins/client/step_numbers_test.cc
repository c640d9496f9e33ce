#include "plugins/client/step_numbers.h"

#include <gtest/gtest.h>

namespace kv::client {
namespace {

TEST(StepNumbers, AreTheCallersOwnWhileEveryStepIsOneMessage) {
  StepNumbers numbers;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(numbers.begin(step, step - 1));
    EXPECT_EQ(numbers.next(), step);
    EXPECT_EQ(numbers.completed(), step - 1);
  }
}

TEST(StepNumbers, TranslateACompletedStepToItsLastMessage) {
  StepNumbers numbers;
  ASSERT_TRUE(numbers.begin(10, 0));
  EXPECT_EQ(numbers.next(), 1U);
  EXPECT_EQ(numbers.next(), 2U);
  EXPECT_EQ(numbers.next(), 3U);
  EXPECT_EQ(numbers.completed(), 0U);
  ASSERT_TRUE(numbers.begin(20, 9));
  EXPECT_EQ(numbers.next(), 4U);
  EXPECT_EQ(numbers.completed(), 0U) << "step 10 is not completed by 9";
  ASSERT_TRUE(numbers.begin(30, 10));
  EXPECT_EQ(numbers.next(), 5U);
  EXPECT_EQ(numbers.completed(), 3U);
  ASSERT_TRUE(numbers.begin(31, 29));
  EXPECT_EQ(numbers.next(), 6U);
  EXPECT_EQ(numbers.completed(), 4U);
}

TEST(StepNumbers, CompleteEachMessageOfAStepThatIsCompletedAtOnce) {
  StepNumbers numbers;
  ASSERT_TRUE(numbers.begin(1, 1));
  EXPECT_EQ(numbers.next(), 1U);
  EXPECT_EQ(numbers.completed(), 1U);
  EXPECT_EQ(numbers.next(), 2U);
  EXPECT_EQ(numbers.completed(), 2U);
  ASSERT_TRUE(numbers.begin(2, 1));
  EXPECT_EQ(numbers.next(), 3U);
  EXPECT_EQ(numbers.completed(), 2U);
}

TEST(StepNumbers, RefuseAStepOutOfOrderAndStayAsTheyWere) {
  StepNumbers numbers;
  ASSERT_TRUE(numbers.begin(5, 0));
  EXPECT_EQ(numbers.next(), 1U);
  EXPECT_EQ(numbers.begin(5, 0).error().code, ErrorCode::invalid);
  EXPECT_EQ(numbers.begin(4, 0).error().code, ErrorCode::invalid);
  EXPECT_EQ(numbers.begin(6, 7).error().code, ErrorCode::invalid);
  ASSERT_TRUE(numbers.begin(6, 5));
  EXPECT_EQ(numbers.next(), 2U);
  EXPECT_EQ(numbers.completed(), 1U);
}

TEST(StepNumbers, AreBounded) {
  StepNumbers numbers;
  for (std::uint64_t step = 1; step <= kStepsInFlightMax; ++step) {
    ASSERT_TRUE(numbers.begin(step, 0));
    (void)numbers.next();
  }
  EXPECT_EQ(numbers.begin(kStepsInFlightMax + 1, 0).error().code, ErrorCode::exhausted);
  EXPECT_TRUE(numbers.begin(kStepsInFlightMax + 1, 1));
}

}  // namespace
}  // namespace kv::client
