#include "tools/cachectl/command_line.h"

#include <vector>

#include <gtest/gtest.h>

#include "tools/cachectl/exit_code.h"

namespace kv::cachectl {
namespace {

std::variant<CommandLine, Ending> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "cachectl");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

CommandLine good(const std::vector<const char*>& arguments) {
  const auto parsed = parse(arguments);
  const auto* ending = std::get_if<Ending>(&parsed);
  EXPECT_EQ(ending, nullptr) << ending->text;
  return ending == nullptr ? std::get<CommandLine>(parsed) : CommandLine();
}

TEST(CommandLine, TakesGlobalOptionsBeforeAndAfterTheCommand) {
  for (const auto& line : {good({"--dir", "/d", "--json", "--timeout", "250ms", "flush"}),
                           good({"flush", "--json", "--dir", "/d", "--timeout", "250ms"})}) {
    EXPECT_EQ(line.command, Command::flush);
    EXPECT_EQ(line.dir, "/d");
    EXPECT_TRUE(line.json);
    EXPECT_EQ(line.timeout, std::chrono::milliseconds(250));
  }
}

TEST(CommandLine, ReadsEveryCommand) {
  EXPECT_EQ(good({"status"}).command, Command::status);
  EXPECT_EQ(good({"status", "--watch", "2s"}).watch, std::chrono::seconds(2));
  EXPECT_EQ(good({"tree"}).node_limit, 1'000U);
  EXPECT_EQ(good({"tree", "--limit", "7"}).node_limit, 7U);
  EXPECT_EQ(good({"demote", "--tier", "device"}).tier, Tier::device);
  EXPECT_EQ(good({"demote", "--tier", "host"}).tier, Tier::host);
  const auto lookup =
      good({"lookup", "--namespace-weights", "w", "--namespace-config", "c", "--namespace-salt",
            "s", "--tokens", "1,2", "--require-hit-tokens", "16"});
  EXPECT_EQ(lookup.command, Command::lookup);
  EXPECT_EQ(lookup.weights, "w");
  EXPECT_EQ(lookup.model_config, "c");
  EXPECT_EQ(lookup.salt, "s");
  EXPECT_EQ(lookup.tokens, "1,2");
  EXPECT_EQ(lookup.required_hit_tokens, 16U);
  EXPECT_EQ(good({"lookup", "--model", "m", "--prompt", ""}).prompt, "");
  const auto why = good({"why", "--namespace-weights", "w", "--tokens", "3,4"});
  EXPECT_EQ(why.command, Command::why);
  EXPECT_EQ(why.weights, "w");
  EXPECT_EQ(why.tokens, "3,4");
  const auto clear = good({"clear", "--yes"});
  EXPECT_EQ(clear.command, Command::clear);
  EXPECT_EQ(clear.cleared_tier, std::nullopt);
  EXPECT_EQ(clear.epoch, std::nullopt);
  EXPECT_FALSE(clear.has_namespace());
  EXPECT_EQ(good({"clear", "--tier", "disk", "--yes"}).cleared_tier, Tier::disk);
  EXPECT_EQ(good({"clear", "--namespace-weights", "w", "--epoch", "7", "--yes"}).epoch, 7U);
  EXPECT_TRUE(good({"clear", "--model", "m", "--tier", "host", "--yes"}).has_namespace());
  EXPECT_EQ(good({"lookup", "--model", "m", "--prompt-tokens", "5"}).tokens, "5");
}

TEST(CommandLine, AnswersAMistakeWithOneLineAndTheUsageCode) {
  const std::vector<std::vector<const char*>> mistakes{
      {},
      {"statsu"},
      {"clear"},
      {"clear", "--tier", "remote", "--yes"},
      {"clear", "--epoch", "7", "--yes"},
      {"clear", "--namespace-salt", "s", "--yes"},
      {"clear", "--model", "m", "--tier", "host", "--epoch", "7", "--yes"},
      {"clear", "--model", "m", "--namespace-weights", "w", "--yes"},
      {"status", "--watch", "2"},
      {"status", "--timeout", "0s"},
      {"demote"},
      {"demote", "--tier", "disk"},
      {"tree", "--limit", "0"},
      {"tree", "--limit", "1001"},
      {"lookup", "--tokens", "1"},
      {"why", "--tokens", "1"},
      {"why", "--model", "m"},
      {"lookup", "--model", "m"},
      {"lookup", "--model", "m", "--namespace-weights", "w", "--tokens", "1"},
      {"lookup", "--namespace-weights", "w", "--prompt", "text"},
      {"lookup", "--model", "m", "--prompt", "text", "--tokens", "1"},
      {"--dir", "d", "--endpoint", "ipc://e", "status"},
      {"status", "extra"}};
  for (const auto& arguments : mistakes) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const auto parsed = parse(arguments);
    const auto* ending = std::get_if<Ending>(&parsed);
    ASSERT_NE(ending, nullptr);
    EXPECT_EQ(ending->exit_code, kExitUsage);
    EXPECT_TRUE(ending->text.starts_with("error: "));
    EXPECT_NE(ending->text.find("; see cachectl "), std::string::npos) << ending->text;
    EXPECT_TRUE(ending->text.ends_with("--help")) << ending->text;
    EXPECT_EQ(ending->text.find('\n'), std::string::npos);
  }
}

// What an ending says to a person; empty for a command line that is fine.
std::string said(const std::vector<const char*>& arguments) {
  const auto parsed = parse(arguments);
  const auto* ending = std::get_if<Ending>(&parsed);
  return ending == nullptr ? std::string() : ending->text;
}

TEST(CommandLine, NamesWhatItDoesNotKnowAndTheHelpToLookAt) {
  const std::string commands = "status, lookup, why, tree, demote, flush, clear";
  EXPECT_EQ(said({"statsu"}),
            "error: unknown command statsu; commands: " + commands + "; see cachectl --help");
  EXPECT_EQ(said({"--json"}), "error: name a command: " + commands + "; see cachectl --help");
  EXPECT_EQ(said({"--bogus", "status"}),
            "error: unknown option --bogus; see cachectl status --help");
  EXPECT_EQ(said({"tree", "x"}), "error: unexpected argument x; see cachectl tree --help");
  EXPECT_EQ(said({"demote"}), "error: --tier is required; see cachectl demote --help");
}

TEST(CommandLine, PrintsItsVersion) { EXPECT_EQ(said({"--version"}), "cachectl " KV_VERSION "\n"); }

TEST(CommandLine, SaysThatEpochsBeginAgainWithTheService) {
  EXPECT_NE(said({"clear", "--help"}).find("begin again at 0 when the service restarts"),
            std::string::npos);
}

TEST(CommandLine, SaysThatOnlyIpcEndpointsAreServed) {
  for (const char* endpoint : {"tcp://localhost:5555", "5555", "/path/service.sock", "ipc://"}) {
    const std::string text = said({"--endpoint", endpoint, "status"});
    EXPECT_NE(text.find("only ipc:// endpoints are served: write ipc:///path/service.sock"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find(endpoint), std::string::npos) << text;
  }
}

TEST(CommandLine, TakesOnlyCountsThatSayWhatTheyAre) {
  for (const char* count : {"-1", "-18446744073709551615", "+1", "0x10", "1e3", "1.5", " 1", "ten",
                            "18446744073709551615", "9223372036854775808"}) {
    SCOPED_TRACE(count);
    const auto epoch = said({"clear", "--model", "m", "--yes", "--epoch", count});
    EXPECT_NE(epoch.find("--epoch: '" + std::string(count) +
                         "': give a whole number from 0 to 9223372036854775807"),
              std::string::npos)
        << epoch;
    const auto hits =
        said({"lookup", "--model", "m", "--prompt", "p", "--require-hit-tokens", count});
    EXPECT_NE(hits.find("give a whole number from 0 to 65536"), std::string::npos) << hits;
    EXPECT_NE(said({"tree", "--limit", count}).find("from 1 to 1000"), std::string::npos);
  }
  EXPECT_EQ(good({"clear", "--model", "m", "--yes", "--epoch", "9223372036854775807"}).epoch,
            9'223'372'036'854'775'807U);
}

// An empty one, of a variable that is not set, would mean the default service or all namespaces.
TEST(CommandLine, TakesNoEmptyNameOfAServiceOrANamespace) {
  const std::vector<std::vector<const char*>> empty{
      {"--dir", "", "clear", "--yes"},
      {"--endpoint", "", "clear", "--yes"},
      {"clear", "--yes", "--model", ""},
      {"clear", "--yes", "--namespace-weights", ""},
      {"lookup", "--namespace-weights", "", "--tokens", "1"}};
  for (const auto& arguments : empty) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const auto parsed = parse(arguments);
    const auto* ending = std::get_if<Ending>(&parsed);
    ASSERT_NE(ending, nullptr);
    EXPECT_EQ(ending->exit_code, kExitUsage);
    EXPECT_NE(ending->text.find("is empty: give a value, or leave it out"), std::string::npos)
        << ending->text;
  }
}

TEST(CommandLine, SaysTheLeastAndTheLargestTime) {
  for (const char* time : {"0s", "1us", "61m"}) {
    const std::string text = said({"status", "--watch", time});
    EXPECT_NE(text.find("from 1ms to 1h"), std::string::npos) << text;
  }
}

TEST(CommandLine, HelpsEveryCommandWithItsOwnExamplesOnly) {
  const std::vector<const char*> commands{"status", "lookup", "why", "tree", "demote", "flush"};
  const std::string all = said({"--help"});
  for (const char* command : commands) {
    const std::string example = std::string("  cachectl ") + command;
    EXPECT_NE(all.find(example), std::string::npos) << command;
    const std::string text = said({command, "--help"});
    EXPECT_NE(text.find("Exit codes:"), std::string::npos) << command;
    for (const char* other : commands) {
      const std::string wanted = std::string("  cachectl ") + other;
      EXPECT_EQ(text.find(wanted) != std::string::npos, other == command) << command << other;
    }
  }
}

TEST(CommandLine, ExplainsTheWordsOfStatus) {
  const std::string text = said({"status", "--help"});
  for (const char* word : {"held", "fenced", "pinned", "evictable", "holes", "rewritten", "adopted",
                           "duplicate", "remote"}) {
    EXPECT_NE(text.find(std::string("\n  ") + word + " "), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace kv::cachectl
