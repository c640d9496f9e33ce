// Config: everything that can be set about one service. One TOML file; a flag wins over the
// environment (CACHESVC_SECTION__KEY), the environment over the file, the file over the embedded
// default. One table (config_keys) drives reading, checking, showing and the README's list. Owner:
// values only. Threads: any; load_config reads one file. Cost: start-up only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "allocator/base/time_point.h"
#include "cachesvc/shell/memory_limit.h"

namespace kv::shell {

struct Config {
  std::string dir;       // absolute; sockets, locks and data
  std::string endpoint;  // ipc://PATH
  std::string log_level;
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t disk_bytes = 0;
  std::string disk_io;
  Duration lease{};
  std::uint32_t credits = 0;
  std::uint32_t client_capacity = 0;
  std::uint32_t clients_per_user = 0;
  std::uint32_t transfer_workers = 0;
  bool write_through = false;
  std::uint64_t message_bytes = 0;
  std::uint32_t sequences = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t client_prompt_tokens = 0;
  std::uint64_t index_bytes = 0;
};

enum class ConfigType : std::uint8_t { text, choice, bytes, duration, count, boolean };
[[nodiscard]] std::string_view config_type_name(ConfigType type);

struct ConfigKey {
  using Field = std::variant<std::string Config::*, std::uint64_t Config::*,
                             std::uint32_t Config::*, Duration Config::*, bool Config::*>;
  std::string_view name;  // section.key
  ConfigType type = ConfigType::text;
  Field field;
  std::string_view default_text;  // in angle brackets: computed, see help
  std::string_view help;
  std::span<const std::string_view> choices;  // of a choice
  std::uint64_t minimum = 0, maximum = 0;     // of bytes, durations (ns) and counts
  bool zero_is_off = false;                   // 0 is allowed beside the range
};
[[nodiscard]] std::span<const ConfigKey> config_keys();
// CACHESVC_DEVICE__BYTES for device.bytes.
[[nodiscard]] std::string environment_name(std::string_view key);

struct ConfigSources {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  std::optional<std::string> file;
  Settings environment;  // NAME, value: of the whole process
  Settings flags;        // section.key, value
  std::string working_directory = "/";
  MemoryLimit memory;  // 0 bytes: not checked
};

// What is wrong, and what to do about it: sentences for people.
struct ConfigProblem {
  std::string key;  // section.key, or the file
  std::string message;
  std::string remedy;
};
struct LoadedConfig {
  Config config;
  std::vector<std::string> origins;  // by index in config_keys(): "default", "file", ...
  std::vector<ConfigProblem> problems;
  [[nodiscard]] bool ok() const { return problems.empty(); }
};
// Every problem is reported, not only the first.
[[nodiscard]] LoadedConfig load_config(const ConfigSources& sources);

// The value of a key as it would be written in the file, without quotes.
[[nodiscard]] std::string config_value_text(const Config& config, const ConfigKey& key);

// Rules between keys: paths that fit a socket, budgets that do not contradict each other.
[[nodiscard]] std::vector<ConfigProblem> check_config(const Config& config,
                                                      const MemoryLimit& memory);

// "ipc:///run/x.sock" -> "/run/x.sock"; empty for any other scheme.
[[nodiscard]] std::string_view ipc_path(std::string_view endpoint);
[[nodiscard]] std::string attach_path(const Config& config);

}  // namespace kv::shell
