// The same seed gives the same actions in every build: optimised or not, with sanitizers, by any
// compiler. The digests of some runs are kept beside this file; every build must arrive at them.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/model/random_run.h"

namespace kv::model {
namespace {

constexpr std::uint64_t kSeeds = 20;
constexpr std::uint32_t kOperations = 300;
constexpr const char* kFile = KV_SOURCE_DIR "/tests/model/digests.txt";

std::map<std::uint64_t, std::uint64_t> read_digests() {
  std::ifstream file(kFile);
  std::map<std::uint64_t, std::uint64_t> digests;
  std::uint64_t seed = 0;
  for (std::string digest; file >> seed >> digest;) {
    digests[seed] = std::stoull(digest, nullptr, 16);
  }
  return digests;
}

void write_digests(const std::map<std::uint64_t, std::uint64_t>& digests) {
  std::ofstream file(kFile);
  for (const auto& [seed, digest] : digests) {
    file << seed << ' ' << std::hex << std::setw(16) << std::setfill('0') << digest << std::dec
         << '\n';
  }
}

TEST(RandomRuns, GiveTheSameActionsInEveryBuild) {
  std::map<std::uint64_t, std::uint64_t> digests;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RandomRun run(seed);
    run.run(kOperations);
    ASSERT_TRUE(run.problems().empty()) << "seed " << seed << ": " << run.problems().front();
    digests[seed] = run.digest();
  }
  if (std::getenv("KV_UPDATE_GOLDEN") != nullptr) write_digests(digests);
  EXPECT_EQ(digests, read_digests())
      << "If what the Engine answers was changed on purpose: KV_UPDATE_GOLDEN=1 bin/digests_test. "
         "If only some builds fail: something depends on the compiler.";
}

TEST(RandomRuns, GiveOtherActionsWithAnotherSeed) {
  RandomRun one(1);
  RandomRun again(1);
  RandomRun other(2);
  for (RandomRun* run : {&one, &again, &other}) run->run(kOperations);
  EXPECT_EQ(one.digest(), again.digest());
  EXPECT_NE(one.digest(), other.digest());
}

}  // namespace
}  // namespace kv::model
