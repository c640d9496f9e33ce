#include "cachesvc/shell/config_file.h"

#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <toml++/toml.h>

namespace kv::shell {
namespace {

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
  try {
    return flatten(toml::parse_file(path));
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    file.error = line == 0 ? "cannot be read" : "line " + std::to_string(line) + ": ";
    if (line != 0) file.error += error.description();
    file.has_syntax_error = line != 0;
  } catch (const std::exception&) {
    file.error = "cannot be read";
  }
  return file;
}

}  // namespace kv::shell
