#include "plugins/client/step_batch.h"

#include <numeric>

#include <gtest/gtest.h>

namespace kv::client {
namespace {

std::vector<Token> counted(std::size_t count, Token first = 0) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(StepBatch, KeepsTheOrderOfTheKindsInOneMessage) {
  StepRequest request;
  request.free = {SequenceId(5)};
  request.preempt = {SequenceId(7)};
  request.fork = {{SequenceId(8), SequenceId(80), 800}, {SequenceId(8), SequenceId(81), 0}};
  request.drop = {{SequenceId(9), 16, 32}};
  request.truncate = {{SequenceId(4), 40}};
  request.publish = {{SequenceId(3), 30}};
  request.append = {{SequenceId(2), {20, 21}}, {SequenceId(6), {60}}};
  request.acknowledge = {{SequenceId(1), 10}};
  StepBatch batch;
  batch.begin(request);
  ASSERT_TRUE(batch.next({}));
  ASSERT_EQ(batch.items().size(), 10U);
  const StepOp expected[] = {StepOp::acknowledge, StepOp::append, StepOp::append, StepOp::publish,
                             StepOp::truncate,    StepOp::drop,   StepOp::fork,   StepOp::fork,
                             StepOp::preempt,     StepOp::free};
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(batch.items()[i].op, expected[i]) << i;
  EXPECT_EQ(batch.items()[0].value, 10U);
  EXPECT_EQ(batch.items()[2].token_offset, 2U);
  EXPECT_EQ(batch.items()[2].token_count, 1U);
  EXPECT_EQ(batch.items()[3].value, 30U);
  EXPECT_EQ(batch.items()[4].value, 40U);
  EXPECT_EQ(batch.items()[5].token_offset, 16U);
  EXPECT_EQ(batch.items()[5].token_count, 32U);
  EXPECT_EQ(batch.items()[6].sequence, SequenceId(8));
  EXPECT_EQ(batch.items()[6].token_count, 800U);
  EXPECT_EQ(batch.items()[6].value, 0U);
  EXPECT_EQ(batch.items()[7].value, 1U);
  EXPECT_EQ(std::vector(batch.children().begin(), batch.children().end()),
            (std::vector{SequenceId(80), SequenceId(81)}));
  EXPECT_EQ(batch.items()[9].sequence, SequenceId(5));
  EXPECT_EQ(std::vector(batch.tokens().begin(), batch.tokens().end()),
            (std::vector<Token>{20, 21, 60}));
  EXPECT_FALSE(batch.next({}));
}

TEST(StepBatch, GivesAStepWithoutItemsOnce) {
  const StepRequest request;
  StepBatch batch;
  batch.begin(request);
  EXPECT_TRUE(batch.next({}));
  EXPECT_TRUE(batch.items().empty());
  EXPECT_FALSE(batch.next({}));
}

TEST(StepBatch, CutsItemsAtTheLimitOfAMessage) {
  StepRequest request;
  for (std::uint64_t id = 0; id < 10'000; ++id) request.free.emplace_back(id);
  StepBatch batch;
  batch.begin(request);
  std::uint64_t expected = 0;
  std::vector<std::size_t> sizes;
  while (batch.next({})) {
    sizes.push_back(batch.items().size());
    for (const StepItem& item : batch.items()) EXPECT_EQ(item.sequence.value, expected++);
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4'096, 4'096, 1'808}));
}

TEST(StepBatch, CutsALongAppendAndPublishesAfterItsLastPart) {
  StepRequest request;
  request.append = {{SequenceId(1), counted(10)}, {SequenceId(2), counted(140'000, 10)}};
  request.publish = {{SequenceId(2), 140'000}};
  StepBatch batch;
  batch.begin(request);
  std::vector<Token> all;
  std::size_t messages = 0;
  bool published = false;
  while (batch.next({})) {
    ++messages;
    EXPECT_FALSE(published);
    EXPECT_LE(batch.tokens().size(), 65'536U);
    for (const StepItem& item : batch.items()) {
      if (item.op == StepOp::publish) published = true;
      const auto part = batch.tokens().subspan(item.token_offset, item.token_count);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  EXPECT_EQ(messages, 3U);
  EXPECT_TRUE(published);
  EXPECT_EQ(all, counted(140'010));
}

TEST(StepBatch, LeavesOutTheRestOfAnAppendWhoseStartWasRefused) {
  StepRequest request;
  request.acknowledge = {{SequenceId(2), 1}};
  request.append = {{SequenceId(2), counted(140'000)}, {SequenceId(3), {7}}};
  StepBatch batch;
  batch.begin(request);
  ASSERT_TRUE(batch.next({}));
  const std::vector<StepAnswer::Failure> append_failed{{1, {ErrorCode::exhausted, "", ""}}};
  ASSERT_TRUE(batch.next(append_failed));
  ASSERT_EQ(batch.items().size(), 1U);
  EXPECT_EQ(batch.items()[0].sequence, SequenceId(3));
  EXPECT_FALSE(batch.next({}));
}

TEST(StepBatch, GoesOnWithAnAppendWhenAnotherItemOfItsSequenceWasRefused) {
  StepRequest request;
  request.acknowledge = {{SequenceId(2), 1}};
  request.append = {{SequenceId(2), counted(70'000)}};
  StepBatch batch;
  batch.begin(request);
  ASSERT_TRUE(batch.next({}));
  const std::vector<StepAnswer::Failure> acknowledge_failed{{0, {ErrorCode::invalid, "", ""}}};
  ASSERT_TRUE(batch.next(acknowledge_failed));
  EXPECT_EQ(batch.tokens().size(), 70'000U - 65'536U);
}

}  // namespace
}  // namespace kv::client
