#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/model/random_run.h"

// KV_SEEDS: how many seeds in all (200). KV_SEED_FIRST: the first of them (1). KV_LOG=1 prints each
// operation of a failing run.
namespace kv::model {
namespace {

constexpr std::uint64_t kShards = 4;
constexpr std::uint32_t kOperations = 300;

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t seed_count() { return environment_number("KV_SEEDS", 200); }
std::uint64_t seed_first() { return environment_number("KV_SEED_FIRST", 1); }

std::string failure_of(std::uint64_t seed, const RandomRun& run) {
  std::string text = "seed " + std::to_string(seed) +
                     "; again with: KV_SEEDS=1 KV_SEED_FIRST=" + std::to_string(seed) +
                     " bin/model_test\n";
  for (const std::string& line : run.log()) text += "  " + line + "\n";
  for (const std::string& line : run.problems()) text += line + "\n";
  return text;
}

class RandomOperations : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomOperations, KeepEveryInvariantAndReplayToTheSameActions) {
  std::uint64_t steps = 0;
  for (std::uint64_t i = GetParam(); i < seed_count(); i += kShards) {
    const std::uint64_t seed = seed_first() + i;
    RandomRun run(seed);
    if (environment_number("KV_LOG", 0) != 0) run.keep_log();
    run.run(kOperations);
    steps += run.world().steps();
    ASSERT_TRUE(run.problems().empty()) << failure_of(seed, run);
  }
  RecordProperty("engine_steps", std::to_string(steps));
}

INSTANTIATE_TEST_SUITE_P(Shard, RandomOperations, ::testing::Range(std::uint64_t{0}, kShards));

}  // namespace
}  // namespace kv::model
