#include "cachesvc/shell/config.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <limits>

#include "cachesvc/shell/config_file.h"
#include "cachesvc/shell/nearest.h"
#include "cachesvc/shell/quantity.h"

namespace kv::shell {
namespace {

constexpr std::string_view kEnvironmentPrefix = "CACHESVC_";
constexpr std::string_view kDirectoryVariable = "CACHESVC_DIR";
constexpr std::size_t kPathBytesMax = 107;  // sun_path less its terminator

struct Setting {
  std::string text;
  std::string origin;  // default | file | environment | flag
  std::string place;   // for messages: "FILE:LINE", a variable's name, "command line"
};

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  out += text;
  return out + "\"";
}

std::vector<std::string_view> key_names() {
  std::vector<std::string_view> names;
  for (const ConfigKey& key : config_keys()) names.push_back(key.name);
  return names;
}

std::optional<std::size_t> find_key(std::string_view name) {
  const auto keys = config_keys();
  const auto found = std::ranges::find(keys, name, &ConfigKey::name);
  if (found == keys.end()) return std::nullopt;
  return static_cast<std::size_t>(found - keys.begin());
}

ConfigProblem unknown_key(std::string_view name, std::string_view place) {
  const auto names = key_names();
  return {std::string(name), "unknown key (" + std::string(place) + ")",
          "the nearest key is " + std::string(nearest_name(name, names))};
}

// Puts values into a Config by the table.
class Setter {
 public:
  Setter(const ConfigKey& key, const Setting& setting, LoadedConfig& loaded)
      : key_(key), setting_(setting), loaded_(loaded) {}

  void apply() {
    switch (key_.type) {
      case ConfigType::text:
        loaded_.config.*std::get<std::string Config::*>(key_.field) = setting_.text;
        return;
      case ConfigType::choice:
        set_choice();
        return;
      case ConfigType::boolean:
        set_boolean();
        return;
      case ConfigType::bytes:
        set_number(parse_bytes(setting_.text));
        return;
      case ConfigType::count:
        set_number(parse_count(setting_.text));
        return;
      case ConfigType::duration:
        set_duration();
        return;
    }
  }

 private:
  void fail(std::string_view message, std::string remedy) {
    loaded_.problems.push_back(
        {std::string(key_.name),
         in_quotes(setting_.text) + ": " + std::string(message) + " (" + setting_.place + ")",
         std::move(remedy)});
  }
  [[nodiscard]] std::string example() const {
    if (key_.type == ConfigType::count) return "write " + std::string(key_.default_text);
    const std::string meant =
        key_.type == ConfigType::bytes ? meant_bytes(setting_.text) : meant_duration(setting_.text);
    if (!meant.empty()) return "write " + in_quotes(meant);
    return "write it as in " + in_quotes(key_.default_text);
  }
  [[nodiscard]] std::string in_unit(std::uint64_t value) const {
    if (key_.type == ConfigType::bytes) return format_bytes(value);
    if (key_.type == ConfigType::duration) {
      return format_duration(Duration(static_cast<Duration::rep>(value)));
    }
    return std::to_string(value);
  }
  bool check_range(std::uint64_t value) {
    if (value == 0 && key_.zero_is_off) return true;
    if (value >= key_.minimum && value <= key_.maximum) return true;
    fail("out of range", "use a value from " + in_unit(key_.minimum) + " to " +
                             in_unit(key_.maximum) + (key_.zero_is_off ? ", or 0 for off" : ""));
    return false;
  }

  void set_choice() {
    if (std::ranges::find(key_.choices, setting_.text) == key_.choices.end()) {
      std::string known;
      for (const std::string_view choice : key_.choices) {
        if (!known.empty()) known += ", ";
        known += choice;
      }
      fail("is none of the choices", "use one of " + known);
      return;
    }
    loaded_.config.*std::get<std::string Config::*>(key_.field) = setting_.text;
  }
  void set_boolean() {
    if (setting_.text != "true" && setting_.text != "false") {
      fail("is neither true nor false", "write true or false");
      return;
    }
    loaded_.config.*std::get<bool Config::*>(key_.field) = setting_.text == "true";
  }
  void set_number(const Result<std::uint64_t>& parsed) {
    if (!parsed) {
      fail(parsed.error().reason, example());
      return;
    }
    if (!check_range(*parsed)) return;
    if (const auto* wide = std::get_if<std::uint64_t Config::*>(&key_.field)) {
      loaded_.config.*(*wide) = *parsed;
    } else {
      loaded_.config.*std::get<std::uint32_t Config::*>(key_.field) =
          static_cast<std::uint32_t>(*parsed);
    }
  }
  void set_duration() {
    const auto parsed = parse_duration(setting_.text);
    if (!parsed) {
      fail(parsed.error().reason, example());
      return;
    }
    if (!check_range(static_cast<std::uint64_t>(parsed->count()))) return;
    loaded_.config.*std::get<Duration Config::*>(key_.field) = *parsed;
  }

  const ConfigKey& key_;
  const Setting& setting_;
  LoadedConfig& loaded_;
};

std::string_view variable(const ConfigSources& sources, std::string_view name) {
  for (const auto& [known, value] : sources.environment) {
    if (known == name) return value;
  }
  return {};
}

// The rule that clients follow too (plugins/client).
std::string default_directory(const ConfigSources& sources) {
  if (const auto dir = variable(sources, "XDG_RUNTIME_DIR"); !dir.empty()) {
    return std::string(dir) + "/cachesvc";
  }
  if (const auto home = variable(sources, "HOME"); !home.empty()) {
    return std::string(home) + "/.cache/cachesvc";
  }
  return {};
}

// Later sources win, so they are read from the weakest to the strongest.
class Collector {
 public:
  explicit Collector(const ConfigSources& sources, LoadedConfig& loaded)
      : sources_(sources), loaded_(loaded), settings_(config_keys().size()) {}

  std::vector<Setting> collect() {
    for (std::size_t i = 0; i < settings_.size(); ++i) {
      const std::string_view text = config_keys()[i].default_text;
      settings_[i] = {text.starts_with('<') ? std::string() : std::string(text), "default",
                      "default"};
    }
    set("service.dir", {default_directory(sources_), "default", "default"}, {});
    if (sources_.file) read_file(*sources_.file);
    read_environment();
    for (const auto& [name, value] : sources_.flags) {
      set(name, {value, "flag", "command line"}, name);
    }
    return std::move(settings_);
  }

 private:
  void set(std::string_view name, Setting setting, std::string_view spelled) {
    if (const auto index = find_key(name)) {
      settings_[*index] = std::move(setting);
    } else {
      loaded_.problems.push_back(unknown_key(spelled, setting.place));
    }
  }
  void read_file(const std::string& path) {
    ConfigFile file = read_config_file(path);
    for (auto& entry : file.entries) {
      const std::string place = path + ":" + std::to_string(entry.line);
      if (entry.is_plain) {
        set(entry.key, {std::move(entry.text), "file", place}, entry.key);
      } else {
        loaded_.problems.push_back({entry.key, "holds no plain value (" + place + ")",
                                    "write text, a number, true or false"});
      }
    }
    if (!file.error.empty()) {
      loaded_.problems.push_back(
          {path, file.error,
           file.has_syntax_error ? "correct that line" : "give the path of a readable TOML file"});
    }
  }
  // One underscore too few, or a section's name before it: nobody else's variable.
  static std::string_view meant_variable(std::string_view name) {
    for (const ConfigKey& key : config_keys()) {
      const std::string_view section = key.name.substr(0, key.name.find('.'));
      std::string start = std::string(kEnvironmentPrefix);
      for (const char letter : section) {
        start += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
      }
      if (name.starts_with(start + "_")) return nearest_name(name, key_names());
    }
    return {};
  }
  void read_environment() {
    if (const auto dir = variable(sources_, kDirectoryVariable); !dir.empty()) {
      set("service.dir", {std::string(dir), "environment", std::string(kDirectoryVariable)}, {});
    }
    for (const auto& [name, value] : sources_.environment) {
      if (!name.starts_with(kEnvironmentPrefix)) continue;
      if (name.find("__") != std::string::npos) {
        set(key_of_variable(name), {value, "environment", name}, name);
      } else if (const auto meant = meant_variable(name); !meant.empty()) {
        loaded_.problems.push_back({name, "no variable of a setting: it has no \"__\"",
                                    "write " + environment_name(meant)});
      }
    }
  }
  static std::string key_of_variable(std::string_view name) {
    for (const ConfigKey& key : config_keys()) {
      if (environment_name(key.name) == name) return std::string(key.name);
    }
    return {};
  }

  const ConfigSources& sources_;
  LoadedConfig& loaded_;
  std::vector<Setting> settings_;
};

void check_endpoint(const Config& config, std::vector<ConfigProblem>& problems) {
  const std::string key = "service.endpoint";
  if (!config.endpoint.starts_with("ipc://")) {
    problems.push_back(
        {key, in_quotes(config.endpoint) + ": only ipc endpoints are served",
         "write \"ipc:///path/to/service.sock\"; other machines are not reached yet"});
    return;
  }
  const std::string_view path = ipc_path(config.endpoint);
  if (!path.starts_with('/')) {
    problems.push_back({key, in_quotes(config.endpoint) + ": the path is not absolute",
                        "write \"ipc:///path/to/service.sock\""});
  }
  if (path.size() > kPathBytesMax) {
    problems.push_back(
        {key,
         "the socket path has " + std::to_string(path.size()) + " bytes, and the system allows 107",
         "use a shorter service.dir or service.endpoint"});
  }
}

// What one user or client may have of a whole. A default above it is cut to the whole, in silence;
// a value that somebody wrote is a mistake.
void check_share(LoadedConfig& loaded, std::string_view part, std::string_view whole,
                 std::uint32_t part_value, std::uint32_t whole_value) {
  const auto index = find_key(part);
  if (part_value <= whole_value || !index || loaded.origins[*index] == "default") return;
  loaded.problems.push_back({std::string(part),
                             std::to_string(part_value) + " is more than " + std::string(whole) +
                                 ", which is " + std::to_string(whole_value),
                             "lower " + std::string(part) + ", or raise " + std::string(whole)});
}

void check_shares(LoadedConfig& loaded) {
  const Config& config = loaded.config;
  check_share(loaded, "client.per_user", "client.capacity", config.clients_per_user,
              config.client_capacity);
  check_share(loaded, "client.prompt_tokens", "limits.prompt_tokens", config.client_prompt_tokens,
              config.prompt_tokens);
}

}  // namespace

std::string_view ipc_path(std::string_view endpoint) {
  constexpr std::string_view kScheme = "ipc://";
  if (!endpoint.starts_with(kScheme)) return {};
  return endpoint.substr(kScheme.size());
}

std::string attach_path(const Config& config) { return config.dir + "/attach.sock"; }

std::vector<ConfigProblem> check_config(const Config& config, const MemoryLimit& memory) {
  std::vector<ConfigProblem> problems;
  check_endpoint(config, problems);
  if (attach_path(config).size() > kPathBytesMax) {
    problems.push_back({"service.dir",
                        "the path of DIR/attach.sock has " +
                            std::to_string(attach_path(config).size()) +
                            " bytes, and the system allows 107",
                        "use a shorter service.dir"});
  }
  if (config.disk_bytes > 0 && config.host_bytes == 0) {
    problems.push_back({"disk.bytes",
                        "the disk tier is on (" + format_bytes(config.disk_bytes) +
                            ") but the host tier, through which it loads, is off",
                        "set host.bytes to at least 1MiB, or disk.bytes to 0"});
  }
  const std::uint64_t wanted = config.device_bytes + config.host_bytes;
  if (memory.bytes > 0 && wanted > memory.bytes) {
    const bool is_device = config.device_bytes > config.host_bytes;
    std::string wanted_text = round_bytes(wanted);
    std::string memory_text = round_bytes(memory.bytes);
    if (wanted_text == memory_text) {
      wanted_text = std::to_string(wanted) + "B";
      memory_text = std::to_string(memory.bytes) + "B";
    }
    problems.push_back({is_device ? "device.bytes" : "host.bytes",
                        "device.bytes and host.bytes together want " + wanted_text + ", and " +
                            std::string(memory.text) + " " + memory_text,
                        is_device ? "lower device.bytes" : "lower host.bytes"});
  }
  return problems;
}

std::string config_value_text(const Config& config, const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::text:
    case ConfigType::choice:
      return config.*std::get<std::string Config::*>(key.field);
    case ConfigType::boolean:
      return config.*std::get<bool Config::*>(key.field) ? "true" : "false";
    case ConfigType::bytes:
      return format_bytes(config.*std::get<std::uint64_t Config::*>(key.field));
    case ConfigType::count:
      return std::to_string(config.*std::get<std::uint32_t Config::*>(key.field));
    case ConfigType::duration:
      return format_duration(config.*std::get<Duration Config::*>(key.field));
  }
  return {};
}

LoadedConfig load_config(const ConfigSources& sources) {
  LoadedConfig loaded;
  const std::vector<Setting> settings = Collector(sources, loaded).collect();
  for (std::size_t i = 0; i < settings.size(); ++i) {
    loaded.origins.push_back(settings[i].origin);
    Setter(config_keys()[i], settings[i], loaded).apply();
  }
  Config& config = loaded.config;
  const Setting& endpoint = settings[find_key("service.endpoint").value_or(0)];
  if (endpoint.text.empty() && endpoint.origin != "default") {
    loaded.problems.push_back({"service.endpoint",
                               "\"\": the endpoint is empty (" + endpoint.place + ")",
                               "write \"ipc:///path/to/service.sock\", or leave it out"});
  }
  if (config.dir.empty()) {
    const Setting& dir = settings[find_key("service.dir").value_or(0)];
    const bool is_given = dir.origin != "default";
    loaded.problems.push_back({"service.dir",
                               is_given ? "\"\": the directory is empty (" + dir.place + ")"
                                        : "no directory is known: HOME is empty or not set",
                               "give --dir DIR"});
    return loaded;
  }
  config.dir =
      (std::filesystem::path(sources.working_directory) / config.dir).lexically_normal().string();
  while (config.dir.size() > 1 && config.dir.ends_with('/')) config.dir.pop_back();
  if (config.endpoint.empty()) config.endpoint = "ipc://" + config.dir + "/service.sock";
  // Rules between keys make sense only for values that were understood.
  if (loaded.ok()) {
    loaded.problems = check_config(config, sources.memory);
    check_shares(loaded);
  }
  return loaded;
}

}  // namespace kv::shell
