// The program `cachesvc`: what it says about settings that are wrong, as text and as JSON.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cachesvc/shell/commands.h"
#include "tests/cachesvc/shell/child_process.h"
#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::tests {
namespace {

using nlohmann::json;

std::vector<std::string> command(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {std::string(KV_BINARY_DIR) + "/bin/cachesvc"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

void expect_failure(const std::vector<std::string>& arguments, int code, const std::string& line) {
  ChildProcess program(command(arguments));
  EXPECT_EQ(program.rest(), "");
  EXPECT_EQ(program.wait(), code);
  EXPECT_EQ(program.errors(), "error: " + line + "\n");
}

TEST(ProgramUsage, AnEmptyKeyFileOrEndpointIsAMistakeNotTheDefault) {
  const TempDir dir;
  expect_failure({"serve", "--dir", dir.path(), "--set", "=1"}, shell::kExitUsage,
                 "--set: =1 has no key: write SECTION.KEY=1; see cachesvc serve --help");
  expect_failure({"serve", "--dir", dir.path(), "--config", ""}, shell::kExitUsage,
                 "--config: is empty: name a file, or leave it out; see cachesvc serve --help");
  expect_failure({"serve", "--dir", dir.path(), "--endpoint", ""}, shell::kExitUsage,
                 "service.endpoint: \"\": the endpoint is empty (command line); write "
                 "\"ipc:///path/to/service.sock\", or leave it out");
}

TEST(ProgramUsage, AnEndpointInADirectoryThatIsNotThereSaysWhatToDo) {
  const TempDir dir;
  const std::string folder = dir.path() + "/none";
  const std::string endpoint = "ipc://" + folder + "/x.sock";
  expect_failure({"serve", "--dir", dir.path(), "--endpoint", endpoint}, shell::kExitFailed,
                 folder +
                     "/x.sock.lock cannot be opened: No such file or directory; make the "
                     "directory " +
                     folder);
  expect_failure(
      {"config", "check", "--dir", dir.path(), "--endpoint", endpoint}, shell::kExitCheck,
      "service.endpoint: " + folder + " is no directory; make it, or give another endpoint");
  // The service's own directory is made by it.
  ChildProcess check(command({"config", "check", "--dir", dir.path() + "/later"}));
  EXPECT_EQ(check.rest(), "ok\n");
  EXPECT_EQ(check.wait(), 0);
}

TEST(ProgramUsage, JsonIsJsonAlsoWhenSomethingIsWrong) {
  const TempDir dir;
  for (const auto& [name, code] :
       {std::pair{"show", shell::kExitUsage}, std::pair{"check", shell::kExitCheck}}) {
    ChildProcess program(
        command({"config", name, "--dir", dir.path(), "--json", "--set", "disk.io=slow"}));
    const json said = json::parse(program.rest());
    EXPECT_EQ(program.wait(), code) << name;
    EXPECT_EQ(program.errors(), "") << name;
    EXPECT_EQ(said["ok"], false) << name;
    EXPECT_EQ(said["problems"][0]["key"], "disk.io") << name;
  }
  ChildProcess version(command({"version", "--json"}));
  const json said = json::parse(version.rest());
  EXPECT_EQ(version.wait(), 0);
  ChildProcess plain(command({"version"}));
  EXPECT_EQ("cachesvc " + said["version"].get<std::string>() + "\n", plain.rest());
}

TEST(ProgramUsage, ADiskTierLargerThanItsDiskIsAWarningAtTheStart) {
  for (const auto& [bytes, is_told] : {std::pair{"1000TiB", true}, std::pair{"1MiB", false}}) {
    const TempDir dir;
    ChildProcess service(
        command({"serve", "--dir", dir.path(), "--set", "device.bytes=64KiB", "--set",
                 "host.bytes=64KiB", "--set", std::string("disk.bytes=") + bytes}));
    ASSERT_TRUE(service.next_line().starts_with("ready ")) << service.errors();
    service.signal(SIGTERM);
    EXPECT_EQ(service.wait(), 0);
    const std::string log = service.errors();
    EXPECT_EQ(log.find("level=warning event=disk_space") != std::string::npos, is_told) << log;
  }
}

}  // namespace
}  // namespace kv::tests
