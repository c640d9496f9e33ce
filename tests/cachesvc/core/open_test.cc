// Open: sequences and their prompt tokens before admission.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"
#include "tests/cachesvc/core/step_script.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

Open more(SequenceId sequence, std::span<const Token> tokens) {
  return {.header = {}, .sequence = sequence, .first = false, .fields = nullptr, .tokens = tokens};
}

TEST(Open, BeforeAPoolIsUnavailable) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach();
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(1, 4)).error.code, ErrorCode::unavailable);
  EXPECT_EQ(driver.status().sequences, 0U);
}

TEST(Open, TokensAccumulateInOrder) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.open(client, kFirst, numbered_tokens(1, 3));
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(4, 6))).error.code, ErrorCode::ok);
  const Engine::SequenceView view = driver.live(client, kFirst);
  EXPECT_EQ(std::vector<Token>(view.tokens.begin(), view.tokens.end()), numbered_tokens(1, 9));
  EXPECT_FALSE(view.admitted);
  EXPECT_EQ(driver.tier(Tier::device).held, 0U);
}

TEST(Open, FirstOfAKnownIdExistsAndLeavesItAsItWas) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.open(client, kFirst, numbered_tokens(1, 3));
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(1, 5)).error.code, ErrorCode::exists);
  EXPECT_EQ(driver.live(client, kFirst).tokens.size(), 3U);
  EXPECT_EQ(driver.status().sequences, 1U);
}

TEST(Open, MoreTokensOfAnUnknownSequenceAreNotFound) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(1, 3))).error.code,
            ErrorCode::not_found);
  EXPECT_EQ(driver.status().sequences, 0U);
}

TEST(Open, MoreTokensAfterAdmissionAreInvalid) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.admit(client, kFirst, numbered_tokens(1, 3));
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(4, 3))).error.code,
            ErrorCode::invalid);
  EXPECT_EQ(driver.live(client, kFirst).tokens.size(), 3U);
}

TEST(Open, NamespaceThatHoldsNothingGivesWayToANewOneWhenThereAreTooMany) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.root_capacity = 2;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  const auto salted = [](std::string_view salt) {
    NamespaceFields fields;
    fields.salt = salt;
    return fields;
  };
  const auto open_salted = [&](SequenceId sequence, const NamespaceFields& fields) {
    const auto tokens = numbered_tokens(1, 4);
    return driver
        .call(client, Open{.header = {}, .sequence = sequence, .fields = &fields, .tokens = tokens})
        .error.code;
  };
  // One namespace holds a block, one a sequence.
  driver.admit(client, kFirst, numbered_tokens(1, 4), 0, salted("kept"));
  driver.step(client, StepScript().publish(kFirst, 4).free(kFirst));
  EXPECT_EQ(open_salted(kFirst, salted("open")), ErrorCode::ok);
  EXPECT_EQ(open_salted(kSecond, salted("third")), ErrorCode::exhausted);
  driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(open_salted(kSecond, salted("third")), ErrorCode::ok);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 5), salted("kept")).hit_tokens, 4U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 5), salted("open")).hit_tokens, 0U);
  EXPECT_EQ(driver.status().namespaces, 2U);
}

TEST(Open, MoreTokensThanASequenceMayHaveAreTooLarge) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.sequence_tokens_max = 8;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(1, 9)).error.code, ErrorCode::too_large);
  EXPECT_EQ(driver.status().sequences, 0U);
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(1, 5)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(6, 4))).error.code,
            ErrorCode::too_large);
  EXPECT_EQ(driver.live(client, kFirst).tokens.size(), 5U);
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(6, 3))).error.code, ErrorCode::ok);
}

TEST(Open, MoreSequencesThanTheCapacityAreExhausted) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.sequence_capacity = 1;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.open(client, kFirst, numbered_tokens(1, 4));
  EXPECT_EQ(driver.open(client, kSecond, numbered_tokens(1, 4)).error.code, ErrorCode::exhausted);
  driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(driver.open(client, kSecond, numbered_tokens(1, 4)).error.code, ErrorCode::ok);
}

}  // namespace
}  // namespace kv::core
