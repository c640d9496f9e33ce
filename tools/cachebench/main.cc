// cachebench: how near the limit of the machine each part is (README).
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>

#include "cachesvc/program/standard_streams.h"
#include "cachesvc/program/usage_error.h"
#include "tools/cachebench/core_counts.h"
#include "tools/cachebench/core_rows.h"

namespace {

using namespace kv::cachebench;

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitBarMissed = 3;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

struct Arguments {
  CoreOptions core;
  std::vector<std::string> only;
  std::string counted;
  std::uint32_t operations = 1'000;
  bool json = false;
};

int run_core(const Arguments& arguments) {
  Report report{.rows = {},
                .processor = processor_name(),
                .processor_count = std::thread::hardware_concurrency()};
  for (const CoreRow& row : core_rows()) {
    if (!arguments.only.empty() &&
        std::ranges::find(arguments.only, row.name) == arguments.only.end())
      continue;
    std::fprintf(stderr, "%s ...\n", row.name);
    report.rows.push_back(row.measure(arguments.core));
  }
  std::printf("%s\n", (arguments.json ? to_json(report) : to_table(report)).c_str());
  return report.ok() ? kExitOk : kExitBarMissed;
}

int run(int argc, char** argv) {
  CLI::App app("What each part costs, beside the limit that the machine sets.", "cachebench");
  app.set_version_flag("--version", "cachebench " KV_VERSION, "print the version");
  app.require_subcommand(1);
  app.footer(
      "Each row is measured in turn with its limit, in the same run: the ratio says how near it "
      "is.\n"
      "Examples:\n"
      "  cachebench core\n"
      "  cachebench core --only match_8192_tokens --json\n"
      "  cachebench core --blocks 65536 --rounds 50\n"
      "Exit codes: 0 ok, 1 failed, 2 usage, 3 a row missed its bar.");
  Arguments arguments;
  std::vector<std::string> names;
  for (const CoreRow& row : core_rows()) names.emplace_back(row.name);

  CLI::App* core = app.add_subcommand("core", "prefix tree, eviction, the Engine's steps");
  core->add_option("--blocks", arguments.core.blocks, "cached blocks (default 1048576)")
      ->check(CLI::Range(8'192U, 1U << 24U));
  core->add_option("--rounds", arguments.core.rounds, "pairs of a row (default 400)")
      ->check(CLI::Range(3U, 1'000'000U));
  core->add_option("--only", arguments.only, "these rows")->check(CLI::IsMember(names));
  core->add_flag("--json", arguments.json, "print JSON");

  CLI::App* count = app.add_subcommand(
      "count", "run one piece of work for valgrind --tool=callgrind --instr-atstart=no");
  count->add_option("work", arguments.counted, "what to run")
      ->required()
      ->check(CLI::IsMember(counted_names()));
  count->add_option("--operations", arguments.operations, "how often (default 1000)")
      ->check(CLI::Range(1U, 1U << 24U));
  count->add_option("--blocks", arguments.core.blocks, "cached blocks (default 1048576)")
      ->check(CLI::Range(8'192U, 1U << 24U));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "error: %s\n", kv::program::usage_error_text(app, error).c_str());
    return kExitUsage;
  }
  if (core->parsed()) return run_core(arguments);
  run_counted(arguments.counted, arguments.operations, arguments.core.blocks);
  return kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  kv::program::keep_standard_streams();
  try {
    return kv::program::finish_output(run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return kExitFailed;
  }
}
