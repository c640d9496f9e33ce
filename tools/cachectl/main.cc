// cachectl: looks into a running service, and moves what it holds (README).
#include <cstdio>
#include <exception>
#include <variant>

#include "cachesvc/program/standard_streams.h"
#include "tools/cachectl/command_line.h"
#include "tools/cachectl/commands.h"
#include "tools/cachectl/exit_code.h"

namespace kv::cachectl {
namespace {

int parse_and_run(int argc, char** argv) {
  const auto parsed = parse_command_line(argc, argv);
  if (const auto* ending = std::get_if<Ending>(&parsed)) {
    std::FILE* to = ending->exit_code == kExitOk ? stdout : stderr;
    std::fprintf(to, "%s%s", ending->text.c_str(), ending->text.ends_with('\n') ? "" : "\n");
    return ending->exit_code;
  }
  return run(std::get<CommandLine>(parsed));
}

}  // namespace
}  // namespace kv::cachectl

int main(int argc, char** argv) {
  kv::program::keep_standard_streams();
  try {
    return kv::program::finish_output(kv::cachectl::parse_and_run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s; please report this\n", error.what());
    return kv::cachectl::kExitFailed;
  }
}
