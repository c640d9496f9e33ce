#include "cachesvc/shell/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <mutex>

#include <fcntl.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiering/stores/file_descriptor.h"

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

// A pipe or a terminal opened anew, not to block: making the given descriptor so would do the same
// to every other program that has it. Ready for a write means room for some of it only.
FileDescriptor open_anew(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return FileDescriptor();
  if (!S_ISFIFO(status.st_mode) && isatty(descriptor) == 0) return FileDescriptor();
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  return FileDescriptor(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// Writes a line where it can be written at once.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit DescriptorSink(int descriptor)
      : own_(open_anew(descriptor)), descriptor_(own_.is_open() ? own_.get() : descriptor) {}
  [[nodiscard]] std::uint64_t dropped_lines() const { return dropped_lines_; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    std::string line(formatted.data(), formatted.size());
    const std::uint64_t untold = dropped_lines_ - told_lines_;
    // Up to PIPE_BUF bytes go into a pipe that is ready as a whole.
    const std::string end =
        untold == 0 ? "\n" : " dropped_log_lines=" + std::to_string(untold) + "\n";
    line.resize(std::min(line.size() - 1, std::size_t{PIPE_BUF} - end.size()));
    line += end;
    if (!write_at_once(line)) {
      ++dropped_lines_;
      return;
    }
    told_lines_ += untold;
  }
  void flush_() override {}

 private:
  [[nodiscard]] bool write_at_once(std::string_view line) const {
    pollfd entry{.fd = descriptor_, .events = POLLOUT, .revents = 0};
    if (poll(&entry, 1, 0) != 1 || (entry.revents & POLLOUT) == 0) return false;
    ssize_t count = 0;
    do {
      count = write(descriptor_, line.data(), line.size());
    } while (count < 0 && errno == EINTR);
    return count > 0;
  }

  FileDescriptor own_;  // unless it could not be opened anew
  int descriptor_;
  std::atomic<std::uint64_t> dropped_lines_ = 0;
  std::uint64_t told_lines_ = 0;  // of the dropped ones
};

}  // namespace

// A logger of its own, not spdlog's registry: nothing global.
struct Logger::State {
  State(LogLevel level, int descriptor)
      : sink(std::make_shared<DescriptorSink>(descriptor)), log("cachesvc", sink) {
    log.set_pattern("ts=%Y-%m-%dT%H:%M:%S.%e%z level=%l %v");
    log.set_level(to_spdlog(level));
  }
  std::shared_ptr<DescriptorSink> sink;  // shared: spdlog takes it so
  spdlog::logger log;
};

Logger::Logger(std::string_view level, int descriptor)
    : state_(std::make_unique<State>(parse_level(level), descriptor)) {}
Logger::~Logger() = default;

void Logger::write(LogLevel level, std::string_view event,
                   std::initializer_list<LogField> fields) const {
  if (!state_->log.should_log(to_spdlog(level))) return;
  state_->log.log(to_spdlog(level), format_event(event, fields));
}

std::uint64_t Logger::dropped_lines() const { return state_->sink->dropped_lines(); }

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
