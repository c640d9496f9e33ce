// Variation: a setting and the values that it takes from row to row of a sweep. Owner: values only.
// Threads: none. Cost: O(text), O(combinations).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/cachesim/replay/sim_config.h"

namespace kv::cachesim {

struct Variation {
  std::string key;  // section.key
  std::vector<std::string> values;
};
// "host.capacity=0,256GiB,1TiB"; nullopt: not of this form, or a value is empty.
[[nodiscard]] std::optional<Variation> parse_variation(const std::string& text);

inline constexpr std::size_t kSweepPointsMax = 10'000;

// All combinations, the last variation's values changing fastest. Without any: one, empty.
[[nodiscard]] std::vector<Settings> combinations(const std::vector<Variation>& variations);

}  // namespace kv::cachesim
