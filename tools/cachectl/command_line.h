// The command line of cachectl as a value. Owner: main. Threads: none. Cost: once.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "allocator/base/token.h"

namespace kv::cachectl {

inline constexpr std::uint32_t kTreeNodesMax = 1'000;  // of one answer of the service

enum class Command : std::uint8_t { status, lookup, why, tree, demote, flush, clear };

struct CommandLine {
  Command command = Command::status;
  std::string dir;
  std::string endpoint;
  std::optional<std::chrono::milliseconds> timeout;  // else the command's own
  bool json = false;

  std::optional<std::chrono::milliseconds> watch;  // status: again and again
  bool all = false;                                // status: counters that are 0, too

  // lookup, why and clear: a namespace by a model folder, or by its fields. lookup and why: a
  // prompt by text or tokens.
  std::string model;
  std::string weights, model_config, adapter, adapter_revision, salt;
  std::optional<std::string> prompt;
  std::optional<std::string> tokens;
  std::uint64_t required_hit_tokens = 0;

  std::uint32_t node_limit = kTreeNodesMax;  // tree
  Tier tier = Tier::device;                  // demote

  std::optional<Tier> cleared_tier;    // clear: nullopt: all tiers
  std::optional<std::uint64_t> epoch;  // clear: of the namespace, afterwards; 0: the next one
  bool is_confirmed = false;           // clear
  [[nodiscard]] bool has_namespace() const { return !model.empty() || !weights.empty(); }
};

// What to do instead of a command: print `text` (to stdout when `exit_code` is 0) and end.
struct Ending {
  int exit_code = 0;
  std::string text;
};

[[nodiscard]] std::variant<CommandLine, Ending> parse_command_line(int argc,
                                                                   const char* const* argv);

}  // namespace kv::cachectl
