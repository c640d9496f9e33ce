#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include "cachesvc/shell/commands.h"
#include "cachesvc/shell/config_show.h"

namespace kv::shell {

ConfigSources process_sources() {
  ConfigSources sources;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    sources.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (!error) sources.working_directory = here.string();
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    sources.memory =
        memory_limit(static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes));
  }
  return sources;
}

int show_config(const ConfigSources& sources, bool json) {
  const LoadedConfig loaded = load_config(sources);
  if (!loaded.ok()) {
    std::fputs(problems_as_text(loaded).c_str(), stderr);
    return kExitUsage;
  }
  std::fputs((json ? config_as_json(loaded) : config_as_toml(loaded)).c_str(), stdout);
  return kExitOk;
}

int check_config_command(const ConfigSources& sources, bool json) {
  const LoadedConfig loaded = load_config(sources);
  if (json) {
    std::fputs(problems_as_json(loaded).c_str(), stdout);
  } else if (loaded.ok()) {
    std::fputs("ok\n", stdout);
  } else {
    std::fputs(problems_as_text(loaded).c_str(), stderr);
  }
  return loaded.ok() ? kExitOk : kExitCheck;
}

}  // namespace kv::shell
