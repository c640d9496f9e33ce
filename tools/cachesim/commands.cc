#include "tools/cachesim/commands.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cachesim/exit_code.h"
#include "tools/cachesim/hits.h"
#include "tools/cachesim/progress.h"
#include "tools/cachesim/replay/replay_command.h"
#include "tools/cachesim/replay/sweep_command.h"
#include "tools/cachesim/reuse.h"

namespace kv::cachesim {
namespace {

using nlohmann::ordered_json;

constexpr double kCurveShares[] = {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1};
constexpr double kDistanceShares[] = {0.5, 0.9, 0.99, 1};

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

void print_json(const ordered_json& value) { std::fputs((value.dump(2) + "\n").c_str(), stdout); }

std::string first_broken(const Trace& trace) {
  return "line " + std::to_string(trace.first_broken_line) + ": " + trace.first_broken_reason;
}

// True: there is a trace. Prints what is wrong otherwise.
bool read(const CommandLine& line, Progress& progress, Trace& trace) {
  ReadOptions options = line.reading;
  progress.start("reading " + line.file);
  if (progress.on()) {
    options.progress = [&](std::uint64_t done, std::uint64_t total) {
      progress.report(done, total);
    };
  }
  const Result<void> done = read_trace(line.file, options, trace);
  progress.clear();
  std::string problem;
  if (!done) problem = done.error().reason;
  if (!done && trace.broken_lines > 0 && options.strict) problem = first_broken(trace);
  if (done && trace.requests.empty()) {
    problem = "no request in it";
    if (trace.broken_lines > 0) problem += "; " + first_broken(trace);
  }
  if (!problem.empty()) {
    std::fprintf(stderr, "error: %s: %s\n", line.file.c_str(), problem.c_str());
    return false;
  }
  if (trace.broken_lines > 0) {
    std::fprintf(stderr, "warning: %s: %llu broken lines left out, the first is %s\n",
                 line.file.c_str(), static_cast<unsigned long long>(trace.broken_lines),
                 first_broken(trace).c_str());
  }
  return true;
}

struct TraceInfo {
  std::uint64_t input_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t duration_ms = 0;
  std::uint64_t block_accesses = 0;
  std::uint32_t blocks_max = 0;  // of one request
};

TraceInfo totals(const Trace& trace) {
  TraceInfo info;
  for (const TraceRequest& request : trace.requests) {
    info.input_tokens += request.input_tokens;
    info.output_tokens += request.output_tokens;
    info.duration_ms = std::max(info.duration_ms, request.time_ms);
    info.block_accesses += request.block_count;
    info.blocks_max = std::max(info.blocks_max, request.block_count);
  }
  return info;
}

ordered_json info_json(const Trace& trace, const TraceInfo& info, const Ceiling& ceiling) {
  ordered_json out = {{"format", trace.format},
                      {"requests", trace.requests.size()},
                      {"broken_lines", trace.broken_lines},
                      {"duration_ms", info.duration_ms},
                      {"input_tokens", info.input_tokens},
                      {"output_tokens", info.output_tokens}};
  if (info.block_accesses == 0) return out;
  out["block_tokens"] = trace.block_tokens;
  out["block_accesses"] = info.block_accesses;
  out["unique_blocks"] = trace.unique_blocks();
  out["roots"] = ceiling.roots;
  out["request_blocks_max"] = info.blocks_max;
  out["ceiling"] = {{"block_hits", ceiling.block_hits},
                    {"block_hit_ratio", ratio(ceiling.block_hits, info.block_accesses)},
                    {"token_hits", ceiling.token_hits},
                    {"token_hit_ratio", ratio(ceiling.token_hits, info.input_tokens)}};
  const ReuseDistances reuse(trace);
  out["reuse_distance_blocks"] = ordered_json::object();
  for (const double share : kDistanceShares) {
    const std::string name =
        share == 1 ? "max" : "p" + std::to_string(static_cast<int>(share * 100));
    out["reuse_distance_blocks"][name] = reuse.distance_at(share);
  }
  out["lru_curve"] = ordered_json::array();
  for (const double share : kCurveShares) {
    const std::uint32_t capacity = Capacity{0, share}.of(trace.unique_blocks());
    const std::uint64_t hits = reuse.block_hits(capacity);
    out["lru_curve"].push_back({{"capacity_blocks", capacity},
                                {"block_hits", hits},
                                {"block_hit_ratio", ratio(hits, info.block_accesses)}});
  }
  return out;
}

void row(const char* name, const std::string& value) {
  std::printf("%-16s %s\n", name, value.c_str());
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", 100 * share);
  return text;
}

void print_info(const ordered_json& info) {
  const auto number = [&](const char* name) {
    return std::to_string(info[name].get<std::uint64_t>());
  };
  row("format", info["format"].get<std::string>());
  row("requests", number("requests"));
  row("broken lines", number("broken_lines"));
  row("duration", std::to_string(info["duration_ms"].get<std::uint64_t>() / 1000) + " s");
  row("input tokens", number("input_tokens"));
  row("output tokens", number("output_tokens"));
  if (!info.contains("block_accesses")) {
    row("blocks", "none: the trace has sizes only, and no identity of content");
    return;
  }
  row("block tokens", info["block_tokens"] == 0 ? "of every size" : number("block_tokens"));
  row("block accesses", number("block_accesses"));
  row("unique blocks", number("unique_blocks"));
  row("roots", number("roots"));
  row("longest prompt", number("request_blocks_max") + " blocks");
  const auto& ceiling = info["ceiling"];
  row("ceiling", percent(ceiling["block_hit_ratio"].get<double>()) + " of blocks, " +
                     percent(ceiling["token_hit_ratio"].get<double>()) +
                     " of tokens: when nothing is ever evicted");
  const auto& distance = info["reuse_distance_blocks"];
  std::string distances;
  for (const auto& [name, blocks] : distance.items()) {
    distances +=
        (distances.empty() ? "" : ", ") + name + " " + std::to_string(blocks.get<std::uint64_t>());
  }
  row("reuse distance", distances + " blocks");
  std::printf("\n%16s %9s\n", "LRU, blocks", "hit ratio");
  for (const auto& point : info["lru_curve"]) {
    std::printf("%16llu %9s\n",
                static_cast<unsigned long long>(point["capacity_blocks"].get<std::uint64_t>()),
                percent(point["block_hit_ratio"].get<double>()).c_str());
  }
}

int run_info(const CommandLine& line, const Trace& trace) {
  const ordered_json info = info_json(trace, totals(trace), ceiling_of(trace));
  if (line.json) {
    print_json(info);
  } else {
    print_info(info);
  }
  return kExitOk;
}

ordered_json row_json(const HitCounts& counts, bool time) {
  ordered_json out = {{"policy", counts.policy},
                      {"capacity_blocks", counts.capacity_blocks},
                      {"block_hits", counts.block_hits},
                      {"block_accesses", counts.block_accesses},
                      {"token_hits", counts.token_hits},
                      {"tokens", counts.tokens},
                      {"compute_saved", counts.compute_saved}};
  if (time) out["seconds"] = counts.seconds;
  return out;
}

void print_row(const HitCounts& counts, bool time) {
  std::printf("%-20s %12u %12llu %9s %9s %9s", counts.policy.c_str(), counts.capacity_blocks,
              static_cast<unsigned long long>(counts.block_hits),
              percent(ratio(counts.block_hits, counts.block_accesses)).c_str(),
              percent(ratio(counts.token_hits, counts.tokens)).c_str(),
              percent(counts.compute_saved).c_str());
  if (time) std::printf(" %9.3f", counts.seconds);
  std::printf("\n");
  std::fflush(stdout);
}

int run_hits(const CommandLine& line, Progress& progress, const Trace& trace) {
  if (trace.unique_blocks() == 0) {
    std::fprintf(stderr, "error: %s: the %s format has sizes only; hits needs block ids\n",
                 line.file.c_str(), trace.format.c_str());
    return kExitFailed;
  }
  ordered_json rows = ordered_json::array();
  if (!line.json) {
    std::printf("%-20s %12s %12s %9s %9s %9s%s\n", "policy", "blocks", "block hits", "of blocks",
                "of tokens", "compute", line.time ? "   seconds" : "");
  }
  for (const std::string& policy : line.policies) {
    for (const Capacity& wanted : line.capacities) {
      const std::uint32_t capacity = wanted.of(trace.unique_blocks());
      progress.start(policy + " " + std::to_string(capacity));
      RequestProgress report;
      if (progress.on()) {
        report = [&](std::uint64_t done, std::uint64_t total) { progress.report(done, total); };
      }
      const HitCounts counts = count_hits(trace, policy, capacity, report);
      progress.clear();
      if (line.json) {
        rows.push_back(row_json(counts, line.time));
      } else {
        print_row(counts, line.time);
      }
    }
  }
  if (line.json) print_json({{"rows", rows}});
  return kExitOk;
}

}  // namespace

int run(const CommandLine& line) {
  Progress progress;
  Trace trace;
  if (!read(line, progress, trace)) return kExitFailed;
  switch (line.command) {
    case Command::info:
      return run_info(line, trace);
    case Command::hits:
      return run_hits(line, progress, trace);
    case Command::replay:
      return run_replay(line, progress, trace);
    case Command::sweep:
      break;
  }
  return run_sweep(line, progress, trace);
}

}  // namespace kv::cachesim
