// Runs one command. Owner: main. Threads: none.
#pragma once

#include "tools/cachesim/command_line.h"

namespace kv::cachesim {

// Data goes to stdout, one line about an error to stderr. Returns the exit code.
[[nodiscard]] int run(const CommandLine& line);

}  // namespace kv::cachesim
