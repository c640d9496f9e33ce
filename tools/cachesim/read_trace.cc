#include "tools/cachesim/read_trace.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tools/cachesim/line_reader.h"
#include "tools/cachesim/trace_reader.h"

namespace kv::cachesim {
namespace {

using nlohmann::json;

// As much of the file's beginning as tells the formats apart.
Result<std::string> beginning(const std::string& path) {
  constexpr std::size_t kEnough = std::size_t{64} * 1024;
  KV_TRY(const OpenedFile file, open_file(path));
  std::string text(kEnough, '\0');
  std::size_t size = 0;
  while (size < kEnough) {
    KV_TRY(const std::size_t more, file.bytes->read(std::span(text).subspan(size)));
    if (more == 0) break;
    size += more;
  }
  text.resize(size);
  return text;
}

bool is_tar(const std::string& text) {
  constexpr std::size_t kMagicAt = 257;
  return text.size() > kMagicAt && text.compare(kMagicAt, 5, "ustar") == 0;
}

std::string guess_format(const std::string& text) {
  if (is_tar(text)) return "weka-sessions";
  if (text.starts_with("TIMESTAMP,")) return "azure";
  // A trace's first line may be broken; the second is not, too.
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const json line = json::parse(text.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (!line.is_object()) continue;
    const auto ids = line.find("hash_ids");
    if (ids != line.end() && ids->is_object()) return "ragpulse";
    if (ids != line.end() && ids->is_array()) return "mooncake";
    if (line.contains("session") || line.contains("h")) return "weka";
  }
  // One request may be longer than the beginning that was read.
  if (text.find("\"hash_ids\"") != std::string::npos) return "mooncake";
  return {};
}

}  // namespace

Result<void> count_broken(const ReadOptions& options, Trace& trace, std::uint64_t line,
                          const LineVerdict& verdict) {
  if (trace.broken_lines++ == 0) {
    trace.first_broken_line = line;
    trace.first_broken_reason = verdict;
  }
  if (options.strict) return Error{ErrorCode::invalid, "a line is broken", "FILE"};
  return {};
}

Result<void> for_each_line(Reading& reading,
                           const std::function<LineVerdict(std::string_view line)>& take) {
  constexpr std::uint64_t kLinesBetweenReports = 256;
  LineReader lines(*reading.file.bytes);
  Trace& trace = reading.builder.trace();
  for (std::string_view line;;) {
    KV_TRY(const bool more, lines.next(line));
    if (!more) break;
    ++trace.lines;
    if (reading.options.progress && lines.number() % kLinesBetweenReports == 0) {
      reading.options.progress(reading.file.bytes->file_position(), reading.file.file_bytes);
    }
    if (line.empty()) continue;
    const LineVerdict verdict = take(line);
    if (verdict.empty()) continue;
    KV_TRY_VOID(count_broken(reading.options, trace, lines.number(), verdict));
  }
  return {};
}

std::optional<std::uint64_t> whole_number(const json& value, std::uint64_t max) {
  std::uint64_t number = 0;
  if (value.is_number_unsigned()) {
    number = value.get<std::uint64_t>();
  } else if (value.is_number_float()) {
    constexpr double kExact = 9007199254740992.0;  // 2^53
    const auto real = value.get<double>();
    if (!(real >= 0) || real > kExact || real != std::floor(real)) return std::nullopt;
    number = static_cast<std::uint64_t>(real);
  } else {
    return std::nullopt;
  }
  if (number > max) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> whole_field(const json& object, const char* name, std::uint64_t max) {
  const auto found = object.find(name);
  return found == object.end() ? std::nullopt : whole_number(*found, max);
}

std::optional<std::uint64_t> time_field(const json& object, const char* name, double unit_ms) {
  constexpr double kTimeMax = 1e15;
  const auto found = object.find(name);
  if (found == object.end()) return std::nullopt;
  double time = -1;
  if (found->is_number()) time = found->get<double>();
  if (found->is_string()) {
    const json number = json::parse(found->get_ref<const std::string&>(), nullptr, false);
    if (number.is_number()) time = number.get<double>();
  }
  time *= unit_ms;
  if (!(time >= 0) || time > kTimeMax) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(time));
}

Result<void> read_trace(const std::string& path, const ReadOptions& options, Trace& trace) {
  std::string format = options.format;
  if (format.empty()) {
    KV_TRY(const std::string text, beginning(path));
    format = guess_format(text);
  }
  if (options.wants_sessions && !format.empty() && !format.starts_with("weka")) {
    return Error{ErrorCode::unsupported,
                 "only weka traces have sessions: leave --sessions and --stagger-s out", "FILE"};
  }
  KV_TRY(OpenedFile file, open_file(path));
  TraceBuilder builder;
  Reading reading{options, file, builder};
  Result<void> done = Error{ErrorCode::invalid, "no known format; --format names one", "FILE"};
  if (format == "mooncake") done = read_mooncake(reading);
  if (format == "weka") done = read_weka(reading);
  if (format == "weka-sessions") done = read_weka_sessions(reading);
  if (format == "azure") done = read_azure(reading);
  if (format == "ragpulse") done = read_ragpulse(reading, path);
  trace = std::move(builder.trace());
  trace.format = format;
  return done;
}

}  // namespace kv::cachesim
