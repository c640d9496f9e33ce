// What the exit code of cachesim says. Threads: none. Cost: none.
#pragma once

namespace kv::cachesim {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // the trace cannot be read, or not used for what was asked
inline constexpr int kExitUsage = 2;

}  // namespace kv::cachesim
