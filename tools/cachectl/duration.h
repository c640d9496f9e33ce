// parse_duration: times as people write them. Threads: any. Cost: O(1).
#pragma once

#include <chrono>
#include <string_view>

#include "allocator/base/result.h"

namespace kv::cachectl {

// A whole number and its unit: "250ms", "5s", "2m". fails: invalid (no unit, zero, over an hour).
[[nodiscard]] Result<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace kv::cachectl
