#include "plugins/runner/arguments.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace kv::runner {

Result<std::vector<Token>> parse_tokens(std::string_view text) {
  constexpr Error kInvalid{ErrorCode::invalid, "give token ids below 2^32, as in 1,403,407", {}};
  constexpr std::string_view kSpaces = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
  std::vector<Token> tokens;
  while (true) {
    Token token = 0;
    const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (failed != std::errc()) return kInvalid;
    tokens.push_back(token);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    if (text.empty()) return tokens;
    const auto next = std::min(text.find_first_not_of(" \t\r\n,"), text.size());
    if (next == 0 || std::ranges::count(text.substr(0, next), ',') > 1) return kInvalid;
    text.remove_prefix(next);
  }
}

Result<std::vector<Token>> read_tokens(const std::string& text) {
  if (!text.starts_with('@')) return parse_tokens(text);
  const std::string name = text.substr(1);
  std::error_code ignored;
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name, ignored)) {
    return Error{ErrorCode::not_found, "the file cannot be read; check the path", {}};
  }
  const std::string content(std::istreambuf_iterator<char>(file), {});
  return parse_tokens(content);
}

Result<std::chrono::milliseconds> parse_time(std::string_view text) {
  constexpr Error kInvalid{
      ErrorCode::invalid, "a time needs a number and a unit: 250ms, 5s, 2m", {}};
  constexpr std::uint64_t kHour = 3'600'000;
  std::uint64_t count = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed != std::errc()) return kInvalid;
  const std::string_view unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  const std::uint64_t scale = unit == "ms" ? 1 : unit == "s" ? 1'000 : unit == "m" ? 60'000 : 0;
  if (scale == 0 || count == 0 || count > kHour / scale) return kInvalid;
  return std::chrono::milliseconds(count * scale);
}

}  // namespace kv::runner
