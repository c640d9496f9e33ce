// A runner on the real core, in this process, and the cold runs that its results must equal.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/plugins/runner/hooked_session.h"
#include "tests/plugins/runner/stories.h"
#include "tests/support/in_process_session.h"

namespace kv::test {

inline constexpr std::uint32_t kPromptTokens = 200;
inline constexpr std::uint32_t kKeptPositions = 3;  // logits compared for each run
inline constexpr std::array<std::uint32_t, 3> kBlockTokens = {1, 4, 16};

inline testing::InProcessService::Options service_options(std::uint32_t block_tokens,
                                                          std::uint64_t device_blocks,
                                                          std::uint64_t host_blocks = 1024,
                                                          std::uint64_t disk_blocks = 1024) {
  const KvLayout layout = runner::kv_layout(Stories::get().model.config(), block_tokens);
  const std::uint64_t bytes = block_bytes(layout, GroupId(0));
  const std::uint64_t disk_bytes = (bytes + 4095) / 4096 * 4096;
  testing::InProcessService::Options options;
  options.engine.tier_bytes = {device_blocks * bytes, host_blocks * bytes, disk_blocks * disk_bytes,
                               0};
  return options;
}

// One runner program: a session and a generator on it.
struct Runner {
  Runner(testing::InProcessService& service, const runner::Generator::Options& options)
      : inner(service.session()),
        session(*inner),
        generator(Stories::get().generator(session, options)) {}
  std::unique_ptr<client::Session> inner;
  HookedSession session;
  std::unique_ptr<runner::Generator> generator;

  runner::Generated run(const std::vector<Token>& prompt, std::uint32_t max_tokens) {
    need(generator->add(
        {.prompt = prompt, .max_tokens = max_tokens, .keep_logits = runner::KeepLogits::all}));
    return need(generator->run()).front();
  }
};

// Prefixes of a golden story and their cold runs, each in a process-wide pool of its own: no cache.
class ColdStory {
 public:
  static const ColdStory& get() {
    static const ColdStory story;
    return story;
  }
  [[nodiscard]] std::vector<Token> prefix(std::uint32_t length) const {
    return {tokens_.begin(), tokens_.begin() + length};
  }
  // Of prefix(length), kKeptPositions tokens long.
  [[nodiscard]] const runner::Generated& run(std::uint32_t length) const {
    return runs_[length - 1];
  }

 private:
  ColdStory() {
    for (std::uint32_t length = 1; length <= kPromptTokens; ++length) {
      runs_.push_back(cold_run(prefix(length), kKeptPositions));
    }
  }
  std::vector<Token> tokens_ = Stories::get().story(0);
  std::vector<runner::Generated> runs_;
};

// At least one token is computed, and only what was published can be hit.
inline std::uint64_t hit_by_formula(std::uint32_t length, std::uint32_t block_tokens,
                                    std::uint32_t published_tokens) {
  const std::uint32_t possible = block_tokens * ((length - 1) / block_tokens);
  const std::uint32_t there = block_tokens * (published_tokens / block_tokens);
  return possible < there ? possible : there;
}

// The run equals its cold run in every bit of the logits; its hits are exactly `hit` and all from
// `tier`; the runner's own count of computed positions agrees with the service's account.
inline void expect_warm(const runner::Generated& warm, std::uint32_t length, std::uint64_t hit,
                        Tier tier) {
  SCOPED_TRACE(::testing::Message() << "prefix of " << length);
  const runner::Generated& cold = ColdStory::get().run(length);
  ASSERT_EQ(warm.error.code, ErrorCode::ok) << warm.error.reason;
  EXPECT_EQ(warm.account.prompt_tokens, length);
  EXPECT_EQ(warm.account.hits(), hit);
  EXPECT_EQ(warm.account.hit_tokens[tier_index(tier)], hit);
  EXPECT_EQ(warm.account.computed_tokens, length - hit);
  EXPECT_EQ(warm.computed_tokens, length - hit);
  EXPECT_EQ(warm.tokens,
            std::vector<Token>(cold.tokens.begin(),
                               cold.tokens.begin() + std::ptrdiff_t(warm.tokens.size())));
  ASSERT_FALSE(warm.logits.empty());
  ASSERT_LE(warm.logits.size(), cold.logits.size());
  EXPECT_EQ(std::memcmp(warm.logits.data(), cold.logits.data(), warm.logits.size() * sizeof(float)),
            0);
}

}  // namespace kv::test
