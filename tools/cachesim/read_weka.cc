// Weka traces as one file of lines: a header {"session", "block_size", ...} opens each session,
// then its requests: s session, t seconds from the session's start, in and out tokens, h blocks as
// [[first id, count], ...].
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "tools/cachesim/weka_sessions.h"

namespace kv::cachesim {
namespace {

using nlohmann::json;

constexpr std::uint32_t kTokensMax = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kIdMax = 1U << 30U;
constexpr std::uint32_t kSessionsMax = 1U << 30U;

class WekaReader {
 public:
  explicit WekaReader(Reading& reading) : reading_(reading) {}

  LineVerdict take(std::string_view line) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object()) return "no JSON object";
    if (object.contains("session")) return take_header(object);
    const auto session = whole_field(object, "s", kSessionsMax);
    if (!session) return "s is not a session";
    const auto input = whole_field(object, "in", kTokensMax);
    if (!input) return "in is not a number of tokens";
    const auto time = time_field(object, "t", 1000);
    if (!time) return "t is not a time";
    const auto runs = object.find("h");
    if (runs == object.end() || !runs->is_array()) return "h is not a list";
    std::vector<BlockRun> blocks;
    for (const json& run : *runs) {
      if (!run.is_array() || run.size() != 2) return "h holds something that is not [first, count]";
      const auto first = whole_number(run[0], kIdMax);
      const auto count = whole_number(run[1], kIdMax);
      if (!first || !count) return "h holds something that is not [first, count]";
      blocks.push_back({static_cast<std::uint32_t>(*first), static_cast<std::uint32_t>(*count)});
    }
    if (*session >= reading_.options.sessions) return {};
    TraceRequest request;
    request.time_ms = *time;
    request.input_tokens = static_cast<std::uint32_t>(*input);
    request.output_tokens =
        static_cast<std::uint32_t>(whole_field(object, "out", kTokensMax).value_or(0));
    sessions_.add(static_cast<std::uint32_t>(*session), request, std::move(blocks));
    return {};
  }

  Result<void> finish() {
    reading_.builder.trace().block_tokens = block_tokens_;
    return sessions_.finish(reading_);
  }

 private:
  LineVerdict take_header(const json& object) {
    const auto tokens = whole_field(object, "block_size", 1U << 20U);
    if (!tokens || *tokens == 0) return "block_size is not a number of tokens";
    if (block_tokens_ > 0 && block_tokens_ != *tokens) {
      return "block_size differs from that of the sessions before";
    }
    block_tokens_ = static_cast<std::uint32_t>(*tokens);
    return {};
  }

  Reading& reading_;
  WekaSessions sessions_;
  std::uint32_t block_tokens_ = 0;
};

}  // namespace

Result<void> WekaSessions::finish(Reading& reading) {
  for (Arrival& arrival : arrivals_) {
    arrival.request.time_ms += arrival.session * reading.options.stagger_ms;
  }
  std::ranges::sort(arrivals_, {}, [](const Arrival& a) {
    return std::tuple(a.request.time_ms, a.session, a.place);
  });
  for (const Arrival& arrival : arrivals_) {
    const std::uint64_t base = std::uint64_t{arrival.session} << 32U;
    if (!reading.builder.add_runs(arrival.request, base, arrival.runs)) return kTooManyBlocks;
  }
  if (reading.builder.trace().block_tokens == 0) {
    return Error{ErrorCode::invalid, "no session says its block_size", "FILE"};
  }
  return {};
}

Result<void> read_weka(Reading& reading) {
  WekaReader reader(reading);
  KV_TRY_VOID(for_each_line(reading, [&](std::string_view line) { return reader.take(line); }));
  return reader.finish();
}

}  // namespace kv::cachesim
