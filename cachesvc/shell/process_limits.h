// What the system allows this process, looked at before anything is made: libraries meet the end of
// descriptors and of memory with abort(), and a file that grows over its limit ends the process.
// Owner: serve. Threads: the main thread, before all others. Cost: a few system calls.
#pragma once

#include <optional>

#include "cachesvc/shell/config.h"
#include "cachesvc/shell/service_dir.h"

namespace kv::shell {

// Raises the soft limit of descriptors to the hard one. A problem when that is too low to start.
[[nodiscard]] std::optional<StartProblem> settle_descriptors();

// Makes writing over the limit of file sizes an error of that write. A problem when the tiers of
// this configuration do not fit the limits of file sizes and memory.
[[nodiscard]] std::optional<StartProblem> settle_memory(const Config& config);

}  // namespace kv::shell
