// The built cachectl: exit codes, what goes where, and how long it takes.
#include "tests/tools/cachectl/program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/plugins/client/fake_service.h"
#include "tests/plugins/client/temporary_dir.h"

namespace kv::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class Cachectl : public testing::Test {
 protected:
  [[nodiscard]] ProgramResult cachectl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {built("cachectl"), "--dir", dir_.path()});
    return run_program(arguments);
  }
  static void expect_one_error_line(const ProgramResult& result) {
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }
  TemporaryDir dir_;
};

Bytes with_body(
    const FakeService::Seen& request, wire::ReplyBody type,
    const std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)>& body) {
  ReplyParts parts;
  parts.request = request.request;
  parts.body_type = type;
  parts.body = body;
  return reply_frame(parts);
}

std::optional<std::vector<Bytes>> example_answers(const FakeService::Seen& request) {
  switch (request.type) {
    case wire::RequestBody::Status:
      return std::vector<Bytes>{with_body(request, wire::ReplyBody::StatusReply, [](auto& builder) {
        const std::vector<wire::TierStatus> tiers{{64, 10, 4, 0, 6, 0, 0, 6, 0}};
        const auto tier_vector = builder.CreateVectorOfStructs(tiers);
        return wire::CreateStatusReply(builder, tier_vector, 0, 3, 0, 0, 6, 1, 0, 1, 16).Union();
      })};
    case wire::RequestBody::Lookup:
      return std::vector<Bytes>{with_body(request, wire::ReplyBody::LookupReply, [](auto& builder) {
        const auto tiers = builder.CreateVector(std::vector<std::uint64_t>{16, 0, 16, 0});
        return wire::CreateLookupReply(builder, 32, tiers, 48).Union();
      })};
    case wire::RequestBody::Demote:
      return std::vector<Bytes>{with_body(request, wire::ReplyBody::DemoteReply, [](auto& builder) {
        return wire::CreateDemoteReply(builder, 5, 6, 7).Union();
      })};
    case wire::RequestBody::Clear:
    case wire::RequestBody::SetEpoch:
      return std::vector<Bytes>{with_body(request, wire::ReplyBody::ClearReply, [](auto& builder) {
        return wire::CreateClearReply(builder, 11, 12, 13).Union();
      })};
    case wire::RequestBody::Flush:
      return std::vector<Bytes>{
          error_frame(request.request, wire::ErrorCode::denied, "only for administrators")};
    default:
      return std::nullopt;
  }
}

TEST_F(Cachectl, FailsFastWithOneLineWhenNoServiceRuns) {
  for (const auto& arguments : {std::vector<std::string>{"status"},
                                {"tree", "--json"},
                                {"demote", "--tier", "device"},
                                {"flush"},
                                {"lookup", "--namespace-weights", "w", "--tokens", "1,2"}}) {
    SCOPED_TRACE(arguments[0]);
    const auto result = cachectl(arguments);
    EXPECT_EQ(result.exit_code, 1);
    expect_one_error_line(result);
    EXPECT_EQ(result.err, "error: no service answers on ipc://" + dir_.path() +
                              "/service.sock; start one: cachesvc serve --dir " + dir_.path() +
                              "\n");
    EXPECT_LT(result.time, seconds(2));
  }
}

TEST_F(Cachectl, FailsFastOnSocketFilesThatADeadServiceLeft) {
  {
    FakeService service({.dir = dir_.path()}, {});
    // The files stay behind, as after kill -9.
    std::filesystem::create_hard_link(dir_.path() + "/service.sock", dir_.path() + "/kept");
  }
  std::error_code ignored;
  std::filesystem::rename(dir_.path() + "/kept", dir_.path() + "/service.sock", ignored);
  ASSERT_TRUE(std::filesystem::exists(dir_.path() + "/attach.sock"));
  const auto result = cachectl({"status"});
  EXPECT_EQ(result.exit_code, 1);
  expect_one_error_line(result);
  EXPECT_LT(result.time, seconds(2));
}

TEST_F(Cachectl, GivesUpWithinTwoSecondsOnAServiceThatDoesNotAnswer) {
  FakeService service({.dir = dir_.path(), .answer_attach = false}, {});
  const auto result = cachectl({"status"});
  EXPECT_EQ(result.exit_code, 1);
  expect_one_error_line(result);
  EXPECT_LT(result.time, seconds(3)) << "1.5 s, and the start of a process on a busy machine";
}

TEST_F(Cachectl, WaitsForAServiceThatDoesNotAnswerForAsLongAsItIsTold) {
  FakeService service({.dir = dir_.path(), .answer_attach = false}, {});
  const auto result = cachectl({"status", "--timeout", "4s"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_GE(result.time, std::chrono::milliseconds(3'990)) << result.err;
}

TEST_F(Cachectl, AnswersAMistakeWithExitCodeTwo) {
  const auto result = cachectl({"statsu"});
  EXPECT_EQ(result.exit_code, 2);
  expect_one_error_line(result);
}

TEST_F(Cachectl, AnswersAForeignEndpointAndASocketAsDirectoryWithWhatToGive) {
  const auto foreign = run_program({built("cachectl"), "--endpoint", "tcp://h:5555", "status"});
  EXPECT_EQ(foreign.exit_code, 2);
  expect_one_error_line(foreign);
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto socket =
      run_program({built("cachectl"), "--dir", dir_.path() + "/service.sock", "status"});
  EXPECT_EQ(socket.exit_code, 2);
  expect_one_error_line(socket);
  EXPECT_NE(
      socket.err.find("/service.sock is a socket: give its directory, --dir " + dir_.path() + ";"),
      std::string::npos)
      << socket.err;
}

TEST_F(Cachectl, NamesTheFileOfTokensThatIsMissing) {
  const std::string model = KV_SOURCE_DIR "/plugins/runner/models/stories260K";
  const auto missing = cachectl({"lookup", "--model", model, "--tokens", "@/nope"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_EQ(missing.err,
            "error: --tokens @/nope: the file with the tokens cannot be read; check the path; see "
            "cachectl lookup --help\n");
  const auto senseless = cachectl({"lookup", "--model", model, "--tokens", "1,x"});
  EXPECT_EQ(senseless.exit_code, 2);
  EXPECT_TRUE(senseless.err.starts_with("error: --tokens 1,x: give token ids below 2^32"))
      << senseless.err;
}

TEST_F(Cachectl, SaysWhatToSetWhenNoDirectoryIsKnown) {
  const auto result = run_program({built("cachectl"), "status"}, seconds(30),
                                  {"HOME=", "XDG_RUNTIME_DIR=", "CACHESVC_DIR="});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(
      result.err,
      "error: no default directory, HOME is empty or not set; give --dir, or set CACHESVC_DIR\n");
}

TEST_F(Cachectl, ClearsTheScreenAndPrintsTheTimeWhenItWatchesOnATerminal) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const std::string program = built("cachectl");
  const std::string dir = dir_.path();
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execl(program.c_str(), "cachectl", "--dir", dir.c_str(), "status", "--watch", "10ms", nullptr);
    _exit(127);
  }
  ASSERT_GT(child, 0) << "no pseudo terminal: " << std::strerror(errno);
  const std::string clear = "\x1b[H\x1b[2J";
  std::string text;
  std::array<char, 4'096> bytes{};
  // Until the second answer began; a child that ends is the end of the terminal.
  while (text.find("service", text.find("service") + 1) == std::string::npos ||
         text.find(clear, 1) == std::string::npos) {
    const ssize_t count = read(terminal, bytes.data(), bytes.size());
    if (count <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(terminal);
  ASSERT_TRUE(text.starts_with(clear)) << text;
  EXPECT_NE(text.find(clear, 1), std::string::npos) << text;
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  EXPECT_EQ(std::sscanf(text.c_str() + clear.size(), "%d-%d-%d %d:%d:%d", &year, &month, &day,
                        &hour, &minute, &second),
            6)
      << text;
}

TEST_F(Cachectl, PrintsDataOnStdoutOnly) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto text = cachectl({"status"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(text.err, "");
  EXPECT_NE(text.out.find("384 B / 640 B"), std::string::npos) << text.out;
  const auto result = cachectl({"status", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto status = json::parse(result.out);
  EXPECT_EQ(status["tiers"]["device"]["free"], 4);
  EXPECT_EQ(status["clients"], 3);
  EXPECT_EQ(status["boot_id"], "00000000000000070000000000000009");
}

TEST_F(Cachectl, SendsTheNamespaceAndTheTokensOfALookup) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto result = cachectl({"lookup", "--namespace-weights", "w", "--namespace-config", "c",
                                "--tokens", "5,6,7", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["hit_tokens"]["disk"], 16);
  const auto seen = service.seen(wire::RequestBody::Lookup);
  ASSERT_EQ(seen.size(), 1U);
  const auto* lookup = seen[0].message().body_as_Lookup();
  EXPECT_EQ(lookup->fields()->weights()->size(), 1U);
  EXPECT_EQ(lookup->fields()->model_config()->Get(0), 'c');
  EXPECT_EQ(std::vector<std::uint32_t>(lookup->tokens()->begin(), lookup->tokens()->end()),
            (std::vector<std::uint32_t>{5, 6, 7}));
}

TEST_F(Cachectl, ExitsWithThreeWhenARequiredHitIsNotMet) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const std::vector<std::string> lookup{"lookup", "--namespace-weights", "w", "--tokens",
                                        "5",      "--require-hit-tokens"};
  auto met = lookup;
  met.emplace_back("32");
  EXPECT_EQ(cachectl(met).exit_code, 0);
  auto missed = lookup;
  missed.emplace_back("33");
  const auto result = cachectl(missed);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.out, "") << "the data is printed all the same";
  EXPECT_EQ(result.err, "not met: 32 tokens are hit, and --require-hit-tokens wants 33\n");
}

TEST_F(Cachectl, PassesTheTierOfADemote) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto result = cachectl({"demote", "--tier", "host", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["dropped_blocks"], 6);
  const auto seen = service.seen(wire::RequestBody::Demote);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].message().body_as_Demote()->tier(), wire::Tier::host);
}

TEST_F(Cachectl, PassesTheTierAndTheNamespaceOfAClear) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto result =
      cachectl({"clear", "--tier", "disk", "--namespace-weights", "w", "--yes", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out),
            json({{"tier", "disk"}, {"cleared_blocks", 11}, {"in_use_blocks", 12}, {"epoch", 13}}));
  const auto text = cachectl({"clear", "--yes"});
  EXPECT_EQ(text.out, "all tiers: cleared 11 blocks, in use 12, epoch 13\n");
  const auto seen = service.seen(wire::RequestBody::Clear);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_FALSE(seen[0].message().body_as_Clear()->all_tiers());
  EXPECT_EQ(seen[0].message().body_as_Clear()->tier(), wire::Tier::disk);
  EXPECT_EQ(seen[0].message().body_as_Clear()->fields()->weights()->Get(0), 'w');
  EXPECT_TRUE(seen[1].message().body_as_Clear()->all_tiers());
  EXPECT_EQ(seen[1].message().body_as_Clear()->fields(), nullptr);
}

TEST_F(Cachectl, PassesAnEpoch) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto result = cachectl({"clear", "--namespace-weights", "w", "--epoch", "9", "--yes"});
  EXPECT_EQ(result.out, "all tiers of the namespace: cleared 11 blocks, in use 12, epoch 13\n");
  const auto seen = service.seen(wire::RequestBody::SetEpoch);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].message().body_as_SetEpoch()->epoch(), 9U);
}

TEST_F(Cachectl, ClearsNothingUnlessItIsConfirmed) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto result = cachectl({"clear"});
  EXPECT_EQ(result.exit_code, 2);
  expect_one_error_line(result);
  EXPECT_NE(result.err.find("--yes"), std::string::npos) << result.err;
  EXPECT_TRUE(service.seen(wire::RequestBody::Clear).empty());
}

TEST_F(Cachectl, ReportsARefusalOfTheService) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto result = cachectl({"flush"});
  EXPECT_EQ(result.exit_code, 1);
  expect_one_error_line(result);
  EXPECT_NE(result.err.find("only for administrators"), std::string::npos);
}

TEST_F(Cachectl, WatchesUntilItIsInterrupted) {
  FakeService service({.dir = dir_.path()}, example_answers);
  Program watch({built("cachectl"), "--dir", dir_.path(), "status", "--watch", "10ms", "--json"});
  ASSERT_TRUE(watch.read_lines(3, seconds(20))) << watch.err();
  watch.signal(SIGINT);
  const auto result = watch.wait(seconds(10));
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  const std::string first = result.out.substr(0, result.out.find('\n'));
  EXPECT_EQ(json::parse(first)["clients"], 3);
}

TEST_F(Cachectl, FindsTheServiceThroughTheEnvironmentAndByEndpoint) {
  FakeService service({.dir = dir_.path()}, example_answers);
  const auto by_environment = run_program({built("cachectl"), "status", "--json"}, seconds(30),
                                          {"CACHESVC_DIR=" + dir_.path()});
  EXPECT_EQ(by_environment.exit_code, 0) << by_environment.err;
  const auto by_endpoint =
      run_program({built("cachectl"), "--endpoint", "ipc://" + dir_.path() + "/service.sock",
                   "status", "--json"});
  EXPECT_EQ(by_endpoint.exit_code, 0) << by_endpoint.err;
}

}  // namespace
}  // namespace kv::test
