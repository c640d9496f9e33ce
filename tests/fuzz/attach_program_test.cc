// The programs that the fuzzer makes of bytes reach every answer of the attach socket, and are
// answered as the model says, for many seeds in every build.
#include "tests/fuzz/attach_program.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv::testing {
namespace {

TEST(AttachProgram, IsAnsweredAsTheModelSaysForTwoHundredSeeds) {
  AttachHarness harness;
  AttachProgram::Counts total;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Prng prng(seed);
    std::vector<std::uint8_t> bytes(400);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(prng.next());
    AttachProgram program(harness, bytes);
    program.run();
    total.packets += program.counts().packets;
    total.entered += program.counts().entered;
    total.memories += program.counts().memories;
    total.refused += program.counts().refused;
    total.ended += program.counts().ended;
  }
  EXPECT_GT(total.packets, 1'000U);
  EXPECT_GT(total.entered, 100U);
  EXPECT_GT(total.memories, 10U);
  EXPECT_GT(total.refused, 500U);
  EXPECT_GT(total.ended, 100U);
}

// Inputs that a fuzzer kept, each for something that no other reaches.
TEST(AttachProgram, KeepsItsPromisesForTheCorpus) {
  AttachHarness harness;
  std::size_t count = 0;
  const std::string folder = std::string(KV_SOURCE_DIR) + "/tests/fuzz/corpus/attach_server";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    AttachProgram program(harness, bytes);
    program.run();
    ++count;
  }
  EXPECT_GT(count, 20U);
}

}  // namespace
}  // namespace kv::testing
