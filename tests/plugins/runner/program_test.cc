// The program cachesvc-runner as a person starts it: what it says, and its exit code.
#include "tests/tools/cachectl/program.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/plugins/client/temporary_dir.h"

namespace kv::test {
namespace {

using std::chrono::seconds;
using Arguments = std::vector<std::string>;

constexpr const char* kModel = KV_SOURCE_DIR "/plugins/runner/models/stories260K";
constexpr const char* kUsage = "; see cachesvc-runner generate --help\n";

ProgramResult run(const Arguments& arguments) {
  Arguments all{built("cachesvc-runner")};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_program(all);
}

// With the model; the prompt is "a" unless `more` has one.
ProgramResult generate(const Arguments& more) {
  Arguments all{"generate", "--model", kModel};
  const bool has_prompt = std::ranges::any_of(
      more, [](const std::string& text) { return text.starts_with("--prompt"); });
  if (!has_prompt) all.insert(all.end(), {"--prompt", "a"});
  all.insert(all.end(), more.begin(), more.end());
  return run(all);
}

void expect_failure(const ProgramResult& result, int exit_code, const std::string& message) {
  EXPECT_EQ(result.exit_code, exit_code);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "error: " + message);
}

void expect_usage(const ProgramResult& result, const std::string& message) {
  expect_failure(result, 2, message + kUsage);
}

TEST(RunnerProgram, HelpShowsExamplesAndWhatALostServiceMeans) {
  const ProgramResult result = run({"generate", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* text :
       {"Examples:", "--prompt-tokens", "@FILE", "500ms, 5s, 2m (default: 30s)",
        "When the service dies in the middle of a run", "printed, and the exit code is 1"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text;
  }
}

TEST(RunnerProgram, VersionIsOneLine) {
  const ProgramResult result = run({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.out.starts_with("cachesvc-runner ")) << result.out;
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 1);
}

TEST(RunnerProgram, WrongUsageIsExitCodeTwo) {
  for (const Arguments& arguments :
       {Arguments{"generate", "--prompt", "a"},
        {"generate", "--model", kModel},
        {"generate", "--model", kModel, "--prompt", "a", "--prompt-tokens", "1"}}) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(result.err.starts_with("error: ") && result.err.ends_with(kUsage)) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
  EXPECT_EQ(generate({"--max-tokens", "0"}).exit_code, 2);
  EXPECT_EQ(generate({"--chunk", "0"}).exit_code, 2);
  for (const char* count : {"-1", "-18446744073709551615", "1e2", "0x10"}) {
    EXPECT_EQ(generate({"--max-tokens", count}).exit_code, 2) << count;
    EXPECT_EQ(generate({"--block-tokens", count}).exit_code, 2) << count;
    EXPECT_EQ(generate({"--chunk", count}).exit_code, 2) << count;
  }
  for (const char* tokens : {"", "1,", ",1", "1,,2", "1.2", "-1", "4294967296", "a"}) {
    EXPECT_EQ(generate({"--prompt-tokens=" + std::string(tokens)}).exit_code, 2) << tokens;
  }
}

TEST(RunnerProgram, WhatItDoesNotKnowIsNamed) {
  expect_failure(run({}), 2, "name a command: generate; see cachesvc-runner --help\n");
  expect_failure(run({"gen"}), 2,
                 "unknown command gen; commands: generate; see cachesvc-runner --help\n");
  expect_failure(run({"--bogus"}), 2, "unknown option --bogus; see cachesvc-runner --help\n");
  expect_usage(generate({"--surprise"}), "unknown option --surprise");
  expect_usage(generate({"extra"}), "unexpected argument extra");
}

TEST(RunnerProgram, ABlockHasAPowerOfTwoOfTokens) {
  expect_usage(generate({"--block-tokens", "7"}),
               "--block-tokens: '7': not a power of two; give 16 or another one up to 1024");
  expect_usage(generate({"--block-tokens", "2048"}),
               "--block-tokens: '2048': give a whole number from 1 to 1024");
}

TEST(RunnerProgram, AnEmptyNameIsNotTakenForTheDefault) {
  for (const char* option : {"--dir", "--endpoint", "--kernel", "--logits"}) {
    expect_usage(generate({option, ""}),
                 std::string(option) + ": is empty: give a value, or leave it out");
  }
}

TEST(RunnerProgram, ATimeNeedsAUnit) {
  for (const char* time : {"5", "0s", "5x", "-1s", "61m"}) {
    SCOPED_TRACE(time);
    expect_usage(
        generate({"--timeout=" + std::string(time)}),
        "--timeout: a time is a whole number and a unit (ns, us, ms, s, m, h), from 1ms to 1h: "
        "250ms, 5s, 2m");
  }
}

TEST(RunnerProgram, WithoutAServiceItSaysWhereItLookedAndHowToStartOne) {
  const TemporaryDir dir;
  const std::string socket = "ipc://" + dir.path() + "/service.sock";
  const ProgramResult result = generate({"--json", "--timeout", "500ms", "--dir", dir.path()});
  expect_failure(
      result, 1,
      "no service answers on " + socket + "; start one: cachesvc serve --dir " + dir.path() + "\n");
  EXPECT_LT(result.time, seconds(2));
  expect_failure(generate({"--endpoint", socket}), 1,
                 "no service answers on " + socket + "; start one: cachesvc serve --endpoint " +
                     socket + "\n");
}

TEST(RunnerProgram, AModelThatIsNotThereIsNamedWithTheRemedy) {
  const std::string remedy = "; give the folder that holds tok*.bin and the weights (*.bin)\n";
  const TemporaryDir dir;
  const auto with = [](const std::string& folder) {
    return run({"generate", "--prompt", "a", "--model", folder});
  };
  const std::string none = dir.path() + "/none";
  expect_failure(with(none), 1, "--model " + none + ": no such folder" + remedy);
  const std::string file = dir.path() + "/file";
  std::ofstream(file) << "x";
  expect_failure(with(file), 1, "--model " + file + ": is no folder" + remedy);
  expect_failure(with(dir.path()), 1,
                 "--model " + dir.path() + ": model folder: no *.bin with the weights" + remedy);
}

TEST(RunnerProgram, WhatTheModelCannotTakeIsBlamedOnTheRightOption) {
  expect_failure(generate({"--max-tokens", "100000"}), 2,
                 "--max-tokens 100000: the model's context holds 512 tokens and the prompt has 2; "
                 "give at most 511\n");
  std::string ids = "1";
  for (int i = 1; i < 600; ++i) ids.append(",403");
  expect_failure(generate({"--prompt-tokens", ids, "--max-tokens", "4"}), 2,
                 "--prompt-tokens: 600 tokens and --max-tokens 4, but the model's context holds "
                 "512; shorten the prompt\n");
  expect_failure(generate({"--prompt-tokens", "1,99999"}), 2,
                 "--prompt-tokens: token 99999 is outside the vocabulary of 512 tokens; give ids "
                 "below 512\n");
}

TEST(RunnerProgram, PathsThatCannotBeUsedAreNamed) {
  const TemporaryDir dir;
  const std::string none = dir.path() + "/none/x";
  const std::string plugin = "; give a kernel plug-in (*.so), or leave --kernel out\n";
  expect_failure(generate({"--kernel", none}), 1,
                 "--kernel " + none +
                     ": cannot be opened: cannot open shared object file: No such file or "
                     "directory" +
                     plugin);
  expect_failure(generate({"--kernel", "libc.so.6"}), 1,
                 "--kernel libc.so.6: is no kernel plug-in" + plugin);
  for (const std::string& file : {none, dir.path()}) {
    expect_failure(
        generate({"--logits", file}), 1,
        "--logits " + file + ": cannot be written; give a file in a folder that exists\n");
  }
  for (const std::string& file : {none, dir.path()}) {
    expect_usage(
        generate({"--prompt-tokens", "@" + file}),
        "--prompt-tokens @" + file + ": the file with the tokens cannot be read; check the path");
  }
}

class RunnerProgramWithAService : public testing::Test {
 protected:
  void start(const std::string& device_bytes,
             const std::string& setting = "service.log_level=info") {
    service_ = std::make_unique<Program>(
        Arguments{built("cachesvc"), "serve", "--dir", dir_.path(), "--set", setting},
        Arguments{"CACHESVC_DEVICE__BYTES=" + device_bytes, "CACHESVC_HOST__BYTES=1MiB",
                  "CACHESVC_DISK__BYTES=4MiB"});
    ASSERT_TRUE(service_->read_lines(1, seconds(30))) << service_->err();
  }
  [[nodiscard]] ProgramResult generate_here(Arguments more) const {
    more.insert(more.end(), {"--dir", dir_.path()});
    return generate(more);
  }

  TemporaryDir dir_;
  std::unique_ptr<Program> service_;
};

TEST_F(RunnerProgramWithAService, ReadsTokensFromAFile) {
  start("1MiB");
  const std::string file = dir_.path() + "/tokens";
  std::ofstream(file) << "1, 403\n407 261,378\n";
  const ProgramResult from_file = generate_here({"--prompt-tokens", "@" + file});
  const ProgramResult direct = generate_here({"--prompt-tokens", "1,403,407,261,378"});
  EXPECT_EQ(from_file.exit_code, 0) << from_file.err;
  const auto text_of = [](const ProgramResult& result) {
    return result.out.substr(0, result.out.find("\n\nprompt 5 tokens:"));
  };
  EXPECT_NE(from_file.out.find("\n\nprompt 5 tokens:"), std::string::npos) << from_file.out;
  EXPECT_EQ(text_of(from_file), text_of(direct));
}

TEST_F(RunnerProgramWithAService, MoreClientsThanTheServiceTakesNameTheKeyToRaise) {
  start("1MiB", "client.capacity=1");
  Program other({built("cachectl"), "--dir", dir_.path(), "status", "--watch", "1m", "--json"});
  ASSERT_TRUE(other.read_lines(1, seconds(30))) << other.err();
  expect_failure(generate_here({}), 1,
                 "ipc://" + dir_.path() +
                     "/service.sock: as many clients as client.capacity; try again later, or raise "
                     "client.capacity of the service\n");
}

// SCENARIOS CFG-05: with both values.
TEST_F(RunnerProgramWithAService, ABlockSizeThatDiffersFromTheServicesIsNamed) {
  start("1MiB");
  ASSERT_EQ(generate_here({"--max-tokens", "1"}).exit_code, 0);
  expect_failure(generate_here({"--block-tokens", "8"}), 1,
                 "--block-tokens 8: the service has 16 (block_tokens); pass --block-tokens 16, or "
                 "use another --dir, or stop the service and remove DIR/disk\n");
}

TEST_F(RunnerProgramWithAService, ADeviceTierThatIsTooSmallIsSaidSo) {
  start("128KiB");
  expect_failure(generate_here({"--max-tokens", "500"}), 1,
                 "--max-tokens 500: with the prompt's 2 tokens it can never fit the device tier; "
                 "raise device.bytes of the service or lower --max-tokens\n");
  expect_failure(generate_here({"--block-tokens", "1024"}), 1,
                 "--block-tokens 1024: the service has 16 (block_tokens); pass --block-tokens 16, "
                 "or use another --dir, or stop the service and remove DIR/disk\n");
}

TEST_F(RunnerProgramWithAService, APromptLongerThanTheDeviceTierIsSaidSoAtOnce) {
  start("128KiB");
  std::string ids = "1";
  for (int i = 1; i < 200; ++i) ids.append(",403");
  const ProgramResult result = generate_here({"--prompt-tokens", ids, "--max-tokens", "4"});
  expect_failure(result, 1,
                 "--prompt-tokens: 200 tokens can never fit the device tier of 6 blocks of 16 "
                 "tokens; raise device.bytes of the service or shorten the prompt\n");
  EXPECT_LT(result.time, seconds(10)) << "refused, not waited for";
}

// SCENARIOS CFG-06: in the runner's own message.
TEST_F(RunnerProgramWithAService, AnotherModelIsRefusedWithTheFieldThatDiffers) {
  start("1MiB");
  ASSERT_EQ(generate_here({"--max-tokens", "1"}).exit_code, 0);
  // dim 4, hidden 6, 2 layers, 2 heads of 2, 1 kv head, 512 tokens, 8 positions.
  const std::array<std::int32_t, 7> header = {4, 6, 2, 2, 1, 512, 8};
  std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof(header));
  bytes.append(std::size_t{4} * (512 * 4 + 2 * (4 + 16 + 8 + 8 + 16 + 4 + 3 * 24) + 4 + 8 * 2),
               '\0');
  const std::string folder = dir_.path() + "/other";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/model.bin", std::ios::binary) << bytes;
  std::filesystem::copy_file(std::string(kModel) + "/tok512.bin", folder + "/tok.bin");
  const ProgramResult result = run({"generate", "--model", folder, "--prompt-tokens", "1",
                                    "--max-tokens", "1", "--dir", dir_.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("(layer_count)"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("give this model a service of its own"), std::string::npos)
      << result.err;
}

TEST_F(RunnerProgramWithAService, AModelWhoseNumbersOverflowIsSaidToBeDamaged) {
  start("1MiB");
  const std::string folder = dir_.path() + "/large";
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(std::string(kModel) + "/tok512.bin", folder + "/tok.bin");
  std::filesystem::copy_file(std::string(kModel) + "/stories260K.bin", folder + "/model.bin");
  {
    std::fstream file(folder + "/model.bin", std::ios::in | std::ios::out | std::ios::binary);
    // wq, wk and wv of all layers, behind the header, the embedding and the first norm.
    file.seekp(28 + 4 * (512 * 64 + 5 * 64));
    const std::vector<float> large(std::size_t{5} * (64 * 64 + 2 * 64 * 32), 1e38F);
    file.write(reinterpret_cast<const char*>(large.data()),
               static_cast<std::streamsize>(large.size() * sizeof(float)));
  }
  const ProgramResult result = run({"generate", "--model", folder, "--prompt-tokens", "1,403,407",
                                    "--max-tokens", "4", "--dir", dir_.path()});
  expect_failure(result, 1,
                 "--model " + folder +
                     ": the model gives no numbers, its weights are damaged; get "
                     "the file anew\n");
}

TEST_F(RunnerProgramWithAService, ABlockLargerThanTheDeviceTierIsSaidSo) {
  start("128KiB");
  expect_failure(generate_here({"--block-tokens", "1024"}), 1,
                 "--block-tokens 1024: one block is larger than the device tier; raise "
                 "device.bytes of the service\n");
}

}  // namespace
}  // namespace kv::test
