#include "tools/cachesim/replay/sweep_command.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "tools/cachesim/exit_code.h"
#include "tools/cachesim/replay/replay_command.h"
#include "tools/cachesim/replay/sweep.h"

namespace kv::cachesim {
namespace {

using nlohmann::ordered_json;

constexpr int kValueWidth = 16;

// A column of the table: where its number is, and what it is divided by.
struct Column {
  const char* title;
  const char* section;  // of the report; null: the number itself
  const char* field;
  double divisor;
  int decimals;
};
constexpr Column kColumns[] = {
    {"token hits %", nullptr, "token_hit_ratio", 0.01, 2},
    {"compute saved %", nullptr, "compute_saved", 0.01, 2},
    {"ttft mean ms", "ttft_ns", "mean", 1e6, 2},
    {"p50", "ttft_ns", "p50", 1e6, 2},
    {"p99", "ttft_ns", "p99", 1e6, 2},
    {"tpot mean ms", "tpot_ns", "mean", 1e6, 2},
    {"refused", "requests", "refused", 1, 0},
};

double value_of(const Column& column, const ordered_json& report) {
  if (column.section != nullptr && !report.contains(column.section)) return 0;
  const ordered_json& from = column.section == nullptr ? report : report[column.section];
  return from[column.field].get<double>() / column.divisor;
}

void print_head(const std::vector<Variation>& variations) {
  for (const Variation& variation : variations) {
    std::printf("%-*s", std::max(kValueWidth, static_cast<int>(variation.key.size())),
                variation.key.c_str());
  }
  for (const Column& column : kColumns) std::printf(" %15s", column.title);
  std::printf("\n");
}

void print_row(const SweepPoint& point, const ordered_json& report) {
  for (const auto& [key, value] : point.settings) {
    std::printf("%-*s", std::max(kValueWidth, static_cast<int>(key.size())), value.c_str());
  }
  for (const Column& column : kColumns) {
    std::printf(" %15.*f", column.decimals, value_of(column, report));
  }
  std::printf("\n");
  std::fflush(stdout);
}

// The points, each of them checked; empty when one cannot be.
std::vector<SweepPoint> points_of(const CommandLine& line, const Trace& trace) {
  std::vector<SweepPoint> points;
  for (const Settings& varied : combinations(line.variations)) {
    Settings settings = line.settings;
    settings.insert(settings.end(), varied.begin(), varied.end());
    const auto options = replay_options(line, settings, trace);
    if (!options) return {};
    points.push_back({varied, *options});
  }
  return points;
}

}  // namespace

int run_sweep(const CommandLine& line, Progress& progress, const Trace& trace) {
  if (!can_replay(line, trace)) return kExitFailed;
  std::size_t count = 1;
  for (const Variation& variation : line.variations) {
    count = std::min(count * variation.values.size(), kSweepPointsMax + 1);
  }
  if (count > kSweepPointsMax) {
    std::fprintf(stderr, "error: --vary: more than %zu combinations\n", kSweepPointsMax);
    return kExitUsage;
  }
  const std::vector<SweepPoint> points = points_of(line, trace);
  if (points.empty()) return kExitUsage;
  const unsigned workers = line.jobs > 0 ? line.jobs : std::thread::hardware_concurrency();
  ordered_json rows = ordered_json::array();
  progress.start("replaying");
  if (!line.json) print_head(line.variations);
  const std::string problem = sweep(
      trace, points, workers,
      [&](const SweepPoint& point, const ordered_json& report) {
        progress.clear();
        if (!line.json) {
          print_row(point, report);
          return;
        }
        ordered_json settings = ordered_json::object();
        for (const auto& [key, value] : point.settings) settings[key] = value;
        rows.push_back({{"settings", settings}, {"report", report}});
      },
      [&](std::size_t finished) { progress.report(finished, points.size()); });
  progress.clear();
  if (!problem.empty()) {
    std::fprintf(stderr, "error: %s; please report this\n", problem.c_str());
    return kExitFailed;
  }
  if (line.json) std::fputs((ordered_json{{"rows", rows}}.dump(2) + "\n").c_str(), stdout);
  return kExitOk;
}

}  // namespace kv::cachesim
