// Every program of the tree with standard streams that are closed or full.
#include "cachesvc/program/standard_streams.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/plugins/client/temporary_dir.h"
#include "tests/tools/cachectl/program.h"

namespace kv::test {
namespace {

using std::chrono::seconds;

constexpr const char* kLost =
    "error: standard output cannot be written; give it another file or disk\n";

// By the shell, which closes and redirects: `redirection` is as in "2>&-".
std::vector<std::string> in_shell(const std::vector<std::string>& arguments,
                                  const std::string& redirection) {
  std::vector<std::string> all = {"/bin/sh", "-c", "exec \"$0\" \"$@\" " + redirection,
                                  built(arguments.front())};
  all.insert(all.end(), arguments.begin() + 1, arguments.end());
  return all;
}

std::vector<std::string> serve(const std::string& dir) {
  return {"cachesvc",          "serve", "--dir",           dir,     "--set",
          "device.bytes=4MiB", "--set", "host.bytes=4MiB", "--set", "disk.bytes=4MiB"};
}

// Runs `child` in a process of its own; its exit code.
int in_child(const std::function<int()>& child) {
  const pid_t id = fork();
  if (id == 0) _exit(child());
  int status = 0;
  waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool is_null_device(int number) {
  struct stat status{};
  return fstat(number, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
}

TEST(StandardStreams, EachThatIsClosedBecomesTheNullDeviceAndTheOthersStay) {
  for (int closed = 0; closed < 8; ++closed) {
    const int found = in_child([closed] {
      const int other = open("/dev/zero", O_RDWR);
      for (int number = 0; number < 3; ++number) {
        dup2(other, number);
        if ((closed >> number & 1) != 0) close(number);
      }
      program::keep_standard_streams();
      int null_devices = 0;
      for (int number = 0; number < 3; ++number) {
        if (is_null_device(number)) null_devices |= 1 << number;
      }
      return null_devices;
    });
    EXPECT_EQ(found, closed);
  }
}

TEST(StandardStreams, AProgramRunsAsUsualWhicheverAreClosed) {
  for (const char* name : {"cachesvc", "cachectl", "cachesvc-runner", "cachesim", "cachebench"}) {
    for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
      const auto ended = run_program(in_shell({name, "--help"}, closed));
      EXPECT_EQ(ended.exit_code, 0) << name << " " << closed << ": " << ended.err;
    }
  }
}

TEST(StandardStreams, AResultThatCannotBeWrittenIsAnErrorOfEveryProgram) {
  const std::string trace = std::string(KV_SOURCE_DIR) + "/tests/data/traces/";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"cachesvc", "--help"},
           {"cachesvc", "version"},
           {"cachesvc", "config", "show", "--dir", "/tmp/none"},
           {"cachesvc", "config", "show", "--dir", "/tmp/none", "--json"},
           {"cachesvc", "config", "check", "--dir", "/tmp/none"},
           {"cachectl", "--help"},
           {"cachesvc-runner", "--version"},
           {"cachesim", "--help"},
           {"cachesim", "info", trace + "conversation_trace.jsonl.gz"},
           {"cachebench", "--help"}}) {
    const auto ended = run_program(in_shell(arguments, ">/dev/full"));
    EXPECT_EQ(ended.exit_code, 1) << arguments.front() << " " << arguments[1];
    EXPECT_EQ(ended.err, kLost) << arguments.front() << " " << arguments[1];
  }
}

TEST(StandardStreams, AnErrorStaysTheErrorThatItWasWhenTheOutputIsFullToo) {
  const auto ended = run_program(in_shell(
      {"cachesvc", "config", "check", "--json", "--dir", "/tmp/none", "--set", "disk.io=x"},
      ">/dev/full"));
  EXPECT_EQ(ended.exit_code, 3);
}

class ServiceWithoutStreams : public testing::Test {
 protected:
  void start(const std::string& redirection) {
    service_ = std::make_unique<Program>(in_shell(serve(dir_.path()), redirection));
    const auto deadline = std::chrono::steady_clock::now() + seconds(30);
    while (status().is_null()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << service_->err();
      (void)poll(nullptr, 0, 5);  // between two questions
    }
  }
  [[nodiscard]] nlohmann::json status() const {
    const auto asked = run_program({built("cachectl"), "--dir", dir_.path(), "status", "--json"});
    return asked.exit_code == 0 ? nlohmann::json::parse(asked.out) : nlohmann::json();
  }
  // Nothing came to a socket that was no request.
  void expect_clean_sockets() const {
    const nlohmann::json counters = status()["counters"];
    for (const char* name : {"malformed_attaches", "malformed_frames", "invalid_requests"}) {
      EXPECT_EQ(counters[name], 0) << name;
    }
  }

  TemporaryDir dir_;
  std::unique_ptr<Program> service_;
};

TEST_F(ServiceWithoutStreams, LogsAndSaysReadyIntoNoFileOfItsOwn) {
  for (const char* closed : {"2>&-", ">&-", "<&-", "<&- >&- 2>&-"}) {
    SCOPED_TRACE(closed);
    ASSERT_NO_FATAL_FAILURE(start(closed));
    expect_clean_sockets();
    service_->signal(SIGTERM);
    EXPECT_EQ(service_->wait(seconds(30)).exit_code, 0);
    for (const char* name : {"/service.lock", "/service.sock.lock"}) {
      EXPECT_EQ(std::filesystem::file_size(dir_.path() + name), 0U) << name;
    }
  }
}

TEST_F(ServiceWithoutStreams, ClientsSayNothingIntoTheirSockets) {
  ASSERT_NO_FATAL_FAILURE(start(""));
  const std::string model = std::string(KV_SOURCE_DIR) + "/plugins/runner/models/stories260K";
  for (const char* closed : {">&-", "2>&-", "<&- >&- 2>&-"}) {
    SCOPED_TRACE(closed);
    EXPECT_EQ(run_program(in_shell({"cachectl", "--dir", dir_.path(), "status"}, closed)).exit_code,
              0);
    EXPECT_EQ(run_program(in_shell({"cachesvc-runner", "generate", "--dir", dir_.path(), "--model",
                                    model, "--prompt", "Once", "--max-tokens", "4"},
                                   closed))
                  .exit_code,
              0);
    expect_clean_sockets();
  }
}

TEST_F(ServiceWithoutStreams, ClientsSayThatTheirResultIsLost) {
  ASSERT_NO_FATAL_FAILURE(start(""));
  const std::string model = std::string(KV_SOURCE_DIR) + "/plugins/runner/models/stories260K";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"cachectl", "--dir", dir_.path(), "status"},
           {"cachectl", "--dir", dir_.path(), "tree", "--json"},
           {"cachesvc-runner", "generate", "--dir", dir_.path(), "--model", model, "--prompt",
            "Once", "--max-tokens", "4"}}) {
    const auto ended = run_program(in_shell(arguments, ">/dev/full"));
    EXPECT_EQ(ended.exit_code, 1) << arguments.front();
    EXPECT_EQ(ended.err, kLost) << arguments.front();
  }
}

TEST_F(ServiceWithoutStreams, DoesNotStartWhenItCannotSayReady) {
  const auto ended = run_program(in_shell(serve(dir_.path()), ">/dev/full"));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.err,
            "error: the ready line cannot be written to standard output: No space left on device; "
            "give it another file, or /dev/null\n");
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/service.sock"));
}

}  // namespace
}  // namespace kv::test
