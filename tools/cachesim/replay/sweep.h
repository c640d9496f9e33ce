// Sweep: a replay for each combination of some settings' values, several at one time.
// Owner: the command. Threads: its own workers; each replay runs on one, and nothing is shared but
// the trace, which is only read. Cost: a replay a point.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cachesim/replay/sim_config.h"
#include "tools/cachesim/replay/variation.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

struct SweepPoint {
  Settings settings;
  ReplayOptions options;
};
// Calls `done` for each point in their order, with its report, on the calling thread. `finished`
// is called there, too, whenever some have finished, in any order. Returns an error's reason, empty
// when there was none: a report that does not add up.
[[nodiscard]] std::string sweep(
    const Trace& trace, const std::vector<SweepPoint>& points, unsigned workers,
    const std::function<void(const SweepPoint& point, const nlohmann::ordered_json& report)>& done,
    const std::function<void(std::size_t count)>& finished = {});

}  // namespace kv::cachesim
