// The command `sweep`. Owner: main. Threads: as Sweep.
#pragma once

#include "tools/cachesim/command_line.h"
#include "tools/cachesim/progress.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

// Returns the exit code; prints a row for each combination, or what is wrong.
int run_sweep(const CommandLine& line, Progress& progress, const Trace& trace);

}  // namespace kv::cachesim
