// A disk tier that is off against the configuration: the ready line, the log, `status` and `flush`
// say so from the start, each with the place and the reason.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/end_to_end/service_fixture.h"

namespace kv::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class DiskOff : public ServiceTest {
 protected:
  [[nodiscard]] std::string disk() const { return dir_.path() + "/disk"; }
  [[nodiscard]] ProgramResult cachectl(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {built("cachectl"), "--dir", dir_.path()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program(all);
  }
  // Starts, and expects that everyone who asks is told `problem`.
  void expect_told(const std::string& word, const std::string& problem) {
    ASSERT_NO_FATAL_FAILURE(start_service());
    EXPECT_TRUE(service_->out().ends_with(" disk=off reason=" + word + "\n")) << service_->out();
    EXPECT_EQ(json::parse(cachectl({"status", "--json"}).out)["disk_problem"], problem);
    TestRunner runner(connect());
    (void)runner.run(SequenceId(1), prompt_of(1, 65));
    EXPECT_NE(cachectl({"status"}).out.find("\ndisk off: " + problem + "\n"), std::string::npos);
    const auto flushed = cachectl({"flush"});
    EXPECT_EQ(flushed.exit_code, 1);
    EXPECT_EQ(flushed.out, "durable 0 blocks, unsaved 4; the disk tier is off: " + problem + "\n");
    EXPECT_EQ(json::parse(cachectl({"flush", "--json"}).out)["disk_problem"], problem);
    EXPECT_EQ(json::parse(cachectl({"status", "--json"}).out)["counters"]["disk_failures"], 1);
    stop_service();
    EXPECT_NE(service_->err().find("event=disk_refused code=" + word + " reason=\"" + problem),
              std::string::npos)
        << service_->err();
  }
};

TEST_F(DiskOff, BecauseAFileIsThere) {
  std::ofstream(disk()) << "mine";
  expect_told("unavailable", disk() + " is no directory");
}

TEST_F(DiskOff, BecauseItIsALinkToNowhere) {
  fs::create_directory_symlink(dir_.path() + "/none", disk());
  expect_told("unavailable", disk() + " is a link to a place that is not there");
}

TEST_F(DiskOff, BecauseItHoldsBlocksWithoutAFormat) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  {
    TestRunner runner(connect());
    (void)runner.run(SequenceId(1), prompt_of(7, 65));
  }
  stop_service();
  ASSERT_TRUE(fs::remove(disk() + "/format"));
  expect_told("corrupt", disk() +
                             ": disk store: blocks, but no format file; remove the directory "
                             "(format)");
}

TEST_F(DiskOff, OnceItCannotBeOpenedWithTheErrorOfTheSystem) {
  fs::create_directories(disk() + "/lock");  // where the store wants a file
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto admin = connect();
  const std::string problem = disk() + ": disk store: cannot open the lock file (Is a directory)";
  wait_for(*admin, [&](const auto& status) { return status.disk_problem == problem; });
  service_->signal(SIGTERM);
  EXPECT_EQ(service_->wait(seconds(30)).exit_code, 1);
  EXPECT_NE(service_->err().find("remedy=\"check " + disk() + " and start again"),
            std::string::npos)
      << service_->err();
}

TEST_F(DiskOff, AsConfiguredIsNoProblem) {
  service_ = std::make_unique<Program>(
      std::vector<std::string>{built("cachesvc"), "serve", "--dir", dir_.path(), "--set",
                               "disk.bytes=0", "--set", "host.bytes=2MiB"});
  ASSERT_TRUE(service_->read_lines(1, seconds(30))) << service_->err();
  TestRunner runner(connect());
  (void)runner.run(SequenceId(1), prompt_of(1, 65));
  const auto flushed = cachectl({"flush"});
  EXPECT_EQ(flushed.exit_code, 0);
  EXPECT_EQ(flushed.out, "durable 0 blocks, unsaved 4; the disk tier is off\n");
  EXPECT_TRUE(json::parse(cachectl({"status", "--json"}).out)["disk_problem"].is_null());
  stop_service();
}

}  // namespace
}  // namespace kv::test
