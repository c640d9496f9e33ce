// What every program says about a command line that it cannot take.
#include "cachesvc/program/usage_error.h"

#include <vector>

#include <gtest/gtest.h>

namespace kv::program {
namespace {

std::string said(std::vector<const char*> arguments) {
  CLI::App app("A program.", "prog");
  app.require_subcommand(1);
  app.add_flag("--json");
  app.add_subcommand("one", "first");
  app.add_subcommand("more", "with commands of its own")
      ->require_subcommand(1)
      ->add_subcommand("inner", "the only one");
  CLI::App* two = app.add_subcommand("two", "second");
  int number = 0;
  two->add_option("--number", number)->check([](const std::string&) { return "is\nwrong"; });
  arguments.insert(arguments.begin(), "prog");
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::Error& error) {
    return usage_error_text(app, error);
  }
  return "nothing";
}

TEST(UsageError, NamesTheCommandsWhenNoneIsThere) {
  EXPECT_EQ(said({}), "name a command: one, more, two; see prog --help");
  EXPECT_EQ(said({"--json"}), "name a command: one, more, two; see prog --help");
}

TEST(UsageError, NamesWhatIsNotKnownAndTheHelpOfTheCommandThatWasReached) {
  EXPECT_EQ(said({"three"}), "unknown command three; commands: one, more, two; see prog --help");
  EXPECT_EQ(said({"--four"}), "unknown option --four; see prog --help");
  EXPECT_EQ(said({"one", "--four"}), "unknown option --four; see prog one --help");
  EXPECT_EQ(said({"one", "five"}), "unexpected argument five; see prog one --help");
}

TEST(UsageError, NamesTheCommandsOfACommand) {
  EXPECT_EQ(said({"more"}), "name a command: inner; see prog more --help");
  EXPECT_EQ(said({"more", "four"}),
            "unknown command more four; commands: inner; see prog more --help");
}

TEST(UsageError, SaysWhatTheParserSaidOnOneLine) {
  EXPECT_EQ(said({"two", "--number", "6"}), "--number: is wrong; see prog two --help");
}

}  // namespace
}  // namespace kv::program
