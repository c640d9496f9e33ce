#include "cachesvc/shell/log.h"

#include <algorithm>
#include <array>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace kv::shell {
namespace {

bool is_plain(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return byte > 0x20 && byte < 0x7F && letter != '"' && letter != '=' && letter != '\\';
}

void append_value(std::string& line, std::string_view value) {
  if (!value.empty() && std::ranges::all_of(value, is_plain)) {
    line += value;
    return;
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  line += '"';
  for (const char letter : value) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte < 0x20 || byte >= 0x7F) {
      line += "\\x";
      line += kHex[byte >> 4U];
      line += kHex[byte & 15U];
      continue;
    }
    if (letter == '"' || letter == '\\') line += '\\';
    line += letter;
  }
  line += '"';
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  constexpr std::array<spdlog::level::level_enum, 5> kLevels = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err,
      spdlog::level::off};
  return kLevels[static_cast<std::size_t>(level)];
}

LogLevel parse_level(std::string_view text) {
  constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};
  const auto* const found = std::ranges::find(kNames, text);
  if (found == kNames.end()) return LogLevel::info;
  return static_cast<LogLevel>(found - kNames.begin());
}

}  // namespace

// A logger of its own, not spdlog's registry: nothing global.
struct Logger::State {
  explicit State(LogLevel level)
      : log("cachesvc", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    log.set_pattern("ts=%Y-%m-%dT%H:%M:%S.%e%z level=%l %v");
    log.set_level(to_spdlog(level));
    log.flush_on(spdlog::level::debug);
  }
  spdlog::logger log;
};

Logger::Logger(std::string_view level) : state_(std::make_unique<State>(parse_level(level))) {}
Logger::~Logger() = default;

void Logger::write(LogLevel level, std::string_view event,
                   std::initializer_list<LogField> fields) const {
  if (!state_->log.should_log(to_spdlog(level))) return;
  state_->log.log(to_spdlog(level), format_event(event, fields));
}

std::string format_event(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line = "event=";
  append_value(line, event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

}  // namespace kv::shell
