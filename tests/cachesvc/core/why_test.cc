// Why: each token of a prompt is a hit or has one reason, and the reason is the true one.
#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);

using Span = WhyReply::Span;

// One runner with a pool, and an observer who asks. Blocks have 4 tokens.
struct Explained {
  explicit Explained(const Engine::Options& options)
      : driver(options),
        runner(driver.attach_with_pool()),
        observer(driver.attach(ClientRole::observer)),
        admin(driver.attach(ClientRole::admin)) {}
  EngineDriver driver;
  ClientId runner, observer, admin;

  WhyReply why(std::span<const Token> tokens, const NamespaceFields& fields = {}) {
    const Reply reply =
        driver.call(observer, Why{.header = {}, .fields = &fields, .tokens = tokens});
    EXPECT_EQ(reply.error.code, ErrorCode::ok) << reply.error.reason;
    const auto* body = std::get_if<WhyReply>(&reply.body);
    if (body == nullptr) return {};
    check_sums(*body, tokens.size());
    return *body;
  }
  static void check_sums(const WhyReply& reply, std::size_t prompt_tokens) {
    std::uint64_t next = 0;
    for (const std::uint64_t tokens : reply.hit_tokens) next += tokens;
    EXPECT_EQ(next + reply.computed_tokens, prompt_tokens);
    for (const Span& span : reply.spans) {
      EXPECT_EQ(span.first_token, next);
      EXPECT_GT(span.token_count, 0U);
      next += span.token_count;
    }
    EXPECT_EQ(next, prompt_tokens);
    EXPECT_EQ(reply.prompt_tokens, prompt_tokens);
  }
  std::uint64_t on_device(const WhyReply& reply) { return reply.hit_tokens[0]; }
};

TEST(Why, OfANewPromptIsThatNothingWasStored) {
  Explained test(options_with_slots(8, 0, 0));
  EXPECT_EQ(
      test.why(numbered_tokens(1, 10)).spans,
      (std::vector<Span>{{.first_token = 0, .token_count = 8},
                         {.first_token = 8, .token_count = 2, .reason = MissReason::below_block}}));
  EXPECT_TRUE(test.why({}).spans.empty());
}

TEST(Why, BeforeAnyPoolIsThatNothingWasStored) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId observer = driver.attach(ClientRole::observer);
  const std::vector<Token> prompt = numbered_tokens(1, 5);
  const NamespaceFields fields;
  const Reply reply = driver.call(observer, Why{.header = {}, .fields = &fields, .tokens = prompt});
  const auto& body = std::get<WhyReply>(reply.body);
  Explained::check_sums(body, 5);
  EXPECT_EQ(body.computed_tokens, 5U);
}

// SCENARIOS MET-11: the first token that differs is named, counted from 0.
TEST(Why, Met11NamesTheFirstTokenThatDiffers) {
  Explained test(options_with_slots(8, 0, 0));
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  std::vector<Token> prompt = numbered_tokens(1, 16);
  prompt[9] = 99;
  const WhyReply reply = test.why(prompt);
  EXPECT_EQ(test.on_device(reply), 8U);
  EXPECT_EQ(reply.spans,
            (std::vector<Span>{
                {.first_token = 8, .token_count = 4, .reason = MissReason::diverged, .position = 9},
                {.first_token = 12, .token_count = 4, .reason = MissReason::after_divergence}}));
}

// SCENARIOS MET-11: the field of the namespace that differs is named.
TEST(Why, Met11NamesTheFieldOfTheNamespaceThatDiffers) {
  Explained test(options_with_slots(8, 0, 0));
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  const std::pair<NamespaceFields, NamespaceField> others[] = {
      {{.weights = "x"}, NamespaceField::weights},
      {{.model_config = "x"}, NamespaceField::model_config},
      {{.adapter = "x"}, NamespaceField::adapter},
      {{.adapter_revision = "x"}, NamespaceField::adapter_revision},
      {{.salt = "x"}, NamespaceField::salt}};
  for (const auto& [fields, field] : others) {
    SCOPED_TRACE(static_cast<int>(field));
    const WhyReply reply = test.why(numbered_tokens(1, 18), fields);
    EXPECT_EQ(reply.spans,
              (std::vector<Span>{
                  {.first_token = 0,
                   .token_count = 16,
                   .reason = MissReason::other_namespace,
                   .field = field},
                  {.first_token = 16, .token_count = 2, .reason = MissReason::below_block}}));
  }
}

TEST(Why, OfSeveralNamespacesNamesTheOneWithMoreOfThePrompt) {
  Explained test(options_with_slots(16, 0, 0));
  constexpr NamespaceFields kLong{.salt = "long"};
  constexpr NamespaceFields kTwoOff{.weights = "w", .salt = "long"};
  const auto cache = [&](SequenceId id, std::uint32_t tokens, const NamespaceFields& fields) {
    test.driver.admit(test.runner, id, numbered_tokens(1, tokens), 0, fields);
    test.driver.step(test.runner, StepScript().publish(id, tokens).free(id));
  };
  cache(kFirst, 8, kTwoOff);
  cache(kSecond, 12, kLong);
  const WhyReply reply = test.why(numbered_tokens(1, 16), {.weights = "w", .salt = "short"});
  ASSERT_EQ(reply.spans.size(), 2U);
  EXPECT_EQ(reply.spans[0].token_count, 12U);
  EXPECT_EQ(reply.spans[0].field, NamespaceField::weights);  // and the salt: the first is named
  EXPECT_EQ(reply.spans[1].reason, MissReason::never_stored);
}

TEST(Why, TellsNothingOfAnotherTenant) {
  Explained test(options_with_slots(8, 0, 0));
  const ClientId stranger = test.driver.attach_with_pool(4, "stranger");
  test.driver.cache_prompt(stranger, numbered_tokens(1, 16));
  const WhyReply reply = test.why(numbered_tokens(1, 17), {.salt = "x"});
  ASSERT_EQ(reply.spans.size(), 2U);
  EXPECT_EQ(reply.spans[0].reason, MissReason::never_stored);
  EXPECT_EQ(reply.spans[0].token_count, 16U);
}

TEST(Why, IsNotForRunners) {
  Explained test(options_with_slots(8, 0, 0));
  const NamespaceFields fields;
  const Reply reply =
      test.driver.call(test.runner, Why{.header = {}, .fields = &fields, .tokens = {}});
  EXPECT_EQ(reply.error.code, ErrorCode::denied);
  EXPECT_EQ(reply.error.field, "role");
}

// SCENARIOS MET-11: below one block.
TEST(Why, Met11APromptOfLessThanABlockIsBelowIt) {
  Explained test(options_with_slots(8, 0, 0));
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  EXPECT_EQ(
      test.why(numbered_tokens(1, 3)).spans,
      (std::vector<Span>{{.first_token = 0, .token_count = 3, .reason = MissReason::below_block}}));
}

TEST(Why, TheLastBlockOfACachedPromptIsComputedAllTheSame) {
  Explained test(options_with_slots(8, 0, 0));
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  const WhyReply reply = test.why(numbered_tokens(1, 16));
  EXPECT_EQ(test.on_device(reply), 12U);
  EXPECT_EQ(reply.spans,
            (std::vector<Span>{
                {.first_token = 12, .token_count = 4, .reason = MissReason::tail_recompute}}));
}

// SCENARIOS MET-11: evicted, with time and tier.
TEST(Why, Met11AnEvictedBlockIsNamedWithItsTierItsTimeAndItsReuses) {
  Explained test(options_with_slots(4, 0, 0));
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  for (const SequenceId id : {kFirst, kSecond}) {  // two requests hit its first two blocks
    test.driver.admit(test.runner, id, numbered_tokens(1, 9));
    test.driver.step(test.runner, StepScript().free(id));
  }
  test.driver.cache_prompt(test.runner, numbered_tokens(101, 16));
  test.driver.advance(std::chrono::milliseconds(2'500));
  const WhyReply reply = test.why(numbered_tokens(1, 16));
  ASSERT_EQ(reply.spans.size(), 1U);
  EXPECT_EQ(reply.spans[0], (Span{.first_token = 0,
                                  .token_count = 16,
                                  .reason = MissReason::evicted,
                                  .cause = MissCause::room,
                                  .tier = Tier::device,
                                  .reuses = 2,
                                  .ago_ms = 2'500}));
}

TEST(Why, TheTierOfAnEvictedBlockIsThatOfItsLastCopy) {
  Explained test(options_with_slots(4, 8, 8));
  for (Token first = 1; first < 500; first += 100) {
    test.driver.cache_prompt(test.runner, numbered_tokens(first, 16));
  }
  const WhyReply reply = test.why(numbered_tokens(1, 16));
  ASSERT_EQ(reply.spans.size(), 1U);
  EXPECT_EQ(reply.spans[0].reason, MissReason::evicted);
  EXPECT_EQ(reply.spans[0].tier, Tier::disk);
}

TEST(Why, ABlockThatWasNotSavedInTimeSaysSo) {
  Engine::Options options = options_with_slots(4, 8, 0);
  options.write_through = false;
  Explained test(options);
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  test.driver.cache_prompt(test.runner, numbered_tokens(101, 16));
  const WhyReply reply = test.why(numbered_tokens(1, 16));
  ASSERT_EQ(reply.spans.size(), 1U);
  EXPECT_EQ(reply.spans[0].reason, MissReason::dropped_before_writeback);
  EXPECT_EQ(reply.spans[0].tier, Tier::device);
}

// SCENARIOS MET-11: another epoch.
TEST(Why, Met11WhatAClearForgotSaysSo) {
  Explained test(options_with_slots(8, 0, 0));
  const NamespaceFields fields;
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  test.driver.call(test.admin, SetEpoch{.header = {}, .fields = &fields});
  const WhyReply reply = test.why(numbered_tokens(1, 16));
  ASSERT_EQ(reply.spans.size(), 1U);
  EXPECT_EQ(reply.spans[0].reason, MissReason::evicted);
  EXPECT_EQ(reply.spans[0].cause, MissCause::cleared);
}

TEST(Why, WhatAClearForgotAndASequenceStillHoldsSaysSo) {
  Explained test(options_with_slots(8, 0, 0));
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 8));
  test.driver.admit(test.runner, kFirst, numbered_tokens(1, 9));
  test.driver.call(test.admin, Clear{});
  const WhyReply reply = test.why(numbered_tokens(1, 8));
  ASSERT_EQ(reply.spans.size(), 1U);
  EXPECT_EQ(reply.spans[0].reason, MissReason::evicted);
  EXPECT_EQ(reply.spans[0].cause, MissCause::cleared);
}

TEST(Why, ABlockThatARunningSequenceComputesIsInFlight) {
  Explained test(options_with_slots(8, 0, 0));
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 4));
  test.driver.admit(test.runner, kFirst, numbered_tokens(1, 14));
  const WhyReply reply = test.why(numbered_tokens(1, 20));
  EXPECT_EQ(test.on_device(reply), 4U);
  EXPECT_EQ(reply.spans, (std::vector<Span>{
                             {.first_token = 4, .token_count = 8, .reason = MissReason::in_flight},
                             {.first_token = 12, .token_count = 8}}));
  test.driver.step(test.runner, StepScript().free(kFirst));
  EXPECT_EQ(test.why(numbered_tokens(1, 20)).spans[0].reason, MissReason::never_stored);
}

// Of three blocks in the host tier the second is found bad; the third hangs behind it.
TEST(Why, ADamagedBlockAndWhatHangsBehindItSaySo) {
  for (const BlockOutcome outcome : {BlockOutcome::corrupt, BlockOutcome::io_error}) {
    SCOPED_TRACE(static_cast<int>(outcome));
    Explained test(options_with_slots(8, 8, 0));
    test.driver.allow_quarantine();
    test.driver.cache_prompt(test.runner, numbered_tokens(1, 12));
    test.driver.call(test.admin, Demote{.header = {}, .tier = Tier::device});
    test.driver.open(test.runner, kFirst, numbered_tokens(1, 13));
    test.driver.hold_transfers(true);
    test.driver.call(test.runner, Admit{.header = {}, .sequence = kFirst});
    const BlockOutcome outcomes[] = {BlockOutcome::ok, outcome, BlockOutcome::ok};
    test.driver.finish_transfer(0, outcomes);
    test.driver.hold_transfers(false);
    test.driver.settle();
    test.driver.step(test.runner, StepScript().free(kFirst));
    const WhyReply reply = test.why(numbered_tokens(1, 12));
    ASSERT_EQ(reply.spans.size(), 1U);
    EXPECT_EQ(reply.spans[0].first_token, 4U);
    EXPECT_EQ(reply.spans[0].token_count, 8U);
    EXPECT_EQ(reply.spans[0].tier, Tier::host);
    const bool corrupt = outcome == BlockOutcome::corrupt;
    EXPECT_EQ(reply.spans[0].reason, corrupt ? MissReason::corrupt : MissReason::load_failed);
    EXPECT_EQ(reply.spans[0].cause, corrupt ? MissCause::none : MissCause::io_error);
  }
}

TEST(Why, WhatASequenceFromBeforeAClearComputedIsNotCacheable) {
  Explained test(options_with_slots(8, 0, 0));
  test.driver.admit(test.runner, kFirst, numbered_tokens(1, 8), 8);
  test.driver.call(test.admin, Clear{});
  test.driver.step(test.runner,
                   StepScript().append(kFirst, numbered_tokens(9, 4)).publish(kFirst, 12));
  const WhyReply reply = test.why(numbered_tokens(1, 16));
  EXPECT_EQ(reply.spans, (std::vector<Span>{{.first_token = 0,
                                             .token_count = 12,
                                             .reason = MissReason::not_cacheable,
                                             .cause = MissCause::cleared},
                                            {.first_token = 12, .token_count = 4}}));
  EXPECT_EQ(test.driver.status().counters.uncacheable_blocks, 3U);
}

TEST(Why, AnOrphanOfTheDiskSaysSo) {
  Explained before(options_with_slots(4, 4, 4));
  before.driver.cache_prompt(before.runner, numbered_tokens(1, 12));
  const auto index = before.driver.transfers().disk_index();
  ASSERT_EQ(index.size(), 3U);
  EngineDriver again(options_with_slots(4, 4, 4));
  const KvLayout layout = one_group_layout();
  again.input(DiskFormat{&layout});
  std::vector<RecoveredEntry> entries{index[0].entry, index[2].entry};
  std::vector<Token> tokens = index[0].tokens;
  tokens.insert(tokens.end(), index[2].tokens.begin(), index[2].tokens.end());
  again.input(Recovered{.entries = entries, .tokens = tokens, .last = true});
  const ClientId observer = again.attach(ClientRole::observer);
  const NamespaceFields fields;
  const std::vector<Token> prompt = numbered_tokens(1, 12);
  const Reply reply = again.call(observer, Why{.header = {}, .fields = &fields, .tokens = prompt});
  const auto& body = std::get<WhyReply>(reply.body);
  Explained::check_sums(body, 12);
  EXPECT_EQ(body.hit_tokens[tier_index(Tier::disk)], 4U);
  ASSERT_EQ(body.spans.size(), 2U);
  EXPECT_EQ(body.spans[0].reason, MissReason::never_stored);  // of this life
  EXPECT_EQ(body.spans[1].reason, MissReason::load_failed);
  EXPECT_EQ(body.spans[1].cause, MissCause::orphaned);
  EXPECT_EQ(body.spans[1].first_token, 8U);
}

TEST(Why, WhatTheHistoryHasNoRoomForIsLost) {
  Engine::Options options = options_with_slots(4, 0, 0);
  options.history_capacity = 6;
  Explained test(options);
  test.driver.cache_prompt(test.runner, numbered_tokens(1, 16));
  test.driver.advance(std::chrono::seconds(1));
  test.driver.cache_prompt(test.runner, numbered_tokens(101, 16));
  test.driver.advance(std::chrono::seconds(1));
  test.driver.cache_prompt(test.runner, numbered_tokens(201, 16));
  test.driver.advance(std::chrono::seconds(1));
  // Eight blocks went, children first: the last two of the first prompt are lost.
  const WhyReply reply = test.why(numbered_tokens(1, 16));
  ASSERT_EQ(reply.spans.size(), 2U);
  EXPECT_EQ(reply.spans[0].reason, MissReason::evicted);
  EXPECT_EQ(reply.spans[0].token_count, 8U);
  EXPECT_EQ(reply.spans[0].ago_ms, 2'000U);
  EXPECT_EQ(reply.spans[1].reason, MissReason::history_lost);
  EXPECT_EQ(reply.spans[1].token_count, 8U);
  EXPECT_EQ(reply.history_ms, 2'000U);
  EXPECT_EQ(test.why(numbered_tokens(901, 8)).spans[0].reason, MissReason::never_stored);
}

// ---- long work

TEST(Why, OfALongPromptGoesOnInBoundedSteps) {
  Explained test(options_with_slots(8, 0, 0));
  EngineDriver& driver = test.driver;
  const std::vector<Token> prompt = numbered_tokens(1, kTokensPerMessageMax);
  const NamespaceFields fields;
  const RequestId id =
      driver.send(test.observer, Why{.header = {}, .fields = &fields, .tokens = prompt});
  std::uint64_t steps = 1;
  while (driver.continue_wanted()) {
    EXPECT_EQ(driver.reply_count(test.observer, id), 0U);
    const RequestId beat = driver.send(test.runner, Heartbeat{});  // others go on
    EXPECT_EQ(driver.reply_count(test.runner, beat), 1U);
    ++steps;
  }
  // One hash a block of 4 tokens.
  EXPECT_EQ(steps, kTokensPerMessageMax / 4 / kStepBlocksMax);
  Explained::check_sums(std::get<WhyReply>(driver.reply(test.observer, id).body), prompt.size());
}

// 20,000 prompts beside the one that is asked for, more than one step looks at.
TEST(Why, FindsTheClosestOfManyPrompts) {
  constexpr std::uint32_t kPrompts = 20'000;
  Explained test(options_with_slots(kPrompts, 0, 0));
  test.driver.check_every(10'000);
  for (std::uint32_t i = 0; i < kPrompts; ++i) {
    // Only the very first one, which is linked last, begins with 7, 8.
    const std::vector<Token> prompt{i == 0 ? 7 : 100 + i, 8, 9, 10};
    test.driver.cache_prompt(test.runner, prompt);
  }
  const std::uint64_t before = test.driver.continue_count();
  const std::vector<Token> prompt{7, 8, 1, 10, 5};
  const WhyReply reply = test.why(prompt);
  EXPECT_GE(test.driver.continue_count() - before, 1U);
  ASSERT_EQ(reply.spans.size(), 2U);
  EXPECT_EQ(reply.spans[0].reason, MissReason::diverged);
  EXPECT_EQ(reply.spans[0].position, 2U);
}

TEST(Why, SurvivesWhatHappensBetweenItsSteps) {
  constexpr std::uint32_t kPrompts = 20'000;
  Explained test(options_with_slots(kPrompts, 0, 0));
  test.driver.check_every(10'000);
  for (std::uint32_t i = 0; i < kPrompts; ++i) {
    const std::vector<Token> prompt{100 + i, 8, 9, 10};
    test.driver.cache_prompt(test.runner, prompt);
  }
  const std::vector<Token> prompt{1, 2, 3, 4};
  const NamespaceFields fields;
  const RequestId id =
      test.driver.send(test.observer, Why{.header = {}, .fields = &fields, .tokens = prompt});
  ASSERT_TRUE(test.driver.continue_wanted());
  test.driver.send(test.admin, Clear{});
  test.driver.settle();
  Explained::check_sums(std::get<WhyReply>(test.driver.reply(test.observer, id).body), 4);
  // And its end with its client.
  test.driver.send(test.observer, Why{.header = {}, .fields = &fields, .tokens = prompt});
  test.driver.input(ClientGone{test.observer});
  test.driver.settle();
  EXPECT_FALSE(test.driver.continue_wanted());
}

TEST(Why, IsBusyWhenTooManyPromptsAreExplained) {
  Explained test(options_with_slots(8, 0, 0));
  const std::vector<Token> prompt = numbered_tokens(1, kTokensPerMessageMax);
  const NamespaceFields fields;
  std::vector<RequestId> asked;
  asked.reserve(40);
  std::uint32_t busy = 0;
  for (int i = 0; i < 40; ++i) {
    asked.push_back(
        test.driver.send(test.observer, Why{.header = {}, .fields = &fields, .tokens = prompt}));
  }
  test.driver.settle();
  for (const RequestId id : asked) {
    const Reply reply = test.driver.reply(test.observer, id);
    if (reply.error.code == ErrorCode::busy) ++busy;
  }
  EXPECT_GT(busy, 0U);
  EXPECT_LT(busy, 40U);
}

}  // namespace
}  // namespace kv::core
