// What the shell asks of the kernel and the core may not: the time since boot, and random bytes.
// Owner: free functions. Threads: any. Cost: one system call at most.
#pragma once

#include <cstdint>

#include "allocator/base/time_point.h"
#include "cachesvc/wire/id128.h"

namespace kv::shell {

// CLOCK_BOOTTIME: never goes back, goes on while the machine sleeps, is not set by people.
[[nodiscard]] TimePoint boot_time_now();

// From getrandom: boot ids, secrets, seeds. Stops the process when the kernel has none to give.
[[nodiscard]] codec::Id128 random_id();

}  // namespace kv::shell
