// Machine: one service with its links, and the instance that works on it. Owner: replay. Threads:
// none. Cost: as its parts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tools/cachesim/replay/compute_model.h"
#include "tools/cachesim/replay/replay.h"
#include "tools/cachesim/replay/virtual_instance.h"
#include "tools/cachesim/replay/virtual_service.h"
#include "tools/cachesim/replay/wide.h"

namespace kv::cachesim {

class Machine {
 public:
  Machine(const ReplayOptions& options, const Trace& trace, const ComputeModel& compute,
          std::span<RequestResult> results);

  // Waits there until advance: whoever comes at the same moment is in the same queue.
  void arrive(TimePoint now, std::uint32_t request);
  [[nodiscard]] TimePoint next() const {
    return std::min({service_.next(), instance_.next(), arrived_});
  }
  void advance(TimePoint now);
  // Of the request's prompt, if it came here now.
  [[nodiscard]] std::uint64_t uncached_tokens(TimePoint now, std::uint32_t request) {
    return instance_.uncached_tokens(now, request);
  }

  [[nodiscard]] const VirtualInstance& instance() const { return instance_; }
  [[nodiscard]] const VirtualService& service() const { return service_; }
  // Slots in use up to `now`, over time.
  [[nodiscard]] std::array<TierUse, kTiers> use(TimePoint now) const;

 private:
  void account(TimePoint now);

  ReplayOptions options_;
  VirtualService service_;
  VirtualInstance instance_;
  TimePoint arrived_ = kNever;  // of requests that the instance has not looked at
  TimePoint accounted_{};
  std::array<std::uint32_t, kTiers> used_{}, used_max_{};
  std::array<Wide, kTiers> used_time_{};  // slots times nanoseconds
};

}  // namespace kv::cachesim
