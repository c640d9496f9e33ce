#include "tools/cachesim/replay/replay_command.h"

#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cachesim/exit_code.h"
#include "tools/cachesim/hits.h"
#include "tools/cachesim/replay/replay_report.h"

namespace kv::cachesim {
namespace {

bool print(const std::vector<shell::ConfigProblem>& problems) {
  for (const auto& [key, message, remedy] : problems) {
    std::fprintf(stderr, "error: %s: %s; %s\n", key.c_str(), message.c_str(), remedy.c_str());
  }
  return !problems.empty();
}

}  // namespace

bool can_replay(const CommandLine& line, const Trace& trace) {
  if (trace.unique_blocks() > 0 && trace.block_tokens > 0) return true;
  std::fprintf(stderr, "error: %s: blocks of one size are needed, which the %s format has not\n",
               line.file.c_str(), trace.format.c_str());
  return false;
}

std::optional<ReplayOptions> replay_options(const CommandLine& line, const Settings& settings,
                                            const Trace& trace) {
  const LoadedSimConfig loaded = load_sim_config(line.config, settings);
  if (print(loaded.problems)) return std::nullopt;
  const ResolvedReplay resolved = resolve(loaded.config, trace);
  if (print(resolved.problems)) return std::nullopt;
  return resolved.options;
}

int run_replay(const CommandLine& line, Progress& progress, const Trace& trace) {
  if (!can_replay(line, trace)) return kExitFailed;
  const auto options = replay_options(line, line.settings, trace);
  if (!options) return kExitUsage;
  progress.start("replaying");
  RequestProgress report;
  if (progress.on()) {
    report = [&](std::uint64_t done, std::uint64_t total) { progress.report(done, total); };
  }
  const ReplayOutcome outcome = replay(trace, *options, report);
  progress.clear();
  if (const auto kept = check_conservation(trace, outcome); !kept) {
    std::fprintf(stderr, "error: %s; please report this\n",
                 std::string(kept.error().reason).c_str());
    return kExitFailed;
  }
  const nlohmann::ordered_json json = report_json(trace, *options, outcome);
  const std::string text = line.json ? json.dump(2) + "\n" : report_text(json);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace kv::cachesim
