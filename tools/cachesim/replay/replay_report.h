// ReplayReport: the numbers of a replay, as one JSON value and as a table of the same. Owner: the
// command. Threads: none. Cost: O(requests log requests).
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "allocator/base/result.h"
#include "tools/cachesim/replay/replay.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

// Whole numbers but for ratios; times in nanoseconds of the run's own clock.
[[nodiscard]] nlohmann::ordered_json report_json(const Trace& trace, const ReplayOptions& options,
                                                 const ReplayOutcome& outcome);
[[nodiscard]] std::string report_text(const nlohmann::ordered_json& report);

// Every token of every prompt is a hit, computed or refused, and the Engine counted the same hits.
// fails: corrupt; never, as long as this program is right.
[[nodiscard]] Result<void> check_conservation(const Trace& trace, const ReplayOutcome& outcome);

}  // namespace kv::cachesim
