// A request's logits have the same bits whatever slots, chunks, batch and block size it ran with.
#include <gtest/gtest.h>

#include "tests/plugins/runner/stories.h"

namespace kv::test {
namespace {

using runner::Generated;
using runner::Generator;
using runner::KeepLogits;

std::vector<Token> prompt_of(std::size_t index, std::size_t length) {
  auto tokens = Stories::get().story(index);
  tokens.resize(length);
  return tokens;
}

TEST(GeneratorInvariance, EveryChunkSizeAndBlockSizeGivesTheBitsOfOnePass) {
  const auto prompt = prompt_of(0, 150);
  const Generated want = cold_run(prompt, 24);
  EXPECT_EQ(want.computed_tokens, 150U);
  for (const std::uint32_t block : {1U, 4U, 16U, 64U}) {
    for (const std::uint32_t chunk : {1U, 7U, 16U, 64U, 150U}) {
      const Generated got = cold_run(prompt, 24, block, chunk);
      EXPECT_EQ(got.tokens, want.tokens);
      EXPECT_TRUE(same_bits(got.logits, want.logits)) << block << " " << chunk;
      EXPECT_EQ(got.computed_tokens, 150U);
    }
  }
}

TEST(GeneratorInvariance, DecodedPositionsHaveTheBitsOfPrefilledOnes) {
  const auto story = Stories::get().story(0);
  const Generated decoded = cold_run({story.begin(), story.begin() + 10}, 60);
  for (const std::size_t length : {11U, 25U, 48U, 69U}) {
    const Generated prefilled =
        cold_run({story.begin(), story.begin() + std::ptrdiff_t(length)}, 1);
    const auto at = decoded.logits.begin() + std::ptrdiff_t(length - 10) * 512;
    EXPECT_TRUE(same_bits(prefilled.logits, {at, at + 512})) << length;
  }
}

TEST(GeneratorInvariance, OtherSlotsGiveTheSameBits) {
  const auto prompt = prompt_of(1, 90);
  const Generated want = cold_run(prompt, 20);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    ColdSession session(64, seed);
    auto generator = Stories::get().generator(session, {});
    need(generator->add({.prompt = prompt, .max_tokens = 20, .keep_logits = KeepLogits::all}));
    EXPECT_TRUE(same_bits(need(generator->run()).front().logits, want.logits)) << seed;
  }
}

TEST(GeneratorInvariance, RequestsThatJoinAndLeaveABatchKeepTheirBits) {
  std::vector<std::vector<Token>> prompts;
  std::vector<Generated> want;
  for (std::size_t i = 0; i < 5; ++i) {
    prompts.push_back(prompt_of(i, 20 + 13 * i));
    want.push_back(cold_run(prompts[i], static_cast<std::uint32_t>(40 - 7 * i)));
  }
  ColdSession session(200, 3);
  auto generator = Stories::get().generator(session, {.chunk_tokens = 9, .running_max = 3});
  std::vector<Generated> got;
  for (std::size_t i = 0; i < 5; ++i) {
    need(generator->add({.prompt = prompts[i],
                         .max_tokens = static_cast<std::uint32_t>(40 - 7 * i),
                         .keep_logits = KeepLogits::all}));
    for (int steps = 0; steps < 4; ++steps) need(generator->step());
  }
  for (auto& result : need(generator->run())) got.push_back(std::move(result));
  ASSERT_EQ(got.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(got[i].request, i);
    EXPECT_EQ(got[i].tokens, want[i].tokens);
    EXPECT_TRUE(same_bits(got[i].logits, want[i].logits)) << i;
  }
  EXPECT_EQ(session.free_count(), 200U);
}

// A model of another shape, so that nothing hangs on the small one: 4 query heads a KV head, heads
// of 32.
TEST(GeneratorInvariance, ASeededModelOfAnotherShapeKeepsItsBitsToo) {
  const Stories& stories = Stories::get();
  const runner::ModelConfig config{.dim = 256,
                                   .hidden_dim = 300,
                                   .layer_count = 2,
                                   .head_count = 8,
                                   .kv_head_count = 2,
                                   .vocab_size = 512,
                                   .context_length = 600};
  const runner::Model model = runner::Model::seeded(config, 77);
  const runner::GemmBackend backend = runner::choose_gemm_backend(config);
  std::vector<Token> prompt(280);
  Prng prng(5);
  for (Token& token : prompt) token = static_cast<Token>(3 + prng.below(500));
  std::vector<float> want;
  for (const std::uint32_t chunk : {600U, 1U, 13U}) {
    ColdSession session(80, chunk);
    auto generator = need(Generator::make(model, stories.tokenizer, stories.kernel.kernel(),
                                          backend, session, {.chunk_tokens = chunk}));
    need(generator->add({.prompt = prompt, .max_tokens = 4, .keep_logits = KeepLogits::all}));
    need(generator->add({.prompt = {1, 9, 8}, .max_tokens = 20}));
    const auto logits = need(generator->run()).front().logits;
    if (want.empty()) want = logits;
    EXPECT_TRUE(same_bits(logits, want)) << chunk;
  }
}

}  // namespace
}  // namespace kv::test
