// The commands of the program `cachesvc`, apart from its command line.
// Owner: main. Threads: the main thread. Exit codes: 0 ok, 1 failed, 2 usage (a configuration that
// cannot be served is one), 3 a check was not met.
#pragma once

#include <string>

#include "cachesvc/shell/config.h"

namespace kv::shell {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitCheck = 3;

// Sources of this process: its environment, working directory and memory.
[[nodiscard]] ConfigSources process_sources();

// Serves until SIGTERM, SIGINT or SIGHUP; SIGUSR1 and SIGUSR2 are ignored. Prints "ready
// endpoint=... dir=..." when clients can connect, and " disk=off reason=WORD" behind it when the
// configured disk tier cannot be used.
[[nodiscard]] int serve(const ConfigSources& sources);
[[nodiscard]] int show_config(const ConfigSources& sources, bool json);
[[nodiscard]] int check_config_command(const ConfigSources& sources, bool json);

}  // namespace kv::shell
