// A clock type without now(): pure code cannot read time, it is told.
#pragma once

#include <chrono>

namespace kv {

struct EngineClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<EngineClock>;
};
using TimePoint = EngineClock::time_point;
using Duration = EngineClock::duration;

}  // namespace kv
