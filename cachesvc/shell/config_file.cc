#include "cachesvc/shell/config_file.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <toml++/toml.h>

namespace kv::shell {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20U;

// One byte more than the limit where the file goes on: a device that never ends is not read to it.
std::optional<std::string> read_bounded(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  std::string text(kFileBytesMax + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (stream.bad()) return std::nullopt;
  return text;
}

// The parser makes a table for each part of a dotted key and walks them with recursion: a key of
// half a million parts would end the process. Dots between quotes are text.
bool has_deep_key(std::string_view line) {
  constexpr std::size_t kPartsMax = 32;
  std::size_t dots = 0;
  char quote = 0;
  for (std::size_t i = 0; i < line.size() && dots < kPartsMax; ++i) {
    const char letter = line[i];
    if (quote != 0) {
      if (letter == '\\' && quote == '"') ++i;
      if (letter == quote) quote = 0;
    } else if (letter == '"' || letter == '\'') {
      quote = letter;
    } else if (letter == '#') {
      break;
    } else if (letter == '.') {
      ++dots;
    }
  }
  return dots == kPartsMax;
}

// The number of the first such line; 0: none.
std::size_t line_with_deep_key(std::string_view text) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (has_deep_key(text.substr(0, end))) return number;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}

ConfigFile::Entry to_entry(std::string key, const toml::node& node) {
  ConfigFile::Entry entry{std::move(key), {}, true, node.source().begin.line};
  if (const auto* text = node.as_string()) {
    entry.text = text->get();
  } else if (const auto* number = node.as_integer()) {
    entry.text = std::to_string(number->get());
  } else if (const auto* flag = node.as_boolean()) {
    entry.text = flag->get() ? "true" : "false";
  } else if (const auto* real = node.as_floating_point()) {
    entry.text = std::to_string(real->get());
  } else {
    entry.is_plain = false;
  }
  return entry;
}

// Sections are one level deep: what lies deeper is not plain, and no key has that name.
ConfigFile flatten(const toml::table& root) {
  ConfigFile file;
  for (const auto& [name, node] : root) {
    const std::string section(name.str());
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      file.entries.push_back(to_entry(section, node));
      continue;
    }
    for (const auto& [key, value] : *table) {
      file.entries.push_back(to_entry(section + "." + std::string(key.str()), value));
    }
  }
  return file;
}

}  // namespace

ConfigFile read_config_file(const std::string& path) {
  ConfigFile file;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {  // reads as an empty file
    file.error = "is a directory";
    return file;
  }
  const std::optional<std::string> text = read_bounded(path);
  if (!text || text->size() > kFileBytesMax) {
    file.error = text ? "is longer than 1MiB" : "cannot be read";
    return file;
  }
  if (const std::size_t line = line_with_deep_key(*text); line != 0) {
    file.error = "line " + std::to_string(line) + ": a key of so many parts is none of this file's";
    file.has_syntax_error = true;
    return file;
  }
  try {
    return flatten(toml::parse(*text, path));
  } catch (const toml::parse_error& error) {
    file.error = "line " + std::to_string(error.source().begin.line) + ": ";
    file.error += error.description();
    file.has_syntax_error = true;
  } catch (const std::exception&) {
    file.error = "cannot be read";
  }
  return file;
}

}  // namespace kv::shell
