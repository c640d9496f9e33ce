#include "cachesvc/shell/log.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tiering/stores/file_descriptor.h"

namespace kv::shell {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
    ASSERT_EQ(fcntl(reader_.get(), F_SETFL, O_NONBLOCK), 0);
  }
  [[nodiscard]] std::string read_all() const {
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = read(reader_.get(), bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return text;
  }
  FileDescriptor reader_, writer_;
};

TEST_F(LogTest, APipeThatNobodyReadsDelaysNobodyAndTheNextLineSaysWhatIsMissing) {
  const Logger log("info", writer_.get());
  constexpr std::uint64_t kLines = 5'000;  // more than a pipe takes
  for (std::uint64_t i = 0; i < kLines; ++i) log.write(LogLevel::info, "event", {{"number", i}});
  const std::string read = read_all();
  const auto lines = static_cast<std::uint64_t>(std::ranges::count(read, '\n'));
  EXPECT_GT(lines, 0U);
  EXPECT_LT(lines, kLines);
  EXPECT_EQ(log.dropped_lines(), kLines - lines);
  EXPECT_TRUE(read.ends_with("number=" + std::to_string(lines - 1) + "\n")) << "no line is torn";
  log.write(LogLevel::info, "later");
  log.write(LogLevel::info, "last");
  const std::string later = read_all();
  EXPECT_NE(later.find("event=later dropped_log_lines=" + std::to_string(kLines - lines) + "\n"),
            std::string::npos)
      << later;
  EXPECT_TRUE(later.ends_with("event=last\n")) << "told once";
  EXPECT_EQ(log.dropped_lines(), kLines - lines);
}

// A terminal says that it can be written to as long as it has any room.
TEST_F(LogTest, ATerminalThatNobodyReadsDelaysNobody) {
  const FileDescriptor master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master.is_open());
  ASSERT_EQ(grantpt(master.get()), 0);
  ASSERT_EQ(unlockpt(master.get()), 0);
  std::array<char, 100> name{};
  ASSERT_EQ(ptsname_r(master.get(), name.data(), name.size()), 0);
  const FileDescriptor terminal(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal.is_open());
  const Logger log("info", terminal.get());
  constexpr std::uint64_t kLines = 5'000;
  for (std::uint64_t i = 0; i < kLines; ++i) log.write(LogLevel::info, "event", {{"number", i}});
  EXPECT_GT(log.dropped_lines(), kLines / 2);
  EXPECT_LT(log.dropped_lines(), kLines);
}

TEST_F(LogTest, ALineIsCutWhereAPipeMayTakeOnlyAPartOfIt) {
  const Logger log("info", writer_.get());
  log.write(LogLevel::info, "long", {{"value", std::string(10'000, 'v')}});
  const std::string read = read_all();
  EXPECT_EQ(read.size(), 4'096U);
  EXPECT_TRUE(read.ends_with("v\n"));
}

TEST_F(LogTest, LinesBelowTheLevelAreNotWritten) {
  const Logger log("warn", writer_.get());
  log.write(LogLevel::info, "small");
  log.write(LogLevel::warn, "large");
  const std::string read = read_all();
  EXPECT_NE(read.find(" level=warning event=large\n"), std::string::npos) << read;
  EXPECT_EQ(std::ranges::count(read, '\n'), 1);
}

}  // namespace
}  // namespace kv::shell
