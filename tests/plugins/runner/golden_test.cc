// The runner against the published behaviour of the model: golden_greedy.json was made by another
// program (llama2.c), from the same weights.
#include <algorithm>

#include <gtest/gtest.h>

#include "plugins/runner/row_math.h"
#include "tests/plugins/runner/stories.h"

namespace kv::test {
namespace {

TEST(Golden, EveryPromptEncodesToItsTokensAndDecodesToItsText) {
  const Stories& stories = Stories::get();
  ASSERT_EQ(stories.golden["cases"].size(), 5U);
  for (const auto& c : stories.golden["cases"]) {
    const auto prompt = c["prompt"].get<std::string>();
    const auto tokens = c["prompt_tokens"].get<std::vector<Token>>();
    EXPECT_EQ(need(stories.tokenizer.encode(prompt)), tokens) << prompt;
    EXPECT_EQ(stories.tokenizer.decode(0, tokens), "\n<s>\n" + prompt) << prompt;
  }
}

TEST(Golden, GreedyTokensTextAndTopLogitsOfAllFiveCasesAreThePublishedOnes) {
  const Stories& stories = Stories::get();
  for (const auto& c : stories.golden["cases"]) {
    SCOPED_TRACE(c["prompt"].get<std::string>());
    const auto prompt = c["prompt_tokens"].get<std::vector<Token>>();
    const auto wanted = c["generated_tokens"].get<std::vector<Token>>();
    const auto positions = static_cast<std::uint32_t>(257 - prompt.size());
    const runner::Generated got = cold_run(prompt, positions);
    EXPECT_EQ(got.error.code, ErrorCode::ok);
    EXPECT_EQ(got.tokens, wanted);
    EXPECT_EQ(c["prompt"].get<std::string>() + got.text, c["text"].get<std::string>());
    ASSERT_GE(got.logits.size(), 512U);
    std::vector<float> first(got.logits.begin(), got.logits.begin() + 512);
    for (const auto& entry : c["first_generated_top8"]) {
      EXPECT_NEAR(first[entry[0].get<std::size_t>()], entry[1].get<double>(), 1e-4);
      EXPECT_EQ(runner::argmax(first), entry[0].get<Token>());
      first[entry[0].get<std::size_t>()] = -1e30F;  // the next one is now the greatest
    }
  }
}

TEST(Golden, TheFallbackLoopsGiveTheSameTokensAndNearlyTheSameLogits) {
  const Stories& stories = Stories::get();
  const auto prompt = stories.golden["cases"][2]["prompt_tokens"].get<std::vector<Token>>();
  const auto wanted = stories.golden["cases"][2]["generated_tokens"].get<std::vector<Token>>();
  ColdSession session(32);
  auto generator =
      need(runner::Generator::make(stories.model, stories.tokenizer, stories.kernel.kernel(),
                                   runner::GemmBackend::fixed_order, session, {}));
  need(
      generator->add({.prompt = prompt, .max_tokens = 60, .keep_logits = runner::KeepLogits::all}));
  const auto result = need(generator->run()).front();
  EXPECT_EQ(result.tokens, std::vector<Token>(wanted.begin(), wanted.begin() + 60));
  const runner::Generated tiles = cold_run(prompt, 60);
  ASSERT_EQ(result.logits.size(), tiles.logits.size());
  for (std::size_t i = 0; i < tiles.logits.size(); ++i) {
    ASSERT_NEAR(result.logits[i], tiles.logits[i], 1e-4);
  }
}

TEST(Golden, GenerationStopsBeforeTheTokenThatEndsAText) {
  const auto prompt = Stories::get().story(2);  // golden generation ended here
  const runner::Generated got = cold_run(prompt, 5);
  EXPECT_TRUE(got.tokens.empty());
  EXPECT_EQ(got.text, "");
  EXPECT_EQ(runner::argmax(got.logits), runner::kBeginOfText);
}

}  // namespace
}  // namespace kv::test
