#include "tools/cachectl/duration.h"

#include <charconv>
#include <cstdint>

namespace kv::cachectl {

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr Error kInvalid{
      ErrorCode::invalid,
      "a time is a whole number and ms, s or m, from 1ms to 60m: 250ms, 5s, 2m",
      {}};
  constexpr std::uint64_t kHour = 3'600'000;
  std::uint64_t count = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed != std::errc()) return kInvalid;
  const std::string_view unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  const std::uint64_t scale = unit == "ms" ? 1 : unit == "s" ? 1'000 : unit == "m" ? 60'000 : 0;
  if (scale == 0 || count == 0 || count > kHour / scale) return kInvalid;
  return std::chrono::milliseconds(count * scale);
}

}  // namespace kv::cachectl
