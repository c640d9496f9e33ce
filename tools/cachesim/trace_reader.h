// What the readers of the formats share: lines with a broken one counted, fields of JSON, and the
// order of arrival. Owner: read_trace. Threads: none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "allocator/base/result.h"
#include "tools/cachesim/byte_source.h"
#include "tools/cachesim/read_trace.h"
#include "tools/cachesim/trace.h"
#include "tools/cachesim/trace_builder.h"

namespace kv::cachesim {

// Why a line is not taken; empty: it was.
using LineVerdict = std::string;
inline constexpr Error kTooManyBlocks = {ErrorCode::too_large, "more than 2^31 unique blocks",
                                         "FILE"};

struct Reading {
  const ReadOptions& options;
  OpenedFile& file;
  TraceBuilder& builder;
};

// A line (or a member of an archive) is not taken. fails: options.strict.
[[nodiscard]] Result<void> count_broken(const ReadOptions& options, Trace& trace,
                                        std::uint64_t line, const LineVerdict& verdict);
// Calls `take` for every line that is not empty.
[[nodiscard]] Result<void> for_each_line(
    Reading& reading, const std::function<LineVerdict(std::string_view line)>& take);

// Fields. nullopt: missing, negative, no whole number, or beyond `max`.
[[nodiscard]] std::optional<std::uint64_t> whole_number(const nlohmann::json& value,
                                                        std::uint64_t max);
[[nodiscard]] std::optional<std::uint64_t> whole_field(const nlohmann::json& object,
                                                       const char* name, std::uint64_t max);
// A time in units of `unit_ms` milliseconds, rounded to the millisecond.
[[nodiscard]] std::optional<std::uint64_t> time_field(const nlohmann::json& object,
                                                      const char* name, double unit_ms);

[[nodiscard]] Result<void> read_mooncake(Reading& reading);
[[nodiscard]] Result<void> read_weka(Reading& reading);
[[nodiscard]] Result<void> read_weka_sessions(Reading& reading);
[[nodiscard]] Result<void> read_azure(Reading& reading);
// `path`: the token lengths lie in files beside it.
[[nodiscard]] Result<void> read_ragpulse(Reading& reading, const std::string& path);

}  // namespace kv::cachesim
