// Logger: one line of key=value pairs (logfmt) for each event, on stderr. Only the shell logs; the
// core counts. Never given token text, prompts or secrets. A line that nobody has room for (a pipe
// that is not read) is dropped, and the next one that gets through says how many were. Owner: the
// service; passed by reference. Threads: any; never waits for a reader. Cost: two system calls a
// line; below the level: none.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include <unistd.h>

namespace kv::shell {

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };

struct LogField {
  LogField(std::string_view name, std::string_view text) : key(name), value(text) {}
  LogField(std::string_view name, std::uint64_t number)
      : key(name), value(std::to_string(number)) {}
  std::string_view key;
  std::string value;
};

class Logger {
 public:
  // `level`: as service.log_level; an unknown word is info. The descriptor stays the caller's.
  explicit Logger(std::string_view level, int descriptor = STDERR_FILENO);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;
  Logger(Logger&&) = delete;
  Logger& operator=(Logger&&) = delete;

  void write(LogLevel level, std::string_view event,
             std::initializer_list<LogField> fields = {}) const;
  // So far; never less.
  [[nodiscard]] std::uint64_t dropped_lines() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "event=NAME key=value ...": values with other than plain letters are quoted, control bytes
// escaped.
[[nodiscard]] std::string format_event(std::string_view event,
                                       std::initializer_list<LogField> fields);

// Things that hostile bytes can cause any number of times are logged at their 1st, 2nd, 4th, 8th
// ... time.
[[nodiscard]] constexpr bool is_worth_logging(std::uint64_t count) {
  return count != 0 && (count & (count - 1)) == 0;
}

}  // namespace kv::shell
