#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include "cachesvc/shell/commands.h"
#include "cachesvc/shell/config_show.h"

namespace kv::shell {
namespace {

void print_problems(const LoadedConfig& loaded, bool json) {
  if (json) {
    std::fputs(problems_as_json(loaded).c_str(), stdout);
  } else {
    std::fputs(problems_as_text(loaded).c_str(), stderr);
  }
}

// The service makes its directory, but none for an endpoint elsewhere.
void check_endpoint_folder(LoadedConfig& loaded) {
  const std::filesystem::path folder =
      std::filesystem::path(ipc_path(loaded.config.endpoint)).parent_path();
  std::error_code ignored;
  if (folder == loaded.config.dir || std::filesystem::is_directory(folder, ignored)) return;
  loaded.problems.push_back({"service.endpoint", folder.string() + " is no directory",
                             "make it, or give another endpoint"});
}

}  // namespace

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
    print_problems(loaded, json);
    return kExitUsage;
  }
  std::fputs((json ? config_as_json(loaded) : config_as_toml(loaded)).c_str(), stdout);
  return kExitOk;
}

int check_config_command(const ConfigSources& sources, bool json) {
  LoadedConfig loaded = load_config(sources);
  if (loaded.ok()) check_endpoint_folder(loaded);
  if (loaded.ok() && !json) {
    std::fputs("ok\n", stdout);
  } else {
    print_problems(loaded, json);
  }
  return loaded.ok() ? kExitOk : kExitCheck;
}

}  // namespace kv::shell
