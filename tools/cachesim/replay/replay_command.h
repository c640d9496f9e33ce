// The command `replay`. Owner: main. Threads: none.
#pragma once

#include <functional>
#include <string>

#include "tools/cachesim/command_line.h"
#include "tools/cachesim/progress.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

// Returns the exit code; prints the report, or what is wrong.
int run_replay(const CommandLine& line, Progress& progress, const Trace& trace);

}  // namespace kv::cachesim
