// wait_milliseconds: the time until a deadline as poll takes it: rounded up, never negative or
// endless. Threads: any. Cost: one clock reading.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "plugins/client/session.h"

namespace kv::client {

[[nodiscard]] inline int wait_milliseconds(Deadline deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

}  // namespace kv::client
