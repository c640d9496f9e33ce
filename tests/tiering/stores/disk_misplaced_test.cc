// Bytes that are right in places that are wrong: every checksum holds, and RocksDB may end the
// process by an assertion. Each opening is one of a process of its own (`disk_opener`).
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/built_program.h"
#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/file_descriptor.h"
#include "tiering/stores/open_attempt.h"

namespace kv {
namespace {

constexpr unsigned kBlocks = 24;

struct Life {
  int signal = 0;  // that ended it
  int exit_code = -1;
  unsigned right = 0, wrong = 0, set_aside = 0;
  [[nodiscard]] bool served() const { return exit_code == 0; }
};

Life open_in_a_process(const std::string& directory, bool kill = false) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const FileDescriptor output(ends[0]);
  FileDescriptor input(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string program = tests::built_program("disk_opener");
  std::string arguments[2] = {directory, "kill"};
  char* argv[] = {program.data(), arguments[0].data(), kill ? arguments[1].data() : nullptr,
                  nullptr};
  pid_t process = -1;
  EXPECT_EQ(::posix_spawn(&process, program.c_str(), &actions, nullptr, argv, environ), 0);
  ::posix_spawn_file_actions_destroy(&actions);
  input.reset();
  std::string text;
  std::array<char, 256> bytes{};
  for (ssize_t count = 0; (count = ::read(output.get(), bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  Life life;
  if (WIFSIGNALED(status)) life.signal = WTERMSIG(status);
  if (WIFEXITED(status)) life.exit_code = WEXITSTATUS(status);
  std::istringstream(text) >> life.right >> life.wrong >> life.set_aside;
  return life;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class DiskMisplaced : public testing::Test {
 protected:
  // Two lives, so that there is a table and a log.
  void SetUp() override {
    const KvLayout layout = padded_layout();
    DiskStore::Options options = options_of(store_);
    options.bytes = kPage * kBlocks;
    const std::vector<TestBlock> blocks = make_blocks(layout, kBlocks);
    for (const auto& part : {std::vector(blocks.begin(), blocks.begin() + kBlocks / 2),
                             std::vector(blocks.begin() + kBlocks / 2, blocks.end())}) {
      ASSERT_TRUE(all_ok(write_blocks(*open_store(options, layout), part)));
    }
    for (const auto& entry : std::filesystem::directory_iterator(store_ + "/index")) {
      if (entry.path().filename() != "LOCK") files_.push_back(entry.path().filename());
    }
    std::ranges::sort(files_);
    ASSERT_GE(files_.size(), 5U);
  }
  std::string damaged_copy() {
    std::filesystem::remove_all(damaged_);
    std::filesystem::copy(store_, damaged_, std::filesystem::copy_options::recursive);
    return damaged_;
  }
  // Opens until it serves.
  void expect_service_by_the_third_start() {
    for (int start = 1;; ++start) {
      const Life life = open_in_a_process(damaged_);
      if (!life.served()) {
        ASSERT_EQ(life.signal, SIGABRT) << "exit code " << life.exit_code;
        ASSERT_LT(start, 3);
        ++aborted_;
        continue;
      }
      EXPECT_EQ(life.wrong, 0U);
      EXPECT_EQ(life.set_aside, start == 3 ? 1U : life.set_aside);
      set_aside_ += life.set_aside;
      break;
    }
    ++cases_;
    const Life next = open_in_a_process(damaged_);
    ASSERT_TRUE(next.served());
    EXPECT_EQ(next.right, kBlocks);
    EXPECT_EQ(next.set_aside, 0U);
    EXPECT_FALSE(std::filesystem::exists(damaged_ + "/opening"));
  }
  void report() const {
    std::cout << "[  REPORT  ] " << cases_ << " damages: " << aborted_
              << " starts ended by an assertion, " << set_aside_ << " new indexes\n";
  }

  TempDirectory directory_{true};
  std::string store_ = directory_ / "store";
  std::string damaged_ = directory_ / "damaged";
  std::vector<std::string> files_;
  unsigned cases_ = 0, aborted_ = 0, set_aside_ = 0;
};

TEST_F(DiskMisplaced, FilesOfTheIndexThatAreDoubledCostAtMostTwoStartsAndTheIndex) {
  for (const std::string& file : files_) {
    SCOPED_TRACE(file);
    const std::string path = damaged_copy() + "/index/" + file;
    const std::string bytes = bytes_of(path);
    std::ofstream(path, std::ios::binary | std::ios::app) << bytes;
    expect_service_by_the_third_start();
    if (HasFatalFailure()) return;
  }
  report();
}

TEST_F(DiskMisplaced, FilesOfTheIndexInEachOthersPlaceCostAtMostTwoStartsAndTheIndex) {
  for (const std::string& file : files_) {
    for (const std::string& other : files_) {
      if (other == file) continue;
      SCOPED_TRACE(testing::Message() << other << " in the place of " << file);
      std::filesystem::copy_file(store_ + "/index/" + other, damaged_copy() + "/index/" + file,
                                 std::filesystem::copy_options::overwrite_existing);
      expect_service_by_the_third_start();
      if (HasFatalFailure()) return;
    }
  }
  report();
}

TEST_F(DiskMisplaced, AKillInTheMiddleOfAnOpeningCostsNothingAndTwoInARowTheIndex) {
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(open_in_a_process(store_, true).signal, SIGKILL);
    const Life life = open_in_a_process(store_);
    ASSERT_TRUE(life.served());
    EXPECT_EQ(life.right, kBlocks);
    EXPECT_EQ(life.set_aside, 0U);
  }
  // Nor two ends on purpose, after which the service says so.
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(open_in_a_process(store_, true).signal, SIGKILL);
    OpenAttempt::forget(store_);
  }
  EXPECT_EQ(open_in_a_process(store_).right, kBlocks);
  ASSERT_EQ(open_in_a_process(store_, true).signal, SIGKILL);
  ASSERT_EQ(open_in_a_process(store_, true).signal, SIGKILL);
  const Life life = open_in_a_process(store_);
  ASSERT_TRUE(life.served());
  EXPECT_EQ(life.right, 0U);
  EXPECT_EQ(life.set_aside, 1U);
  EXPECT_FALSE(std::filesystem::exists(store_ + "/opening"));
}

}  // namespace
}  // namespace kv
