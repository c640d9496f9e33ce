// The Generator's dealings with a Session: what it asks for, counts, and does when refused.
#include <gtest/gtest.h>

#include "tests/plugins/runner/stories.h"

namespace kv::test {
namespace {

using runner::Generated;
using runner::Generator;

TEST(Generator, PublishesEveryFullBlockThatHoldsKvAndFreesItsSequences) {
  const auto story = Stories::get().story(0);
  ColdSession session(64);
  auto generator = Stories::get().generator(session, {.chunk_tokens = 10});
  need(generator->add({.prompt = {story.begin(), story.begin() + 30}, .max_tokens = 19}));
  const Generated result = need(generator->run()).front();
  EXPECT_EQ(result.tokens, std::vector<Token>(story.begin() + 30, story.begin() + 49));
  // 30 prompt positions and 18 generated ones hold KV: the last sampled token was never computed.
  EXPECT_EQ(session.published().at(SequenceId(1)), 48U);
  EXPECT_EQ(result.account.generated_tokens, 19U);
  EXPECT_EQ(result.account.prompt_tokens, 30U);
  EXPECT_EQ(result.computed_tokens, result.account.computed_tokens);
  EXPECT_EQ(session.sequence_count(), 0U);
  EXPECT_EQ(session.free_count(), 64U);
  // Three chunks, then one step for each further token; a step is one message.
  EXPECT_EQ(generator->step_count(), 3U + 18U);
  EXPECT_EQ(session.step_count(), generator->step_count());
  EXPECT_GT(result.ttft_ms, 0);
  EXPECT_GT(result.tokens_per_s, 0);
}

TEST(Generator, ARequestWaitsForMemoryAndRunsWhenOthersEnd) {
  const auto story = Stories::get().story(0);
  ColdSession session(5);
  auto generator = Stories::get().generator(session, {});
  const std::vector<Token> prompt(story.begin(), story.begin() + 40);
  for (int i = 0; i < 3; ++i) need(generator->add({.prompt = prompt, .max_tokens = 8}));
  const auto results = need(generator->run());
  ASSERT_EQ(results.size(), 3U);
  for (const Generated& result : results) {
    EXPECT_EQ(result.error.code, ErrorCode::ok);
    EXPECT_EQ(result.tokens, std::vector<Token>(story.begin() + 40, story.begin() + 48));
  }
}

TEST(Generator, ARequestThatCanNeverFitFailsAloneAndLeavesNothingBehind) {
  const auto story = Stories::get().story(0);
  ColdSession session(4);
  auto generator = Stories::get().generator(session, {});
  need(generator->add({.prompt = {story.begin(), story.begin() + 100}, .max_tokens = 8}));
  need(generator->add({.prompt = {story.begin(), story.begin() + 20}, .max_tokens = 8}));
  const auto results = need(generator->run());
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].error.code, ErrorCode::too_large);
  EXPECT_EQ(results[1].tokens, std::vector<Token>(story.begin() + 20, story.begin() + 28));
  EXPECT_EQ(session.sequence_count(), 0U);
}

TEST(Generator, WaitingForMemoryThatNobodyFreesEndsWithExhausted) {
  class Full : public ColdSession {
   public:
    Full() : ColdSession(8) {}
    Result<client::Admission> admit(SequenceId, std::uint32_t, client::Deadline) override {
      return Error{ErrorCode::exhausted, "full", {}};
    }
  };
  Full session;
  auto generator =
      Stories::get().generator(session, {.admit_timeout = std::chrono::milliseconds(20)});
  need(generator->add({.prompt = {1, 403}, .max_tokens = 8}));
  EXPECT_EQ(need(generator->run()).front().error.code, ErrorCode::exhausted);
  EXPECT_EQ(session.sequence_count(), 0U);
}

TEST(Generator, RequestsOutOfRangeAreRefusedAtOnce) {
  ColdSession session(64);
  auto generator = Stories::get().generator(session, {});
  const auto code = [&](std::vector<Token> prompt, std::uint32_t max_tokens) {
    const auto added = generator->add({.prompt = std::move(prompt), .max_tokens = max_tokens});
    return added.has_value() ? ErrorCode::ok : added.error().code;
  };
  EXPECT_EQ(code({}, 4), ErrorCode::invalid);
  EXPECT_EQ(code({1}, 0), ErrorCode::invalid);
  EXPECT_EQ(code({1, 512}, 4), ErrorCode::invalid);
  EXPECT_EQ(code(std::vector<Token>(500, 7), 14), ErrorCode::invalid);
  EXPECT_EQ(code(std::vector<Token>(500, 7), 13), ErrorCode::ok);
  EXPECT_EQ(code({1}, std::numeric_limits<std::uint32_t>::max()), ErrorCode::invalid);
}

TEST(Generator, AnswersThatCannotBeTrueEndARequestNotTheProcess) {
  class Liar : public ColdSession {
   public:
    explicit Liar(int lie) : ColdSession(64), lie_(lie) {}
    Result<client::Admission> admit(SequenceId sequence, std::uint32_t max_new_tokens,
                                    client::Deadline deadline) override {
      auto admission = ColdSession::admit(sequence, max_new_tokens, deadline);
      if (lie_ == 0) admission->account.hit_tokens[0] = 32;  // the whole prompt
      if (lie_ == 1) admission->account.hit_tokens[0] = 15;  // no whole block
      if (lie_ == 2) admission->slots.resize(1);
      if (lie_ == 3) admission->slots[0] = SlotId(64);
      return admission;
    }
    Result<client::StepOutcome> step(const client::StepRequest& request,
                                     client::Deadline deadline) override {
      auto outcome = ColdSession::step(request, deadline);
      const TableDeltas deltas = {{SequenceId(1), GroupId(0), 2, 0xFFFFFFF0U, {SlotId(0)}}};
      if (lie_ == 4) outcome->deltas = deltas;
      if (lie_ == 5) outcome->ended.clear();
      return outcome;
    }

   private:
    using TableDeltas = std::vector<client::TableDelta>;
    int lie_;
  };
  for (int lie = 0; lie <= 5; ++lie) {
    Liar session(lie);
    auto generator = Stories::get().generator(session, {});
    need(generator->add({.prompt = std::vector<Token>(32, 7), .max_tokens = 4}));
    const auto results = generator->run();
    if (lie == 3) {  // a slot outside the pool: nothing may be written, the session is not usable
      EXPECT_EQ(results.error().code, ErrorCode::invalid);
    } else {
      ASSERT_TRUE(results.has_value()) << lie;
      EXPECT_EQ(results->front().error.code, ErrorCode::corrupt) << lie;
    }
  }
}

TEST(Generator, WhenTheServiceIsLostWhatRunsGoesOnAndNothingElseIsAdmitted) {
  class Lost : public ColdSession {
   public:
    explicit Lost(ErrorCode code) : ColdSession(64), code_(code) {}
    Result<client::StepOutcome> step(const client::StepRequest& request,
                                     client::Deadline deadline) override {
      if (step_count() == 3) {
        ++calls_after_;
        return Error{code_, "gone", {}};
      }
      return ColdSession::step(request, deadline);
    }
    ErrorCode code_;
    int calls_after_ = 0;
  };
  const auto story = Stories::get().story(0);
  for (const ErrorCode code : {ErrorCode::unavailable, ErrorCode::stale, ErrorCode::deadline}) {
    Lost session(code);
    auto generator = Stories::get().generator(session, {.running_max = 2});
    for (const std::ptrdiff_t length : {20, 30, 25}) {
      need(generator->add({.prompt = {story.begin(), story.begin() + length}, .max_tokens = 12}));
    }
    const auto results = need(generator->run());
    ASSERT_EQ(results.size(), 3U);
    EXPECT_EQ(results[0].tokens, std::vector<Token>(story.begin() + 20, story.begin() + 32));
    EXPECT_EQ(results[1].tokens, std::vector<Token>(story.begin() + 30, story.begin() + 42));
    EXPECT_EQ(results[1].account.generated_tokens, 12U);
    EXPECT_EQ(results[2].error.code, code);
    EXPECT_EQ(generator->session_error().code, code);
    EXPECT_EQ(session.calls_after_, 1);
  }
  Lost session(ErrorCode::invalid);  // not a loss: our own mistake ends the run
  auto generator = Stories::get().generator(session, {});
  need(generator->add({.prompt = {1, 403}, .max_tokens = 12}));
  EXPECT_EQ(generator->run().error().code, ErrorCode::invalid);
}

TEST(Generator, WhenTheLeaseRanOutWhatRunsEndsWithTheErrorInsteadOfAText) {
  class Expired : public ColdSession {
   public:
    Expired() : ColdSession(64) {}
    Result<client::StepOutcome> step(const client::StepRequest& request,
                                     client::Deadline deadline) override {
      if (step_count() == 3) return Error{ErrorCode::stale, "the lease expired", {}};
      return ColdSession::step(request, deadline);
    }
    bool held_its_blocks() override { return step_count() < 3; }
  };
  const auto story = Stories::get().story(0);
  Expired session;
  auto generator = Stories::get().generator(session, {.running_max = 2});
  for (const std::ptrdiff_t length : {20, 30, 25}) {
    need(generator->add({.prompt = {story.begin(), story.begin() + length}, .max_tokens = 12}));
  }
  const auto results = need(generator->run());
  ASSERT_EQ(results.size(), 3U);
  for (const auto& result : results) EXPECT_EQ(result.error.code, ErrorCode::stale);
}

TEST(Generator, APoolThatDoesNotFitTheModelIsRefusedBeforeAnythingIsWritten) {
  class WrongPool : public ColdSession {
   public:
    explicit WrongPool(int wrong) : ColdSession(4), wrong_(wrong) {}
    Result<client::Pool> attach_pool(const KvLayout& layout, client::Deadline deadline) override {
      auto pool = ColdSession::attach_pool(layout, deadline);
      if (wrong_ == 0) pool->groups.clear();
      if (wrong_ == 1) pool->groups[0].slot_bytes /= 2;
      if (wrong_ == 2) pool->groups[0].slot_count = 5;
      if (wrong_ == 3) pool->groups[0].offset = 4;
      if (wrong_ == 4) pool->groups[0].offset = 0xFFFFFFFFFFFFFFF0U;
      return pool;
    }

   private:
    int wrong_;
  };
  const Stories& stories = Stories::get();
  for (int wrong = 0; wrong <= 4; ++wrong) {
    WrongPool session(wrong);
    const auto made = Generator::make(stories.model, stories.tokenizer, stories.kernel.kernel(),
                                      stories.backend, session, {});
    ASSERT_FALSE(made.has_value()) << wrong;
    EXPECT_EQ(made.error().code, ErrorCode::mismatch) << wrong;
  }
}

TEST(KernelModule, AFileThatIsNoPluginIsRefused) {
  std::string linker;
  EXPECT_EQ(runner::KernelModule::open("libm.so.6", &linker).error().code, ErrorCode::unsupported);
  EXPECT_EQ(linker, "");
  EXPECT_EQ(runner::KernelModule::open("/nonexistent.so", &linker).error().code,
            ErrorCode::not_found);
  EXPECT_NE(linker.find("No such file"), std::string::npos) << linker;
}

}  // namespace
}  // namespace kv::test
