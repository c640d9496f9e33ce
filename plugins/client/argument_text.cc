#include "plugins/client/argument_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

namespace kv::client {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

// A device or a pipe that never ends must not fill the memory.
Result<std::string> read_bounded(std::istream& stream) {
  constexpr std::size_t kBytesMax = std::size_t{64} << 20U;
  constexpr std::size_t kPart = std::size_t{64} << 10U;
  std::string content;
  while (stream) {
    const std::size_t before = content.size();
    content.resize(before + kPart);
    stream.read(content.data() + before, static_cast<std::streamsize>(kPart));
    content.resize(before + static_cast<std::size_t>(stream.gcount()));
    if (content.size() > kBytesMax) {
      return Error{ErrorCode::too_large, "a file of tokens has at most 64 MiB", {}};
    }
  }
  return content;
}

Result<std::string> read_file(const std::string& name) {
  if (name == "-") return read_bounded(std::cin);
  std::error_code ignored;
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name, ignored)) {
    return Error{ErrorCode::not_found, "the file with the tokens cannot be read", {}};
  }
  return read_bounded(file);
}

}  // namespace

Result<std::chrono::milliseconds> parse_time(std::string_view text) {
  constexpr Error kInvalid{
      ErrorCode::invalid,
      "a time is a whole number and a unit (ns, us, ms, s, m, h), from 1ms to 1h: 250ms, 5s, 2m",
      {}};
  constexpr std::uint64_t kMillisecond = 1'000'000;  // in ns
  constexpr std::uint64_t kHour = 3'600'000 * kMillisecond;
  struct Unit {
    std::string_view name;
    std::uint64_t ns;
  };
  constexpr std::array<Unit, 6> kUnits{{{"ns", 1},
                                        {"us", 1'000},
                                        {"ms", kMillisecond},
                                        {"s", 1'000 * kMillisecond},
                                        {"m", 60'000 * kMillisecond},
                                        {"h", kHour}}};
  std::uint64_t count = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed != std::errc()) return kInvalid;
  const std::string_view name = text.substr(static_cast<std::size_t>(rest - text.data()));
  const auto unit = std::ranges::find(kUnits, name, &Unit::name);
  if (unit == kUnits.end() || count > kHour / unit->ns) return kInvalid;
  const std::uint64_t ns = count * unit->ns;
  if (ns < kMillisecond) return kInvalid;
  return std::chrono::milliseconds((ns + kMillisecond - 1) / kMillisecond);
}

Result<std::vector<Token>> parse_tokens(std::string_view text) {
  constexpr Error kInvalid{ErrorCode::invalid, "give token ids below 2^32, as in 1,403,407", {}};
  text = trimmed(text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    text = trimmed(text.substr(1, text.size() - 2));
  }
  std::vector<Token> tokens;
  while (!text.empty()) {
    Token token = 0;
    const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (failed != std::errc()) return kInvalid;
    tokens.push_back(token);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    if (text.empty()) break;
    // Between two: spaces, and at most one comma. Nothing may follow the last.
    const auto next = text.find_first_not_of(" \t\r\n,");
    if (next == 0 || next == std::string_view::npos) return kInvalid;
    if (std::ranges::count(text.substr(0, next), ',') > 1) return kInvalid;
    text.remove_prefix(next);
  }
  return tokens;
}

std::string problem_of_count(std::string_view text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t count = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_count = failed == std::errc() && rest == text.data() + text.size();
  if (is_count && count >= least && count <= most) return {};
  return "'" + std::string(text) + "': give a whole number from " + std::to_string(least) + " to " +
         std::to_string(most);
}

std::string problem_of_empty(std::string_view text) {
  return text.empty() ? "is empty: give a value, or leave it out" : "";
}

Result<std::vector<Token>> read_tokens(const std::string& text) {
  if (!text.starts_with('@')) return parse_tokens(text);
  KV_TRY(const std::string content, read_file(text.substr(1)));
  return parse_tokens(content);
}

}  // namespace kv::client
