// What the exit code of cachectl says. Threads: none. Cost: none.
#pragma once

namespace kv::cachectl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // failed, or the service cannot be reached
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotMet = 3;  // a check that was asked for was not met

}  // namespace kv::cachectl
