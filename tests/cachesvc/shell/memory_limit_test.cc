#include "cachesvc/shell/memory_limit.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::shell {
namespace {

constexpr std::uint64_t kMachine = 1'000'000'000;

class MemoryLimitTest : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = temp_.path() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  [[nodiscard]] MemoryLimit limit() const {
    return memory_limit(kMachine, {temp_.path() + "/cgroup", temp_.path() + "/tree"});
  }
  tests::TempDir temp_;
};

TEST_F(MemoryLimitTest, IsTheMachinesWhereNoGroupSaysLess) {
  EXPECT_EQ(limit().bytes, kMachine);  // no file at all
  EXPECT_EQ(limit().text, "the machine has");
  write("cgroup", "0::/a/b\n");
  EXPECT_EQ(limit().bytes, kMachine);
  write("tree/a/b/memory.max", "max\n");
  EXPECT_EQ(limit().bytes, kMachine);
  write("tree/a/b/memory.max", "1000000001\n");
  EXPECT_EQ(limit().bytes, kMachine);
  EXPECT_EQ(limit().text, "the machine has");
}

TEST_F(MemoryLimitTest, IsTheLeastOfAllGroupsAboveTheProcess) {
  write("cgroup", "0::/a/b\n");
  write("tree/a/memory.max", "2000\n");
  write("tree/a/b/memory.max", "3000\n");
  EXPECT_EQ(limit().bytes, 2000U);
  EXPECT_EQ(limit().text, "the control group of this process allows");
  write("tree/a/b/memory.max", "1000\n");
  EXPECT_EQ(limit().bytes, 1000U);
}

TEST_F(MemoryLimitTest, IsTheContainersOwnWhereThePathIsOneOfTheHost) {
  write("cgroup", "0::/docker/0123\n");
  write("tree/memory.max", "500\n");
  EXPECT_EQ(limit().bytes, 500U);
}

TEST_F(MemoryLimitTest, KnowsTheFirstVersionBesideTheSecond) {
  write("cgroup", "9:cpu,memory:/jobs/7\n3:cpuset:/\n0::/jobs/7\n");
  write("tree/memory/jobs/7/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(limit().bytes, 4096U);
  write("tree/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(limit().bytes, kMachine);
  write("tree/unified/jobs/7/memory.max", "77\n");
  EXPECT_EQ(limit().bytes, 77U);
}

TEST_F(MemoryLimitTest, TakesNothingFromFilesThatMakeNoSense) {
  write("cgroup", "\n:\nno colon\n5:memory\n0::../../..\n0::/\n");
  for (const char* text : {"", "-1\n", "12 MB\n", "99999999999999999999999\n", "0x10\n"}) {
    write("tree/memory.max", text);
    EXPECT_EQ(limit().bytes, kMachine) << text;
  }
}

}  // namespace
}  // namespace kv::shell
