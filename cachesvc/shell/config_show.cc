#include "cachesvc/shell/config_show.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace kv::shell {
namespace {

std::string_view section_of(std::string_view name) { return name.substr(0, name.find('.')); }
std::string_view key_of(std::string_view name) { return name.substr(name.find('.') + 1); }

nlohmann::ordered_json json_value(const Config& config, const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::boolean:
      return config.*std::get<bool Config::*>(key.field);
    case ConfigType::bytes:
      return config.*std::get<std::uint64_t Config::*>(key.field);
    case ConfigType::count:
      return config.*std::get<std::uint32_t Config::*>(key.field);
    case ConfigType::duration:
      return (config.*std::get<Duration Config::*>(key.field)).count();
    case ConfigType::text:
    case ConfigType::choice:
      break;
  }
  return config_value_text(config, key);
}

// What the numbers of a type count; empty for values that say it themselves.
std::string_view unit_of(ConfigType type) {
  if (type == ConfigType::bytes) return "bytes";
  return type == ConfigType::duration ? "ns" : "";
}

// For people: without the brackets of a computed one.
std::string default_of(const ConfigKey& key) {
  std::string_view text = key.default_text;
  if (text.starts_with('<')) text = text.substr(1, text.size() - 2);
  return std::string(text);
}

// A path may hold bytes that are no UTF-8: they are replaced, not thrown about.
std::string dumped(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string toml_quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') out += '\\';
    if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kHex[byte >> 4U];
      out += kHex[byte & 15U];
    } else {
      out += letter;
    }
  }
  return out + "\"";
}

}  // namespace

std::string config_as_toml(const LoadedConfig& loaded) {
  std::string out;
  std::string_view section;
  const auto keys = config_keys();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey& key = keys[i];
    if (section_of(key.name) != section) {
      section = section_of(key.name);
      if (!out.empty()) out += "\n";
      out += "[" + std::string(section) + "]\n";
    }
    const std::string text = config_value_text(loaded.config, key);
    const bool bare = key.type == ConfigType::boolean || key.type == ConfigType::count;
    out += std::string(key_of(key.name)) + " = " + (bare ? text : toml_quoted(text));
    out += "  # " + loaded.origins[i] + "\n";
  }
  return out;
}

std::string config_as_json(const LoadedConfig& loaded) {
  nlohmann::ordered_json json;
  const auto keys = config_keys();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    nlohmann::ordered_json entry = {{"value", json_value(loaded.config, keys[i])}};
    if (const auto unit = unit_of(keys[i].type); !unit.empty()) entry["unit"] = unit;
    entry["origin"] = loaded.origins[i];
    entry["type"] = config_type_name(keys[i].type);
    entry["default"] = keys[i].default_text;
    entry["help"] = keys[i].help;
    json[std::string(keys[i].name)] = std::move(entry);
  }
  return dumped(json);
}

std::string problems_as_json(const LoadedConfig& loaded) {
  nlohmann::ordered_json json = {{"ok", loaded.ok()},
                                 {"problems", nlohmann::ordered_json::array()}};
  for (const ConfigProblem& problem : loaded.problems) {
    json["problems"].push_back(
        {{"key", problem.key}, {"message", problem.message}, {"remedy", problem.remedy}});
  }
  return dumped(json);
}

std::string problems_as_text(const LoadedConfig& loaded) {
  std::string out;
  for (const ConfigProblem& problem : loaded.problems) {
    out += "error: " + problem.key + ": " + problem.message + "; " + problem.remedy + "\n";
  }
  return out;
}

std::string config_as_help() {
  std::string out = "Configuration keys (type, default):\n";
  for (const ConfigKey& key : config_keys()) {
    out += "  " + std::string(key.name) + " (" + std::string(config_type_name(key.type)) + ", " +
           default_of(key) + ")\n      " + std::string(key.help);
    for (std::size_t i = 0; i < key.choices.size(); ++i) {
      out += (i == 0 ? ": " : ", ") + std::string(key.choices[i]);
    }
    out += "\n";
  }
  return out +
         "Sizes need a unit (B, KiB, MiB, GiB, TiB), durations too (ns, us, ms, s, m, h).\n"
         "--set SECTION.KEY=VALUE wins over the environment (CACHESVC_SECTION__KEY), that over\n"
         "the file ([section], key = value), that over the default. What would be used, and\n"
         "where each value is from: cachesvc config show.";
}

std::string config_as_markdown() {
  std::string out;
  for (const ConfigKey& key : config_keys()) {
    out += "| `" + std::string(key.name) + "` | " + std::string(config_type_name(key.type)) +
           " | " + default_of(key) + " | " + std::string(key.help);
    for (std::size_t i = 0; i < key.choices.size(); ++i) {
      out += (i == 0 ? " (" : ", ") + std::string(key.choices[i]);
    }
    out += key.choices.empty() ? " |\n" : ") |\n";
  }
  return out;
}

}  // namespace kv::shell
