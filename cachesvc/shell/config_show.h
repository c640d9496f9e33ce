// The configuration for people and programs: `config show`, `config check` and the README's list.
// Owner: values only. Threads: any. Cost: start-up only.
#pragma once

#include <string>

#include "cachesvc/shell/config.h"

namespace kv::shell {

// A TOML file that says the same, each key with where its value is from.
[[nodiscard]] std::string config_as_toml(const LoadedConfig& loaded);
// {"section.key": {"value", "unit", "origin", "type", "default", "help"}}; the unit only where the
// value counts one ("bytes", "ns").
[[nodiscard]] std::string config_as_json(const LoadedConfig& loaded);
// {"ok", "problems": [{"key", "message", "remedy"}]}
[[nodiscard]] std::string problems_as_json(const LoadedConfig& loaded);
// One line each: "error: KEY: MESSAGE; REMEDY".
[[nodiscard]] std::string problems_as_text(const LoadedConfig& loaded);
// Every key with its type, default and meaning, for --help.
[[nodiscard]] std::string config_as_help();
// Rows of a Markdown table: key, type, default, meaning.
[[nodiscard]] std::string config_as_markdown();

}  // namespace kv::shell
