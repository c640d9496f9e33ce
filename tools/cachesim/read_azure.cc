// Azure LLM inference traces: CSV of TIMESTAMP,ContextTokens,GeneratedTokens. No identity of
// content: arrivals and lengths only.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>

#include "tools/cachesim/trace_reader.h"

namespace kv::cachesim {
namespace {

template <class T>
std::optional<T> number(std::string_view text) {
  T value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "2023-11-16 18:17:03.9799600", as milliseconds since 1970.
std::optional<std::uint64_t> parse_time(std::string_view text) {
  constexpr std::size_t kWholeSeconds = 19;
  if (text.size() < kWholeSeconds || text[4] != '-' || text[7] != '-' || text[10] != ' ' ||
      text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const auto year = number<int>(text.substr(0, 4));
  const auto month = number<unsigned>(text.substr(5, 2));
  const auto day = number<unsigned>(text.substr(8, 2));
  const auto hour = number<unsigned>(text.substr(11, 2));
  const auto minute = number<unsigned>(text.substr(14, 2));
  const auto second = number<unsigned>(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month),
                                         std::chrono::day(*day)};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  unsigned milliseconds = 0;
  if (text.size() > kWholeSeconds) {
    if (text[kWholeSeconds] != '.') return std::nullopt;
    std::string digits(text.substr(kWholeSeconds + 1));
    digits.resize(std::max<std::size_t>(digits.size(), 3), '0');
    const auto all = number<std::uint64_t>(digits);
    const auto first = number<unsigned>(std::string_view(digits).substr(0, 3));
    if (!all || !first) return std::nullopt;
    milliseconds = *first;
  }
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  if (days < 0) return std::nullopt;
  return ((static_cast<std::uint64_t>(days) * 24 + *hour) * 60 + *minute) * 60'000 +
         std::uint64_t{*second} * 1000 + milliseconds;
}

class AzureReader {
 public:
  explicit AzureReader(Reading& reading) : reading_(reading) {}

  LineVerdict take(std::string_view line) {
    if (line.starts_with("TIMESTAMP,")) return {};
    const std::size_t first = line.find(',');
    const std::size_t second = first == std::string_view::npos ? first : line.find(',', first + 1);
    if (second == std::string_view::npos) return "not TIMESTAMP,ContextTokens,GeneratedTokens";
    const auto time = parse_time(line.substr(0, first));
    if (!time) return "TIMESTAMP is not a time";
    const auto input = number<std::uint32_t>(line.substr(first + 1, second - first - 1));
    const auto output = number<std::uint32_t>(line.substr(second + 1));
    if (!input || !output) return "a number of tokens is not a number";
    if (reading_.builder.trace().requests.empty()) start_ = *time;
    TraceRequest request;
    request.time_ms = *time < start_ ? 0 : *time - start_;
    request.input_tokens = *input;
    request.output_tokens = *output;
    if (!reading_.builder.add(request, {})) return "too many blocks";
    return {};
  }

 private:
  Reading& reading_;
  std::uint64_t start_ = 0;
};

}  // namespace

Result<void> read_azure(Reading& reading) {
  AzureReader reader(reading);
  return for_each_line(reading, [&](std::string_view line) { return reader.take(line); });
}

}  // namespace kv::cachesim
