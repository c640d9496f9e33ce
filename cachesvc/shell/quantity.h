// Sizes and durations as people write them: a whole number and a unit, "64MiB", "10s". Zero needs
// none. Owner: values only. Threads: any. Cost: O(text).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/base/result.h"
#include "allocator/base/time_point.h"

namespace kv::shell {

// Units B, KiB, MiB, GiB, TiB. fails: invalid (the reason says what is missing), too_large.
[[nodiscard]] Result<std::uint64_t> parse_bytes(std::string_view text);
// Units ns, us, ms, s, m, h. fails: as parse_bytes.
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);
// A whole number without a unit. fails: invalid, too_large.
[[nodiscard]] Result<std::uint64_t> parse_count(std::string_view text);

// The same value in the largest unit that divides it: parse_bytes(format_bytes(n)) == n.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);
// For people: one decimal of the largest unit that is not above it, "31.3GiB".
[[nodiscard]] std::string round_bytes(std::uint64_t bytes);
[[nodiscard]] std::string format_duration(Duration duration);

// How to write what was meant by a text that is refused: "1GiB" for "1 GB", "1536MiB" for "1.5GiB",
// "10s" for "10 sec". Empty where that is not plain.
[[nodiscard]] std::string meant_bytes(std::string_view text);
[[nodiscard]] std::string meant_duration(std::string_view text);

}  // namespace kv::shell
