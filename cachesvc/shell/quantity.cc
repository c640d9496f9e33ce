#include "cachesvc/shell/quantity.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <span>

namespace kv::shell {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// Small to large.
constexpr std::array<Unit, 5> kByteUnits = {{{"B", 1},
                                             {"KiB", std::uint64_t{1} << 10U},
                                             {"MiB", std::uint64_t{1} << 20U},
                                             {"GiB", std::uint64_t{1} << 30U},
                                             {"TiB", std::uint64_t{1} << 40U}}};
constexpr std::array<Unit, 6> kTimeUnits = {{{"ns", 1},
                                             {"us", 1'000},
                                             {"ms", 1'000'000},
                                             {"s", 1'000'000'000},
                                             {"m", 60'000'000'000},
                                             {"h", 3'600'000'000'000}}};

std::string format_quantity(std::uint64_t value, std::span<const Unit> units);

struct Texts {
  std::string_view no_unit;
  std::string_view unknown_unit;
};
constexpr Texts kByteTexts = {"a size needs a unit (B, KiB, MiB, GiB, TiB)",
                              "unknown unit of a size (known: B, KiB, MiB, GiB, TiB)"};
constexpr Texts kTimeTexts = {"a duration needs a unit (ns, us, ms, s, m, h)",
                              "unknown unit of a duration (known: ns, us, ms, s, m, h)"};

Result<std::uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units,
                                     const Texts& texts, std::uint64_t limit) {
  std::uint64_t number = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc::result_out_of_range) return Error{ErrorCode::too_large, "too large", {}};
  if (code != std::errc()) return Error{ErrorCode::invalid, "does not start with a number", {}};
  const std::string_view unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  if (unit.empty()) {
    if (number == 0) return std::uint64_t{0};
    return Error{ErrorCode::invalid, texts.no_unit, {}};
  }
  if (unit.front() == '.') return Error{ErrorCode::invalid, "must be a whole number", {}};
  for (const Unit& known : units) {
    if (known.name != unit) continue;
    if (number > limit / known.factor) return Error{ErrorCode::too_large, "too large", {}};
    return number * known.factor;
  }
  return Error{ErrorCode::invalid, texts.unknown_unit, {}};
}

struct Spelling {
  std::string_view spelled, unit;
};
// Powers of ten are not served: whoever writes GB mostly means GiB.
constexpr std::array<Spelling, 14> kByteSpellings = {{{"byte", "B"},
                                                      {"bytes", "B"},
                                                      {"b", "B"},
                                                      {"k", "KiB"},
                                                      {"kb", "KiB"},
                                                      {"kib", "KiB"},
                                                      {"m", "MiB"},
                                                      {"mb", "MiB"},
                                                      {"mib", "MiB"},
                                                      {"g", "GiB"},
                                                      {"gb", "GiB"},
                                                      {"gib", "GiB"},
                                                      {"tb", "TiB"},
                                                      {"tib", "TiB"}}};
constexpr std::array<Spelling, 13> kTimeSpellings = {{{"ns", "ns"},
                                                      {"us", "us"},
                                                      {"ms", "ms"},
                                                      {"msec", "ms"},
                                                      {"s", "s"},
                                                      {"sec", "s"},
                                                      {"second", "s"},
                                                      {"seconds", "s"},
                                                      {"m", "m"},
                                                      {"min", "m"},
                                                      {"minutes", "m"},
                                                      {"h", "h"},
                                                      {"hours", "h"}}};

// "1.25" in units of `factor`; none when that is no whole number or too large.
std::optional<std::uint64_t> whole(std::string_view text, std::uint64_t factor) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 50U;
  std::uint64_t value = 0;
  std::uint64_t parts = 1;  // of one unit
  bool is_fraction = false;
  for (const char letter : text) {
    if (letter == '.' && !is_fraction) {
      is_fraction = true;
      continue;
    }
    if (letter < '0' || letter > '9' || value > kLimit || parts > 1'000'000) return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(letter - '0');
    if (is_fraction) parts *= 10;
  }
  if (value > std::numeric_limits<std::uint64_t>::max() / factor) return std::nullopt;
  if (value * factor % parts != 0) return std::nullopt;
  return value * factor / parts;
}

std::string meant_quantity(std::string_view text, std::span<const Unit> units,
                           std::span<const Spelling> spellings) {
  std::string number;
  std::string unit;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == ' ') continue;
    if (std::isalpha(byte) != 0) {
      unit += static_cast<char>(std::tolower(byte));
    } else if (unit.empty()) {
      number += letter;
    } else {
      return {};
    }
  }
  const auto spelling = std::ranges::find(spellings, unit, &Spelling::spelled);
  if (number.empty() || number == "." || spelling == spellings.end()) return {};
  const auto known = std::ranges::find(units, spelling->unit, &Unit::name);
  const auto value = whole(number, known->factor);
  return value ? format_quantity(*value, units) : std::string();
}

std::string format_quantity(std::uint64_t value, std::span<const Unit> units) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < units.size() && value != 0; ++i) {
    if (value % units[i].factor == 0) best = i;
  }
  return std::to_string(value / units[best].factor) + std::string(units[best].name);
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  return parse_quantity(text, kByteUnits, kByteTexts, std::numeric_limits<std::uint64_t>::max());
}

Result<Duration> parse_duration(std::string_view text) {
  constexpr auto kLimit = static_cast<std::uint64_t>(Duration::max().count());
  KV_TRY(const std::uint64_t count, parse_quantity(text, kTimeUnits, kTimeTexts, kLimit));
  return Duration(static_cast<Duration::rep>(count));
}

Result<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t number = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc::result_out_of_range) return Error{ErrorCode::too_large, "too large", {}};
  if (code != std::errc() || rest != text.data() + text.size()) {
    return Error{ErrorCode::invalid, "must be a whole number", {}};
  }
  return number;
}

std::string format_bytes(std::uint64_t bytes) { return format_quantity(bytes, kByteUnits); }

std::string round_bytes(std::uint64_t bytes) {
  std::size_t best = 0;
  while (best + 1 < kByteUnits.size() && bytes >= kByteUnits[best + 1].factor) ++best;
  const std::uint64_t factor = kByteUnits[best].factor;
  // Downwards, so that nothing is written as 1024.0 of a unit.
  const std::uint64_t tenths = bytes % factor * 10 / factor;
  return std::to_string(bytes / factor) + (best == 0 ? "" : "." + std::to_string(tenths)) +
         std::string(kByteUnits[best].name);
}

std::string format_duration(Duration duration) {
  return format_quantity(static_cast<std::uint64_t>(duration.count()), kTimeUnits);
}

std::string meant_bytes(std::string_view text) {
  return meant_quantity(text, kByteUnits, kByteSpellings);
}

std::string meant_duration(std::string_view text) {
  return meant_quantity(text, kTimeUnits, kTimeSpellings);
}

}  // namespace kv::shell
