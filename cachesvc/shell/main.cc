// The program `cachesvc`: its command line. Each command is a function in commands.h.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cachesvc/program/standard_streams.h"
#include "cachesvc/program/usage_error.h"
#include "cachesvc/shell/commands.h"
#include "cachesvc/shell/config_show.h"

namespace {

struct Arguments {
  std::optional<std::string> file, dir, endpoint;  // an empty one is a mistake, not the default
  std::vector<std::string> settings;               // KEY=VALUE
  bool json = false;
};

void add_config_options(CLI::App& command, Arguments& arguments) {
  command.footer(kv::shell::config_as_help());
  command.add_option("--config", arguments.file, "TOML file (default: embedded values)")
      ->check([](const std::string& file) {
        return file.empty() ? std::string("is empty: name a file, or leave it out") : std::string();
      });
  command.add_option("--dir", arguments.dir, "directory of sockets, locks and data (service.dir)");
  command.add_option("--endpoint", arguments.endpoint, "ipc://PATH (service.endpoint)");
  command.add_option("--set", arguments.settings, "SECTION.KEY=VALUE, wins over all else")
      ->take_all()
      ->allow_extra_args(false)
      ->check([](const std::string& setting) {
        if (setting.starts_with('=')) return setting + " has no key: write SECTION.KEY" + setting;
        const bool has_value = setting.find('=') != std::string::npos;
        return has_value ? std::string() : setting + " has no value: write " + setting + "=VALUE";
      });
}

kv::shell::ConfigSources to_sources(const Arguments& arguments) {
  kv::shell::ConfigSources sources = kv::shell::process_sources();
  sources.file = arguments.file;
  if (arguments.dir) sources.flags.emplace_back("service.dir", *arguments.dir);
  if (arguments.endpoint) sources.flags.emplace_back("service.endpoint", *arguments.endpoint);
  for (const std::string& setting : arguments.settings) {
    const std::size_t equals = setting.find('=');
    sources.flags.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
  }
  return sources;
}

int run(int argc, char** argv) {
  CLI::App app("A KV-cache service for language-model inference.", "cachesvc");
  app.require_subcommand(1);
  app.set_version_flag("--version", "cachesvc " KV_VERSION, "print the version");
  app.footer(
      "Examples:\n"
      "  cachesvc serve --dir /run/cachesvc\n"
      "  cachesvc serve --config /etc/cachesvc.toml --set host.bytes=8GiB\n"
      "  cachesvc config show --json\n"
      "Exit codes: 0 ok, 1 failed, 2 usage, 3 a check was not met.");
  Arguments arguments;

  CLI::App* serve = app.add_subcommand("serve", "serve until SIGTERM, SIGINT or SIGHUP");
  add_config_options(*serve, arguments);
  CLI::App* version = app.add_subcommand("version", "print the version");
  CLI::App* config = app.add_subcommand("config", "the configuration as it would be used");
  config->require_subcommand(1);
  CLI::App* show = config->add_subcommand("show", "every key with its value and where it is from");
  CLI::App* check = config->add_subcommand("check", "say what is wrong, and what to do about it");
  for (CLI::App* command : {show, check}) add_config_options(*command, arguments);
  for (CLI::App* command : {version, show, check}) {
    command->add_flag("--json", arguments.json, "print JSON");
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "error: %s\n", kv::program::usage_error_text(app, error).c_str());
    return kv::shell::kExitUsage;
  }
  if (version->parsed()) {
    std::puts(arguments.json ? "{\"version\": \"" KV_VERSION "\"}" : "cachesvc " KV_VERSION);
    return kv::shell::kExitOk;
  }
  const kv::shell::ConfigSources sources = to_sources(arguments);
  if (serve->parsed()) return kv::shell::serve(sources);
  if (show->parsed()) return kv::shell::show_config(sources, arguments.json);
  return kv::shell::check_config_command(sources, arguments.json);
}

}  // namespace

int main(int argc, char** argv) {
  kv::program::keep_standard_streams();
  try {
    return kv::program::finish_output(run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return kv::shell::kExitFailed;
  }
}
