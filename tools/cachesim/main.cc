// cachesim: the cache of the service on real traces (README).
#include <cstdio>
#include <exception>
#include <variant>

#include "tools/cachesim/command_line.h"
#include "tools/cachesim/commands.h"
#include "tools/cachesim/exit_code.h"

int main(int argc, char** argv) {
  using namespace kv::cachesim;
  try {
    const auto parsed = parse_command_line(argc, argv);
    if (const auto* ending = std::get_if<Ending>(&parsed)) {
      std::FILE* to = ending->exit_code == kExitOk ? stdout : stderr;
      std::fprintf(to, "%s%s", ending->text.c_str(), ending->text.ends_with('\n') ? "" : "\n");
      return ending->exit_code;
    }
    return run(std::get<CommandLine>(parsed));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s; please report this\n", error.what());
    return kExitFailed;
  }
}
