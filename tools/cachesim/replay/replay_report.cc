#include "tools/cachesim/replay/replay_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cachesim/compute_cost.h"
#include "tools/cachesim/replay/wide.h"

namespace kv::cachesim {
namespace {

using nlohmann::ordered_json;

constexpr std::array<const char*, kTiers> kTierNames = {"device", "host", "disk"};

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::uint64_t ns(Duration time) { return static_cast<std::uint64_t>(time.count()); }

// Percentiles are values that occurred: the least that so many per cent do not exceed.
ordered_json distribution(std::vector<std::uint64_t> values) {
  ordered_json out = {
      {"count", values.size()}, {"mean", 0}, {"p50", 0}, {"p90", 0}, {"p99", 0}, {"max", 0}};
  if (values.empty()) return out;
  std::ranges::sort(values);
  Wide sum = 0;
  for (const std::uint64_t value : values) sum += value;
  out["mean"] = static_cast<std::uint64_t>(sum / values.size());
  const auto at = [&](std::size_t percent) {
    return values[std::max<std::size_t>(1, (values.size() * percent + 99) / 100) - 1];
  };
  out["p50"] = at(50);
  out["p90"] = at(90);
  out["p99"] = at(99);
  out["max"] = values.back();
  return out;
}

struct Times {
  std::vector<std::uint64_t> first_token, each_token, queue, load, whole;
};

Times times_of(const Trace& trace, const ReplayOutcome& outcome) {
  Times times;
  for (std::size_t i = 0; i < outcome.results.size(); ++i) {
    const RequestResult& result = outcome.results[i];
    if (result.refused) continue;
    times.first_token.push_back(ns(result.first_token - result.arrival));
    times.queue.push_back(ns(result.admitted - result.arrival));
    times.load.push_back(ns(result.ready - result.admitted));
    times.whole.push_back(ns(result.end - result.arrival));
    const std::uint64_t further = std::max(1U, trace.requests[i].output_tokens) - 1;
    if (further > 0) times.each_token.push_back(ns(result.end - result.first_token) / further);
  }
  return times;
}

struct Tokens {
  std::array<std::uint64_t, kTiers> hits{};
  std::uint64_t input = 0, computed = 0, refused = 0, generated = 0;
  std::uint64_t requests_refused = 0, block_hits = 0, block_accesses = 0;
  double flops = 0, flops_saved = 0;
  [[nodiscard]] std::uint64_t all_hits() const { return hits[0] + hits[1] + hits[2]; }
};

Tokens tokens_of(const Trace& trace, const ReplayOutcome& outcome) {
  Tokens tokens;
  for (std::size_t i = 0; i < outcome.results.size(); ++i) {
    const RequestResult& result = outcome.results[i];
    const TraceRequest& request = trace.requests[i];
    tokens.input += request.input_tokens;
    tokens.block_accesses += request.block_count;
    tokens.block_hits += result.hit_blocks;
    tokens.flops += prefill_flops(request.input_tokens);
    if (result.refused) {
      tokens.refused += request.input_tokens;
      ++tokens.requests_refused;
      continue;
    }
    tokens.computed += result.computed_tokens;
    tokens.generated += request.output_tokens;
    std::uint64_t hit = 0;
    for (std::size_t t = 0; t < kTiers; ++t) {
      tokens.hits[t] += result.hit_tokens[t];
      hit += result.hit_tokens[t];
    }
    tokens.flops_saved += prefill_flops(hit);
  }
  return tokens;
}

ordered_json tiers_json(const ReplayOptions& options, const ReplayOutcome& outcome) {
  ordered_json out = ordered_json::object();
  for (std::size_t t = 0; t < kTiers; ++t) {
    const TierUse& use = outcome.tiers[t];
    out[kTierNames[t]] = {{"capacity_blocks", use.capacity_blocks},
                          {"capacity_bytes", use.capacity_blocks * options.block_bytes},
                          {"used_blocks_mean", use.used_blocks_mean},
                          {"used_blocks_max", use.used_blocks_max}};
  }
  return out;
}

ordered_json links_json(const ReplayOptions& options, const ReplayOutcome& outcome) {
  const std::uint64_t whole = ns(outcome.end.time_since_epoch()) * options.machines;
  ordered_json out = ordered_json::object();
  for (std::size_t i = 0; i < kLinkCount; ++i) {
    const LinkUse& link = outcome.links[i];
    out[kLinkNames[i]] = {{"bytes", link.bytes},
                          {"transfers", link.transfers},
                          {"busy", ratio(ns(link.busy), whole)}};
  }
  return out;
}

// A rate of a whole run, by the day.
std::uint64_t per_day(std::uint64_t amount, TimePoint end) {
  constexpr std::uint64_t kNsPerDay = 86'400 * kNsPerSecond;
  const std::uint64_t whole = ns(end.time_since_epoch());
  return whole == 0 ? 0 : scaled(amount, kNsPerDay, whole);
}

// ---------------------------------------------------------------- as a table

std::string text_of(const char* format, auto... values) {
  char text[160];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string duration_text(std::uint64_t time_ns) {
  const auto value = static_cast<double>(time_ns);
  if (time_ns < 1'000'000) return text_of("%.1f us", value / 1e3);
  if (time_ns < 10'000'000'000) return text_of("%.2f ms", value / 1e6);
  return text_of("%.2f s", value / 1e9);
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return text_of(unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
}

std::string row(const std::string& name, const std::string& value) {
  return text_of("%-18s ", name.c_str()) + value + "\n";
}

std::string share_row(const std::string& name, std::uint64_t part, std::uint64_t whole) {
  return row(name, text_of("%14llu  %6.2f%%", static_cast<unsigned long long>(part),
                           100 * ratio(part, whole)));
}

// As %llu wants it.
unsigned long long number(const ordered_json& value) { return value.get<std::uint64_t>(); }

}  // namespace

ordered_json report_json(const Trace& trace, const ReplayOptions& options,
                         const ReplayOutcome& outcome) {
  const Tokens tokens = tokens_of(trace, outcome);
  Times times = times_of(trace, outcome);
  ordered_json out;
  out["requests"] = {{"total", trace.requests.size()}, {"refused", tokens.requests_refused}};
  out["tokens"] = {
      {"input", tokens.input},
      {"hit", {{"device", tokens.hits[0]}, {"host", tokens.hits[1]}, {"disk", tokens.hits[2]}}},
      {"computed", tokens.computed},
      {"refused", tokens.refused},
      {"generated", options.counts_only ? 0 : tokens.generated}};
  out["token_hit_ratio"] = ratio(tokens.all_hits(), tokens.input);
  out["block_hits"] = tokens.block_hits;
  out["block_accesses"] = tokens.block_accesses;
  out["compute_saved"] = tokens.flops > 0 ? tokens.flops_saved / tokens.flops : 0;
  if (!options.counts_only) {
    out["ttft_ns"] = distribution(std::move(times.first_token));
    out["tpot_ns"] = distribution(std::move(times.each_token));
    out["queue_ns"] = distribution(std::move(times.queue));
    out["load_ns"] = distribution(std::move(times.load));
    out["request_ns"] = distribution(std::move(times.whole));
  }
  out["duration_ns"] = ns(outcome.end.time_since_epoch());
  out["steps"] = outcome.steps;
  out["computing"] =
      ratio(ns(outcome.computing), ns(outcome.end.time_since_epoch()) * options.machines);
  out["tiers"] = tiers_json(options, outcome);
  out["links"] = links_json(options, outcome);
  const LinkUse& disk = outcome.links[static_cast<std::size_t>(LinkName::host_to_disk)];
  out["disk_bytes_written_per_day"] = per_day(disk.bytes, outcome.end);
  return out;
}

std::string report_text(const ordered_json& report) {
  const auto& tokens = report["tokens"];
  const auto input = number(tokens["input"]);
  std::string out = row("requests", text_of("%14llu", number(report["requests"]["total"])));
  if (const auto refused = number(report["requests"]["refused"]); refused > 0) {
    out += row("refused", text_of("%14llu  larger than the device tier", refused));
  }
  out += share_row("input tokens", input, input);
  for (const char* tier : kTierNames) {
    out += share_row(std::string("hit, ") + tier, number(tokens["hit"][tier]), input);
  }
  out += share_row("computed", number(tokens["computed"]), input);
  if (number(tokens["refused"]) > 0) out += share_row("refused", number(tokens["refused"]), input);
  out += row("compute saved", text_of("%23.2f%%", 100 * report["compute_saved"].get<double>()));
  out +=
      row("duration", duration_text(number(report["duration_ns"])) +
                          text_of(", computing %.1f%%", 100 * report["computing"].get<double>()));
  if (report.contains("ttft_ns")) {
    out += text_of("\n%-18s %12s %12s %12s %12s\n", "", "mean", "p50", "p90", "p99");
    constexpr std::array<std::array<const char*, 2>, 5> kRows = {{{"first token", "ttft_ns"},
                                                                  {"  in the queue", "queue_ns"},
                                                                  {"  loading", "load_ns"},
                                                                  {"each further", "tpot_ns"},
                                                                  {"request", "request_ns"}}};
    for (const auto& [name, key] : kRows) {
      out += text_of("%-18s", name);
      for (const char* column : {"mean", "p50", "p90", "p99"}) {
        out += text_of(" %12s", duration_text(number(report[key][column])).c_str());
      }
      out += "\n";
    }
  }
  out += text_of("\n%-18s %12s %12s %12s\n", "tier", "capacity", "used, mean", "most");
  for (const auto& [name, tier] : report["tiers"].items()) {
    const std::uint64_t blocks = number(tier["capacity_blocks"]);
    if (blocks == 0) continue;
    out += text_of("%-18s %12s %11.1f%% %11.1f%%\n", name.c_str(),
                   bytes_text(number(tier["capacity_bytes"])).c_str(),
                   100 * ratio(number(tier["used_blocks_mean"]), blocks),
                   100 * ratio(number(tier["used_blocks_max"]), blocks));
  }
  out += text_of("\n%-18s %12s %12s %12s\n", "link", "moved", "transfers", "busy");
  for (const auto& [name, link] : report["links"].items()) {
    if (number(link["transfers"]) == 0) continue;
    out += text_of("%-18s %12s %12llu %11.1f%%\n", name.c_str(),
                   bytes_text(number(link["bytes"])).c_str(), number(link["transfers"]),
                   100 * link["busy"].get<double>());
  }
  if (const std::uint64_t bytes = number(report["disk_bytes_written_per_day"]); bytes > 0) {
    out += row("\nwritten to disk", bytes_text(bytes) + " a day");
  }
  return out;
}

Result<void> check_conservation(const Trace& trace, const ReplayOutcome& outcome) {
  const Tokens tokens = tokens_of(trace, outcome);
  if (tokens.all_hits() + tokens.computed + tokens.refused != tokens.input) {
    return Error{ErrorCode::corrupt, "hits, computed and refused tokens are not the input", {}};
  }
  std::uint64_t counted = 0;
  for (const core::Counters& counters : outcome.counters) {
    for (const std::uint64_t blocks : counters.hit_tokens) counted += blocks;
  }
  if (counted != tokens.block_hits) {
    return Error{ErrorCode::corrupt, "the Engine counted other hits than its replies said", {}};
  }
  return {};
}

}  // namespace kv::cachesim
