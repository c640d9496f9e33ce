// The command line of cachesim as a value. Owner: main. Threads: none. Cost: once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/cachesim/read_trace.h"
#include "tools/cachesim/replay/sim_config.h"
#include "tools/cachesim/replay/variation.h"

namespace kv::cachesim {

enum class Command : std::uint8_t { info, hits, replay, sweep };

// So many blocks, or so many of the trace's unique blocks.
struct Capacity {
  std::uint32_t blocks = 0;
  double share = 0;                                                   // counts when blocks is 0
  [[nodiscard]] std::uint32_t of(std::uint32_t unique_blocks) const;  // at least 1
};
// "5616" or "5%"; nullopt: neither.
[[nodiscard]] std::optional<Capacity> parse_capacity(const std::string& text);

struct CommandLine {
  Command command = Command::info;
  std::string file;
  ReadOptions reading;
  bool json = false;
  // hits
  std::vector<std::string> policies;
  std::vector<Capacity> capacities;
  bool time = false;
  // replay and sweep
  std::optional<std::string> config;
  Settings settings;
  // sweep
  std::vector<Variation> variations;
  unsigned jobs = 0;  // replays at one time; 0: as many as processors
};

// What to do instead of a command: print `text` (to stdout when `exit_code` is 0) and end.
struct Ending {
  int exit_code = 0;
  std::string text;
};

[[nodiscard]] std::variant<CommandLine, Ending> parse_command_line(int argc,
                                                                   const char* const* argv);

}  // namespace kv::cachesim
