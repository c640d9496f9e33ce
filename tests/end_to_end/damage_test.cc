// Bytes on disk that changed behind the service's back are never served.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/end_to_end/service_fixture.h"

namespace kv::test {
namespace {

// Flips one bit in the middle of the block's copies in all slab files; says how many there were.
std::size_t damage(const std::string& dir, const std::vector<std::byte>& block) {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir + "/disk")) {
    if (!entry.path().filename().string().starts_with("slab")) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::vector<std::byte> page(4'096);
    for (std::streamoff at = 0; file.read(reinterpret_cast<char*>(page.data()), 4'096);
         at += 4'096) {
      const auto place = std::search(page.begin(), page.end(), block.begin(), block.begin() + 64);
      if (place == page.end()) continue;
      ++found;
      const std::streamoff middle = at + (place - page.begin()) + 1'000;
      file.seekp(middle);
      file.put(static_cast<char>(static_cast<unsigned char>(block[1'000]) ^ 0x10U));
      file.seekg(at + 4'096);
    }
  }
  return found;
}

TEST_F(ServiceTest, AFlippedBitOnDiskIsACountedMissAndIsComputedAgain) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto prompt = prompt_of(31, 100);
  {
    TestRunner runner(connect());
    (void)runner.run(SequenceId(1), prompt);
    ASSERT_TRUE(connect(Client::Role::admin)->flush(in(seconds(30))));
  }
  stop_service();
  // Block 3 of 6: what is before it can still be served, what is after it cannot.
  ASSERT_EQ(damage(dir_.path(), block_bytes_of(std::span(prompt).first(64))), 1U);

  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  wait_recovered(runner.client());
  const auto account = runner.run(SequenceId(1), prompt);  // compares every byte of a hit
  EXPECT_EQ(account.hits(), 48U);
  EXPECT_EQ(account.computed_tokens, 52U);
  EXPECT_EQ(counter(runner.client(), "corrupt_blocks.disk"), 1U);
  EXPECT_EQ(runner.run(SequenceId(2), prompt).hits(), 96U) << "computed again, it is served again";
}

}  // namespace
}  // namespace kv::test
