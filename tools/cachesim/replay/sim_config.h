// SimConfig: the machines and the load of a replay, as SIM.toml says it. One table (sim_keys)
// drives reading, checking and help; a setting of the command line wins over the file, the file
// over the default. Owner: values only. Threads: none; load_sim_config reads one file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "allocator/base/result.h"
#include "cachesvc/shell/config.h"
#include "tools/cachesim/replay/replay.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

struct SimConfig {
  std::string mode, gpu, model, weights, router, arrivals;
  std::uint64_t seed = 0;
  std::uint64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;
  std::uint64_t load_rate = 0, save_rate = 0, read_rate = 0, write_rate = 0;  // bytes a second
  std::uint64_t host_latency_ns = 0, disk_latency_ns = 0;
  std::uint64_t tensor_parallel = 0, token_bytes = 0, memory_rate = 0;
  std::uint64_t step_overhead_ns = 0, slowdown_thousandths = 0;
  std::uint64_t instances = 0, sequences = 0, step_tokens = 0;
  std::uint64_t in_flight = 0, speed_thousandths = 0;
};

enum class SimType : std::uint8_t { choice, text, bytes, rate, duration, count, factor };

struct SimKey {
  std::string_view name;  // section.key
  SimType type = SimType::text;
  std::variant<std::string SimConfig::*, std::uint64_t SimConfig::*> field;
  std::string_view default_text;
  std::string_view help;
  std::span<const std::string_view> choices{};  // of a choice
  std::uint64_t minimum = 0, maximum = 0;       // of numbers, in bytes, ns or thousandths
};
[[nodiscard]] std::span<const SimKey> sim_keys();
// Every key with its default and meaning, for --help.
[[nodiscard]] std::string sim_keys_as_help();

using Settings = std::vector<std::pair<std::string, std::string>>;  // section.key, value
struct LoadedSimConfig {
  SimConfig config;
  std::vector<shell::ConfigProblem> problems;  // each of them, not only the first
  [[nodiscard]] bool ok() const { return problems.empty(); }
};
[[nodiscard]] LoadedSimConfig load_sim_config(const std::optional<std::string>& file,
                                              const Settings& settings);

// What the configuration means for a trace. Problems name the key that is to blame.
struct ResolvedReplay {
  ReplayOptions options;
  std::vector<shell::ConfigProblem> problems;
  [[nodiscard]] bool ok() const { return problems.empty(); }
};
[[nodiscard]] ResolvedReplay resolve(const SimConfig& config, const Trace& trace);

// "50GiB/s"; 0: no limit. fails: invalid, too_large.
[[nodiscard]] Result<std::uint64_t> parse_rate(std::string_view text);
// "1.45" in thousandths. fails: invalid, too_large.
[[nodiscard]] Result<std::uint64_t> parse_factor(std::string_view text);

}  // namespace kv::cachesim
