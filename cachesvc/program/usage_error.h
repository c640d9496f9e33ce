// usage_error_text: what a program says about a command line that it cannot take: one line, in the
// same words in every program, with the help to look at. Owner: the caller. Threads: none. Cost:
// once.
#pragma once

#include <algorithm>
#include <string>

#include <CLI/CLI.hpp>

namespace kv::program {

// What is there and should not be is said before what is missing. requires: app has its name.
[[nodiscard]] inline std::string usage_error_text(const CLI::App& app, const CLI::Error& error) {
  std::string path;  // of the command that was reached: "lookup "
  const CLI::App* reached = &app;
  while (!reached->get_subcommands().empty()) {
    reached = reached->get_subcommands().front();
    path += reached->get_name() + " ";
  }
  std::string commands;
  for (const CLI::App* command : reached->get_subcommands([](const CLI::App*) { return true; })) {
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  }
  const auto unknown = app.remaining(true);
  std::string text = error.what();
  if (!unknown.empty()) {
    const std::string& first = unknown.front();
    text = first.starts_with('-') ? "unknown option " + first
           : commands.empty()     ? "unexpected argument " + first
                                  : "unknown command " + path + first + "; commands: " + commands;
  } else if (!commands.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    text = "name a command: " + commands;
  }
  std::ranges::replace(text, '\n', ' ');
  return text + "; see " + app.get_name() + " " + path + "--help";
}

}  // namespace kv::program
