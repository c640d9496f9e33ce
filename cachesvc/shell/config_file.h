// Reads a TOML file as a flat list of section.key and text, with line numbers for messages.
// Owner: values only. Threads: any. Cost: one file read; at start only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv::shell {

struct ConfigFile {
  struct Entry {
    std::string key;       // section.key
    std::string text;      // text as it is; numbers and booleans as TOML writes them
    bool is_plain = true;  // false: an array, a date or a deeper table
    std::uint32_t line = 0;
  };
  std::vector<Entry> entries;
  std::string error;              // not empty: the file cannot be read, or is no TOML; says where
  bool has_syntax_error = false;  // it was read
};
[[nodiscard]] ConfigFile read_config_file(const std::string& path);

}  // namespace kv::shell
