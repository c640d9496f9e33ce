#include "tools/cachesim/replay/sim_config.h"

#include <algorithm>
#include <charconv>

#include "cachesvc/shell/config_file.h"
#include "cachesvc/shell/nearest.h"
#include "cachesvc/shell/quantity.h"

namespace kv::cachesim {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  out += text;
  return out + "\"";
}

const SimKey* find_key(std::string_view name) {
  const auto found = std::ranges::find(sim_keys(), name, &SimKey::name);
  return found == sim_keys().end() ? nullptr : &*found;
}

shell::ConfigProblem unknown_key(std::string_view name, std::string_view place) {
  std::vector<std::string_view> names;
  for (const SimKey& key : sim_keys()) names.push_back(key.name);
  return {std::string(name), "unknown key (" + std::string(place) + ")",
          "the nearest key is " + std::string(shell::nearest_name(name, names))};
}

Result<std::uint64_t> parse_number(SimType type, std::string_view text) {
  switch (type) {
    case SimType::bytes:
      return shell::parse_bytes(text);
    case SimType::rate:
      return parse_rate(text);
    case SimType::duration: {
      KV_TRY(const Duration time, shell::parse_duration(text));
      return static_cast<std::uint64_t>(time.count());
    }
    case SimType::factor:
      return parse_factor(text);
    case SimType::count:
    case SimType::choice:
    case SimType::text:
      break;
  }
  return shell::parse_count(text);
}

std::string choices_of(const SimKey& key) {
  std::string known;
  for (const std::string_view choice : key.choices) {
    if (!known.empty()) known += ", ";
    known += choice;
  }
  return known;
}

// Puts a value where its key says; `place` is for the message.
void set(const SimKey& key, const std::string& text, const std::string& place,
         LoadedSimConfig& loaded) {
  const auto fail = [&](std::string_view what, std::string remedy) {
    loaded.problems.push_back({std::string(key.name),
                               in_quotes(text) + ": " + std::string(what) + " (" + place + ")",
                               std::move(remedy)});
  };
  if (const auto* field = std::get_if<std::string SimConfig::*>(&key.field)) {
    if (!key.choices.empty() && std::ranges::find(key.choices, text) == key.choices.end()) {
      fail("is none of the choices", "use one of " + choices_of(key));
      return;
    }
    loaded.config.*(*field) = text;
    return;
  }
  const Result<std::uint64_t> number = parse_number(key.type, text);
  if (!number) {
    fail(number.error().reason, "write a value like " + in_quotes(key.default_text));
  } else if (*number < key.minimum || *number > key.maximum) {
    fail("out of range", "see cachesim replay --help");
  } else {
    loaded.config.*std::get<std::uint64_t SimConfig::*>(key.field) = *number;
  }
}

void read_file(const std::string& path, LoadedSimConfig& loaded) {
  const shell::ConfigFile file = shell::read_config_file(path);
  if (!file.error.empty()) {
    loaded.problems.push_back({path, file.error, "see cachesim replay --help"});
    return;
  }
  for (const auto& entry : file.entries) {
    const std::string place = path + ":" + std::to_string(entry.line);
    const SimKey* key = find_key(entry.key);
    if (key == nullptr) {
      loaded.problems.push_back(unknown_key(entry.key, place));
    } else if (!entry.is_plain) {
      loaded.problems.push_back({entry.key, "needs one plain value (" + place + ")",
                                 "write " + in_quotes(key->default_text)});
    } else {
      set(*key, entry.text, place, loaded);
    }
  }
}

}  // namespace

Result<std::uint64_t> parse_rate(std::string_view text) {
  constexpr std::string_view kPerSecond = "/s";
  if (text == "0") return std::uint64_t{0};
  if (!text.ends_with(kPerSecond)) {
    return Error{ErrorCode::invalid, "a bandwidth needs a unit (MiB/s, GiB/s, ...)", {}};
  }
  text.remove_suffix(kPerSecond.size());
  return shell::parse_bytes(text);
}

Result<std::uint64_t> parse_factor(std::string_view text) {
  constexpr std::size_t kDecimals = 3;
  constexpr std::uint64_t kThousand = 1'000;
  const std::size_t point = std::min(text.find('.'), text.size());
  KV_TRY(const std::uint64_t whole, shell::parse_count(text.substr(0, point)));
  if (whole > std::uint64_t{1} << 40U) return Error{ErrorCode::too_large, "too large", {}};
  if (point == text.size()) return whole * kThousand;
  std::string decimals(text.substr(point + 1));
  decimals.resize(std::max(decimals.size(), kDecimals), '0');
  if (decimals.find_first_not_of('0', kDecimals) != std::string::npos) {
    return Error{ErrorCode::invalid, "has more than three decimals", {}};
  }
  KV_TRY(const std::uint64_t part,
         shell::parse_count(std::string_view(decimals).substr(0, kDecimals)));
  return whole * kThousand + part;
}

LoadedSimConfig load_sim_config(const std::optional<std::string>& file, const Settings& settings) {
  LoadedSimConfig loaded;
  for (const SimKey& key : sim_keys()) set(key, std::string(key.default_text), "default", loaded);
  if (file) read_file(*file, loaded);
  for (const auto& [name, text] : settings) {
    const SimKey* key = find_key(name);
    if (key == nullptr) {
      loaded.problems.push_back(unknown_key(name, "command line"));
    } else {
      set(*key, text, "command line", loaded);
    }
  }
  return loaded;
}

}  // namespace kv::cachesim
