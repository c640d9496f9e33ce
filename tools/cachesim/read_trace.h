// Reads a trace file of one of the known formats (README) into a Trace. Owner: the command.
// Threads: none. Memory: the trace as runs, and 56 bytes a unique block.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "allocator/base/result.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

inline constexpr std::string_view kFormats[] = {"mooncake", "weka", "weka-sessions", "azure",
                                                "ragpulse"};

struct ReadOptions {
  std::string format;              // one of kFormats; empty: by the file's beginning
  bool strict = false;             // the first broken line is an error
  std::uint32_t block_tokens = 0;  // of a mooncake trace; 0: as it says itself, else 512
  std::uint32_t sessions = std::numeric_limits<std::uint32_t>::max();  // weka: the first ones only
  std::uint64_t stagger_ms = 60'000;  // weka: from one session's start to the next
  bool wants_sessions = false;  // one of the two was asked for: not for a trace without sessions
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // bytes of the file
};

// fails: what the file cannot be read for; invalid: no known format, or (strict) a broken line;
// `trace` then says which one.
[[nodiscard]] Result<void> read_trace(const std::string& path, const ReadOptions& options,
                                      Trace& trace);

}  // namespace kv::cachesim
