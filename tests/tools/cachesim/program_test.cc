// The program as its users run it: what it prints, and its exit codes.
#include "tests/tools/cachectl/program.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/cachesim/temp_folder.h"
#include "tools/cachesim/command_line.h"
#include "tools/cachesim/commands.h"
#include "tools/cachesim/exit_code.h"
#include "tools/cachesim/progress.h"

namespace kv::cachesim {
namespace {

using kv::test::ProgramResult;
using kv::test::TempFolder;
using nlohmann::json;

constexpr const char* kTrace =
    R"({"timestamp": 0, "input_length": 1500, "output_length": 7, "hash_ids": [1, 2, 3]}
{"timestamp": 1, "input_length": 1024, "output_length": 7, "hash_ids": [1, 4]}
{"timestamp": 2000, "input_length": 1500, "output_length": 7, "hash_ids": [1, 2, 3]}
)";

ProgramResult cachesim(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kv::test::built("cachesim"));
  return kv::test::run_program(arguments);
}

TEST(CachesimProgram, InfoTellsWhatATraceHolds) {
  const TempFolder folder;
  const ProgramResult run = cachesim({"info", folder.file("trace", kTrace), "--json"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(run.err, "");
  const json info = json::parse(run.out);
  EXPECT_EQ(info["format"], "mooncake");
  EXPECT_EQ(info["requests"], 3);
  EXPECT_EQ(info["duration_ms"], 2000);
  EXPECT_EQ(info["input_tokens"], 4024);
  EXPECT_EQ(info["output_tokens"], 21);
  EXPECT_EQ(info["block_accesses"], 8);
  EXPECT_EQ(info["unique_blocks"], 4);
  EXPECT_EQ(info["roots"], 1);
  EXPECT_EQ(info["ceiling"]["block_hits"], 4);
  EXPECT_EQ(info["ceiling"]["token_hits"], 512 + 1500);
  EXPECT_EQ(info["reuse_distance_blocks"]["max"], 4);
}

TEST(CachesimProgram, SaysWhatItDoesNotKnowAndItsVersion) {
  const auto said = [](const std::vector<std::string>& arguments) {
    const ProgramResult run = cachesim(arguments);
    EXPECT_EQ(run.exit_code, kExitUsage);
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_EQ(said({}), "error: name a command: info, hits, replay, sweep; see cachesim --help\n");
  EXPECT_EQ(
      said({"hit"}),
      "error: unknown command hit; commands: info, hits, replay, sweep; see cachesim --help\n");
  EXPECT_EQ(said({"info", "--bogus"}), "error: unknown option --bogus; see cachesim info --help\n");
  EXPECT_EQ(cachesim({"--version"}).out, "cachesim " KV_VERSION "\n");
}

TEST(CachesimProgram, AFileBehindAnOptionOfSeveralValuesIsSaidToComeFirst) {
  const TempFolder folder;
  const std::string file = folder.file("trace", kTrace);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"hits", "--capacity-blocks", "1%", file, "--policy", "lru"},
        {"hits", "--policy", "lru", file, "--capacity-blocks", "1%"}}) {
    const ProgramResult run = cachesim(arguments);
    EXPECT_EQ(run.exit_code, kExitUsage);
    EXPECT_NE(
        run.err.find("'" + file + "' is a file: it comes first, cachesim hits FILE --policy ..."),
        std::string::npos)
        << run.err;
  }
}

TEST(CachesimProgram, SessionsAreRefusedOfATraceThatHasNone) {
  const TempFolder folder;
  const std::string file = folder.file("trace", kTrace);
  for (const char* option : {"--sessions", "--stagger-s"}) {
    const ProgramResult run = cachesim({"info", file, option, "2"});
    EXPECT_EQ(run.exit_code, kExitFailed);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, "error: " + file +
                           ": only weka traces have sessions: leave --sessions and --stagger-s "
                           "out\n");
  }
}

TEST(CachesimProgram, HitsAreRowsOfPoliciesAndCapacities) {
  const TempFolder folder;
  const ProgramResult run = cachesim({"hits", folder.file("trace", kTrace), "--policy", "lru",
                                      "min_bypass", "--capacity-blocks", "2", "100%", "--json"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  const json rows = json::parse(run.out)["rows"];
  ASSERT_EQ(rows.size(), 4U);
  const std::vector<std::vector<json>> expected = {
      {"lru", 2, 2}, {"lru", 4, 4}, {"min_bypass", 2, 3}, {"min_bypass", 4, 4}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["policy"], expected[i][0]);
    EXPECT_EQ(rows[i]["capacity_blocks"], expected[i][1]);
    EXPECT_EQ(rows[i]["block_hits"], expected[i][2]);
    EXPECT_EQ(rows[i]["block_accesses"], 8);
    EXPECT_EQ(rows[i]["tokens"], 4024);
  }
  EXPECT_EQ(rows[0]["token_hits"], 1024);
}

TEST(CachesimProgram, ReplayTellsWhatBecameOfTheRequests) {
  const TempFolder folder;
  const std::string trace = folder.file("trace", kTrace);
  const std::string config = folder.file("sim.toml", "[host]\ncapacity = \"1GiB\"\n");
  const ProgramResult run = cachesim({"replay", trace, "--config", config, "--json"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(run.err, "");
  const json report = json::parse(run.out);
  EXPECT_EQ(report["requests"]["total"], 3);
  EXPECT_EQ(report["tokens"]["input"], 4024);
  // The second waits for the first one's step and finds its block, the third all but a token.
  EXPECT_EQ(report["tokens"]["hit"]["device"], 512 + 1499);
  EXPECT_EQ(report["tokens"]["computed"], 4024 - 512 - 1499);
  EXPECT_EQ(report["tokens"]["generated"], 21);
  EXPECT_EQ(report["ttft_ns"]["count"], 3);
  EXPECT_EQ(report["links"]["device_to_host"]["bytes"], 4ULL * 512 * 131'072);
  EXPECT_EQ(report["tiers"]["host"]["capacity_blocks"], 16);

  const ProgramResult counts =
      cachesim({"replay", trace, "--json", "--set", "run.mode=counts", "device.capacity=128MiB"});
  ASSERT_EQ(counts.exit_code, kExitOk) << counts.err;
  EXPECT_EQ(json::parse(counts.out)["block_hits"], 2);  // as hits --policy lru of 2 blocks
}

TEST(CachesimProgram, ReplayNamesWhatIsWrongWithItsConfiguration) {
  const TempFolder folder;
  const std::string trace = folder.file("trace", kTrace);
  const std::string config = folder.file("sim.toml", "[host]\ncapcity = \"1GiB\"\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--config", config}, "the nearest key is host.capacity"},
      {{"--config", folder.path("nothing")}, "cannot be read"},
      {{"--set", "host.capacity"}, "section.key=value"},
      {{"--set", "host.capacity=1"}, "a size needs a unit"},
      {{"--set", "device.capacity=1KiB"}, "less than one block"},
      {{"--set", "compute.gpu=abacus"}, "no table for abacus"}};
  for (const auto& [arguments, expected] : wrong) {
    std::vector<std::string> whole = {"replay", trace};
    whole.insert(whole.end(), arguments.begin(), arguments.end());
    const ProgramResult run = cachesim(whole);
    SCOPED_TRACE(expected);
    EXPECT_EQ(run.exit_code, kExitUsage);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  }
}

TEST(CachesimProgram, SweepHasARowForEachCombination) {
  const TempFolder folder;
  const std::string trace = folder.file("trace", kTrace);
  const ProgramResult run = cachesim({"sweep", trace, "--vary", "device.capacity=128MiB,256MiB",
                                      "arrivals.speed=1,2", "--set", "run.mode=counts", "--json"});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  const json rows = json::parse(run.out)["rows"];
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0]["settings"], (json{{"device.capacity", "128MiB"}, {"arrivals.speed", "1"}}));
  EXPECT_EQ(rows[1]["settings"], (json{{"device.capacity", "128MiB"}, {"arrivals.speed", "2"}}));
  EXPECT_EQ(rows[0]["report"]["block_hits"], 2);  // as hits of lru with 2 and with 4 blocks
  EXPECT_EQ(rows[3]["report"]["block_hits"], 4);
  for (const auto& [variation, expected] : std::vector<std::pair<std::string, std::string>>{
           {"host.capacity", "varies nothing"},
           {"host.capcity=0,1GiB", "the nearest key is host.capacity"},
           {"device.capacity=1GiB,1B", "less than one block"}}) {
    const ProgramResult wrong = cachesim({"sweep", trace, "--vary", variation});
    EXPECT_EQ(wrong.exit_code, kExitUsage);
    EXPECT_EQ(wrong.out, "");
    EXPECT_NE(wrong.err.find(expected), std::string::npos) << wrong.err;
  }
}

TEST(CachesimProgram, PrintsTheSameBytesEveryTime) {
  const TempFolder folder;
  const std::string path = folder.file("trace", kTrace);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info", path},
        {"hits", path, "--policy", "lru", "arc", "s3fifo", "gdsf", "lfu-da", "--capacity-blocks",
         "3"},
        {"replay", path, "--set", "host.capacity=1GiB"},
        {"sweep", path, "--vary", "host.capacity=0,1GiB,2GiB,3GiB", "--jobs", "3"},
        {"replay", path, "--json", "--set", "instance.count=2", "instance.router=random"}}) {
    const ProgramResult first = cachesim(arguments);
    const ProgramResult second = cachesim(arguments);
    EXPECT_EQ(first.exit_code, kExitOk) << first.err;
    EXPECT_FALSE(first.out.empty());
    EXPECT_EQ(first.out, second.out);
  }
}

TEST(CachesimProgram, LeavesBrokenLinesOutOrStopsAtTheFirst) {
  const TempFolder folder;
  const std::string path = folder.file("trace", std::string(kTrace) + "{\n" + kTrace);
  const ProgramResult run = cachesim({"info", path, "--json"});
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_EQ(json::parse(run.out)["broken_lines"], 1);
  EXPECT_NE(run.err.find("1 broken lines left out, the first is line 4: no JSON object"),
            std::string::npos)
      << run.err;
  const ProgramResult strict = cachesim({"info", path, "--strict"});
  EXPECT_EQ(strict.exit_code, kExitFailed);
  EXPECT_EQ(strict.out, "");
  EXPECT_NE(strict.err.find("line 4: no JSON object"), std::string::npos) << strict.err;
}

TEST(CachesimProgram, FailsOnTracesThatItCannotUse) {
  const TempFolder folder;
  const std::string azure = folder.file("azure",
                                        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                        "2023-11-16 18:17:03.9799600,4808,10\n");
  EXPECT_EQ(cachesim({"info", azure}).exit_code, kExitOk);
  const ProgramResult replayed = cachesim({"replay", azure});
  EXPECT_EQ(replayed.exit_code, kExitFailed);
  EXPECT_NE(replayed.err.find("blocks of one size"), std::string::npos) << replayed.err;
  const ProgramResult hits = cachesim({"hits", azure, "--capacity-blocks", "5"});
  EXPECT_EQ(hits.exit_code, kExitFailed);
  EXPECT_NE(hits.err.find("sizes only"), std::string::npos) << hits.err;
  for (const std::string& path : {folder.file("empty", ""), folder.file("text", "hello\n")}) {
    const ProgramResult run = cachesim({"info", path});
    EXPECT_EQ(run.exit_code, kExitFailed);
    EXPECT_TRUE(run.err.starts_with("error: " + path)) << run.err;
  }
}

TEST(CachesimProgram, NamesWhatIsWrongWithTheCommandLine) {
  const TempFolder folder;
  const std::string path = folder.file("trace", kTrace);
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{}, "name a command"},
      {{"hit"}, "info, hits, replay, sweep"},
      {{"info"}, "FILE"},
      {{"info", folder.path("nothing")}, "nothing"},
      {{"hits", path}, "--capacity-blocks"},
      {{"hits", path, "--capacity-blocks", "0"}, "is no capacity"},
      {{"hits", path, "--capacity-blocks", "101%"}, "is no capacity"},
      {{"hits", path, "--capacity-blocks", "5", "--policy", "mru"}, "no policy 'mru'"},
      {{"info", path, "--format", "csv"}, "csv"}};
  for (const auto& [arguments, expected] : wrong) {
    const ProgramResult run = cachesim(arguments);
    SCOPED_TRACE(expected);
    EXPECT_EQ(run.exit_code, kExitUsage);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  }
}

TEST(CachesimProgram, HelpNamesEveryPolicyAndHasExamples) {
  const ProgramResult run = cachesim({"hits", "--help"});
  EXPECT_EQ(run.exit_code, kExitOk);
  for (const char* word : {"lru", "arc", "s3fifo", "gdsf", "lfu-da", "min_bypass", "sieve_flat",
                           "Examples:", "Exit codes:"}) {
    EXPECT_NE(run.out.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(cachesim({"--help"}).exit_code, kExitOk);
  EXPECT_NE(cachesim({"replay", "--help"}).out.find("host.load_bandwidth"), std::string::npos);
}

TEST(Capacity, IsBlocksOrAShareOfTheUniqueOnes) {
  const auto of = [](const std::string& text) {
    const auto capacity = parse_capacity(text);
    return capacity ? capacity->of(1'000) : 0;
  };
  EXPECT_EQ(of("17"), 17U);
  EXPECT_EQ(of("5%"), 50U);
  EXPECT_EQ(of("0.19%"), 1U);
  EXPECT_EQ(of("0.0001%"), 1U);
  EXPECT_EQ(of("100%"), 1'000U);
  for (const char* text :
       {"", "%", "-1", "0", "0%", "-5%", "1e9", "5 %", "5%%", "x", "4294967296"}) {
    EXPECT_FALSE(parse_capacity(text)) << text;
  }
}

}  // namespace
}  // namespace kv::cachesim
