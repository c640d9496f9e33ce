// The program cachesvc-runner as a person starts it, with no service to talk to.
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kv::test {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string output;  // both streams
};

Outcome run(const std::string& arguments) {
  const std::string command = std::string(KV_BINARY_DIR "/bin/cachesvc-runner ") + arguments;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.output += buffer.data();
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

std::string model() { return " --model " KV_SOURCE_DIR "/plugins/runner/models/stories260K "; }

TEST(RunnerProgram, HelpShowsExamplesAndSucceeds) {
  const Outcome outcome = run("generate --help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("Examples:"), std::string::npos);
  EXPECT_NE(outcome.output.find("--prompt-tokens"), std::string::npos);
}

TEST(RunnerProgram, WrongUsageIsExitCodeTwo) {
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("generate").exit_code, 2);
  EXPECT_EQ(run("generate" + model()).exit_code, 2);
  EXPECT_EQ(run("generate --prompt a").exit_code, 2);
  EXPECT_EQ(run("generate --prompt a --prompt-tokens 1" + model()).exit_code, 2);
  EXPECT_EQ(run("generate --prompt a --max-tokens 0" + model()).exit_code, 2);
  EXPECT_EQ(run("generate --prompt a --chunk 0" + model()).exit_code, 2);
  EXPECT_EQ(run("generate --prompt a --surprise" + model()).exit_code, 2);
  for (const char* tokens : {"\"\"", "1,", ",1", "1,,2", "1.2", "-1", "4294967296", "a"}) {
    EXPECT_EQ(run("generate --prompt-tokens " + std::string(tokens) + model()).exit_code, 2)
        << tokens;
  }
}

TEST(RunnerProgram, WithoutAServiceItFailsWithOneLineInTime) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("kv_runner_program_test." + std::to_string(getpid()));
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run("generate --prompt \"\" --json --dir " + folder.string() + model());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  EXPECT_NE(outcome.output.find("cachesvc serve"), std::string::npos) << outcome.output;
}

TEST(RunnerProgram, AFolderWithoutAModelFailsWithOneLine) {
  const Outcome outcome = run("generate --prompt a --model " KV_SOURCE_DIR "/schemas");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

}  // namespace
}  // namespace kv::test
