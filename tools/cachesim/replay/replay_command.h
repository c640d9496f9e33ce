// The command `replay`, and what `sweep` shares with it. Owner: main. Threads: none.
#pragma once

#include <optional>

#include "tools/cachesim/command_line.h"
#include "tools/cachesim/progress.h"
#include "tools/cachesim/replay/replay.h"
#include "tools/cachesim/replay/sim_config.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

// False, and said so: the trace has not what a replay needs.
bool can_replay(const CommandLine& line, const Trace& trace);
// The command line's configuration with these settings; nullopt, and said why: it cannot be.
std::optional<ReplayOptions> replay_options(const CommandLine& line, const Settings& settings,
                                            const Trace& trace);

// Returns the exit code; prints the report, or what is wrong.
int run_replay(const CommandLine& line, Progress& progress, const Trace& trace);

}  // namespace kv::cachesim
