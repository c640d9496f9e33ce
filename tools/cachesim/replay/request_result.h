// RequestResult: what became of one request of the trace. Owner: Replay. Threads: none.
#pragma once

#include <array>
#include <cstdint>

#include "allocator/base/time_point.h"
#include "tools/cachesim/replay/event_queue.h"
#include "tools/cachesim/replay/virtual_service.h"

namespace kv::cachesim {

struct RequestResult {
  // In this order; kNever when it did not come to that.
  TimePoint arrival = kNever;
  TimePoint admitted = kNever;     // the cached prefix is known and pinned
  TimePoint ready = kNever;        // and on the device
  TimePoint first_token = kNever;  // the prompt is computed
  TimePoint end = kNever;
  std::uint32_t hit_blocks = 0;
  std::array<std::uint64_t, kTiers> hit_tokens{};  // by the tier that had them
  std::uint64_t computed_tokens = 0;               // of the prompt
  bool refused = false;                            // larger than the device tier
};

}  // namespace kv::cachesim
