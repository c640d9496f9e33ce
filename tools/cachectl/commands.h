// Runs one command against a service. Owner: main. Threads: none. Cost: a few messages.
#pragma once

#include "tools/cachectl/command_line.h"

namespace kv::cachectl {

// Data goes to stdout, one line about an error to stderr. Returns the exit code.
[[nodiscard]] int run(const CommandLine& line);

}  // namespace kv::cachectl
