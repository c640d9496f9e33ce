#include "tools/cachesim/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include "cachesvc/program/usage_error.h"
#include "tools/cachesim/cache_model.h"
#include "tools/cachesim/exit_code.h"

namespace kv::cachesim {
namespace {

constexpr const char* kFormatsHelp =
    R"(Formats (by the file's beginning, or --format; plain, gz, xz or zst):
  mooncake       a request a line with hash_ids, a block 512 tokens unless it says otherwise
  weka           sessions as lines, ids as [first, count]
  weka-sessions  an archive of sessions, one JSON file each
  azure          CSV of arrivals and sizes: for info only
  ragpulse       0_trace with the files of token lengths beside it

)";

constexpr const char* kExitCodes =
    "\nExit codes: 0 ok, 1 the trace cannot be read or used, 2 usage.";

constexpr const char* kExamples = R"(Examples:
  cachesim info trace.jsonl.gz
  cachesim hits trace.jsonl.gz --policy lru --capacity-blocks 1% 5% 10%
  cachesim hits trace.jsonl.gz --policy lru arc min_bypass --capacity-blocks 16384 --json
  cachesim hits weka_requests.jsonl.gz --sessions 100 --policy lru --capacity-blocks 5616
  cachesim replay trace.jsonl.gz --config SIM.toml
  cachesim sweep trace.jsonl.gz --config SIM.toml --vary host.capacity=0,256GiB,1TiB
)";

std::string help_of_hits() {
  std::string text = "Policies of the service, through its own prefix cache:\n";
  const auto line = [](const PolicyEntry& policy) {
    std::string row = "  " + std::string(policy.name);
    row.resize(std::max<std::size_t>(row.size(), 22), ' ');
    return row + " " + std::string(policy.what) + "\n";
  };
  for (const PolicyEntry& policy : known_policies()) {
    if (policy.production) text += line(policy);
  }
  text += "\nFor comparison only:\n";
  for (const PolicyEntry& policy : known_policies()) {
    if (!policy.production) text += line(policy);
  }
  return text + "\n" + kFormatsHelp + kExamples + kExitCodes;
}

// Options that take several values take the file behind them, too.
std::string file_comes_first(const std::string& text) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(text, ignored)) return {};
  return "'" + text + "' is a file: it comes first, cachesim hits FILE --policy ...";
}

std::string check_policy(const std::string& name) {
  if (std::string problem = file_comes_first(name); !problem.empty()) return problem;
  const auto same = [&](const PolicyEntry& policy) { return policy.name == name; };
  if (std::ranges::any_of(known_policies(), same)) return {};
  std::string known;
  for (const PolicyEntry& policy : known_policies()) {
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  return "no policy '" + name + "' (policies: " + known + ")";
}

std::string check_capacity(const std::string& text) {
  if (parse_capacity(text)) return {};
  if (std::string problem = file_comes_first(text); !problem.empty()) return problem;
  return "'" + text + "' is no capacity: write blocks (5616) or a share of the unique ones (5%)";
}

void add_reading(CLI::App& command, CommandLine& line) {
  command.add_option("FILE", line.file, "the trace")->required()->check(CLI::ExistingFile);
  command.add_option("--format", line.reading.format, "the trace's format, if it is not seen")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kFormats), std::end(kFormats))));
  command.add_flag("--strict", line.reading.strict, "stop at the first broken line");
  command.add_flag("--json", line.json, "print JSON");
  command
      .add_option("--block-tokens", line.reading.block_tokens,
                  "mooncake: tokens of a block, whatever the trace says")
      ->check(CLI::Range(1U, 1U << 20U));
  command.add_option("--sessions", line.reading.sessions, "weka: only so many first sessions")
      ->check(CLI::Range(1U, 1U << 30U));
  command
      .add_option_function<double>(
          "--stagger-s",
          [&line](const double& seconds) {
            line.reading.stagger_ms = static_cast<std::uint64_t>(std::llround(seconds * 1000));
          },
          "weka: seconds from one session's start to the next (default: 60)")
      ->check(CLI::Range(0.0, 1e6));
}

std::string check_setting(const std::string& text) {
  if (text.find('=') != std::string::npos) return {};
  return "'" + text + "' is no setting: write section.key=value";
}

void add_settings(CLI::App& command, CommandLine& line) {
  command.add_option("--config", line.config, "SIM.toml: machines and load (default: as below)");
  command
      .add_option_function<std::vector<std::string>>(
          "--set",
          [&line](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              const std::size_t equals = text.find('=');
              line.settings.emplace_back(text.substr(0, equals), text.substr(equals + 1));
            }
          },
          "section.key=value: wins over the file")
      ->check(check_setting);
}

void add_replay(CLI::App& app, CommandLine& line) {
  auto* replay =
      app.add_subcommand("replay", "the service's engine on a trace, under virtual time");
  replay->footer(sim_keys_as_help() + "\n" + kFormatsHelp +
                 "Examples:\n  cachesim replay trace.jsonl.gz --config SIM.toml\n"
                 "  cachesim replay trace.jsonl.gz --set host.capacity=1TiB --json\n" +
                 kExitCodes);
  add_reading(*replay, line);
  add_settings(*replay, line);
  replay->callback([&line] { line.command = Command::replay; });
}

std::string check_variation(const std::string& text) {
  if (parse_variation(text)) return {};
  return "'" + text + "' varies nothing: write section.key=value,value,...";
}

void add_sweep(CLI::App& app, CommandLine& line) {
  auto* sweep =
      app.add_subcommand("sweep", "a replay for each combination of settings, a row each");
  sweep->footer(sim_keys_as_help() + "\n" + kFormatsHelp +
                "Examples:\n"
                "  cachesim sweep trace.jsonl.gz --vary host.capacity=0,256GiB,1TiB\n"
                "  cachesim sweep trace.jsonl.gz --config SIM.toml --vary instance.count=2,4 "
                "instance.router=prefix,random --json\n" +
                kExitCodes);
  add_reading(*sweep, line);
  add_settings(*sweep, line);
  sweep
      ->add_option_function<std::vector<std::string>>(
          "--vary",
          [&line](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              if (auto variation = parse_variation(text)) line.variations.push_back(*variation);
            }
          },
          "section.key=value,value,...: what changes from row to row")
      ->required()
      ->check(check_variation);
  sweep->add_option("--jobs", line.jobs, "replays at one time (default: one a processor)")
      ->check(CLI::Range(1U, 1'024U));
  sweep->callback([&line] { line.command = Command::sweep; });
}

void add_commands(CLI::App& app, CommandLine& line) {
  app.require_subcommand(1);
  auto* info = app.add_subcommand("info", "what a trace holds, and what any cache could hit of it");
  info->footer(
      std::string(kFormatsHelp) +
      "Examples:\n  cachesim info trace.jsonl.gz\n  cachesim info trace.jsonl.gz --json\n" +
      kExitCodes);
  add_reading(*info, line);
  info->callback([&line] { line.command = Command::info; });

  auto* hits = app.add_subcommand("hits", "hits of policies at capacities, one row each");
  hits->footer(help_of_hits());
  add_reading(*hits, line);
  hits->add_option("--policy", line.policies, "which ones (default: lru)")->check(check_policy);
  hits->add_option_function<std::vector<std::string>>(
          "--capacity-blocks",
          [&line](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              if (const auto capacity = parse_capacity(text)) line.capacities.push_back(*capacity);
            }
          },
          "blocks, or a share of the unique ones: 5616, 5%")
      ->required()
      ->check(check_capacity);
  hits->add_flag("--time", line.time, "with the seconds of CPU time that each row took");
  hits->callback([&line] {
    line.command = Command::hits;
    if (line.policies.empty()) line.policies = {"lru"};
  });
  add_replay(app, line);
  add_sweep(app, line);
}

}  // namespace

std::uint32_t Capacity::of(std::uint32_t unique_blocks) const {
  if (blocks > 0) return blocks;
  return std::max(1U, static_cast<std::uint32_t>(std::floor(share * unique_blocks)));
}

std::optional<Capacity> parse_capacity(const std::string& text) {
  const bool percent = text.ends_with('%');
  const char* begin = text.data();
  const char* end = begin + text.size() - (percent ? 1 : 0);
  Capacity capacity;
  if (percent) {
    double value = 0;
    const auto [stop, problem] = std::from_chars(begin, end, value, std::chars_format::fixed);
    if (problem != std::errc() || stop != end || !(value > 0) || value > 100) return std::nullopt;
    capacity.share = value / 100;
    return capacity;
  }
  const auto [stop, problem] = std::from_chars(begin, end, capacity.blocks);
  constexpr std::uint32_t kCapacityMax = 1U << 30U;
  if (problem != std::errc() || stop != end || capacity.blocks == 0 ||
      capacity.blocks > kCapacityMax) {
    return std::nullopt;
  }
  return capacity;
}

std::variant<CommandLine, Ending> parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  CLI::App app{"The cache of the service on real traces: what would it hit?", "cachesim"};
  app.set_version_flag("--version", "cachesim " KV_VERSION, "print the version");
  app.footer(std::string(kExamples) + kExitCodes);
  try {
    add_commands(app, line);
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream out;
    app.exit(success, out, out);
    return Ending{kExitOk, out.str()};
  } catch (const CLI::Error& error) {
    return Ending{kExitUsage, "error: " + program::usage_error_text(app, error)};
  }
  const CLI::App& command = *app.get_subcommands().front();
  line.reading.wants_sessions = command.count("--sessions") + command.count("--stagger-s") > 0;
  return line;
}

}  // namespace kv::cachesim
