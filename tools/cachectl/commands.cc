#include "tools/cachectl/commands.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include <poll.h>
#include <unistd.h>

#include "plugins/client/client.h"
#include "plugins/client/default_dir.h"
#include "tools/cachectl/exit_code.h"
#include "tools/cachectl/messages.h"
#include "tools/cachectl/prompt.h"
#include "tools/cachectl/render.h"

namespace kv::cachectl {
namespace {

using client::Client;
using client::in;
using std::chrono::milliseconds;

// Unless --timeout says otherwise: a service that does not take us in by then is as good as dead.
constexpr milliseconds kAttachTime{1'500};
constexpr milliseconds kReadTime{5'000};
constexpr milliseconds kMoveTime{60'000};

int fail(const std::string& message, int exit_code = kExitFailed) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return exit_code;
}

// False when the reader of stdout is gone.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

// On a terminal each answer takes the place of the one before. False as print().
bool print_heading() {
  constexpr const char* kClear = "\x1b[H\x1b[2J";
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  if (localtime_r(&now, &parts) == nullptr) return print(kClear);
  const std::size_t bytes = std::strftime(text.data(), text.size(), "%F %T\n", &parts);
  return print(kClear + std::string(text.data(), bytes));
}

template <class Report>
Result<int> show(const CommandLine& line, const Report& report) {
  const bool indented = !line.watch.has_value();
  const bool printed = print(line.json ? as_json(report, indented) : as_text(report));
  return printed ? kExitOk : kExitFailed;
}

Result<int> show_status(Client& service, const CommandLine& line, const std::string& endpoint,
                        milliseconds time) {
  const bool redraws = line.watch.has_value() && !line.json && isatty(STDOUT_FILENO) == 1;
  while (true) {
    KV_TRY(auto status, service.status(in(time)));
    if (redraws && !print_heading()) return kExitFailed;
    KV_TRY(const int code, show(line, StatusReport{.status = std::move(status),
                                                   .endpoint = endpoint,
                                                   .boot = service.boot(),
                                                   .all_counters = line.all}));
    if (code != kExitOk || !line.watch.has_value()) return code;
    if (!line.json && !redraws && !print("\n")) return kExitFailed;
    (void)poll(nullptr, 0, static_cast<int>(line.watch->count()));
  }
}

Result<int> show_lookup(Client& service, const CommandLine& line, const Prompt& prompt,
                        milliseconds time) {
  KV_TRY(const auto hits, service.lookup(prompt.fields(), prompt.tokens, in(time)));
  KV_TRY(const auto status, service.status(in(time)));
  const LookupReport report{
      .hits = hits, .prompt_tokens = prompt.tokens.size(), .block_tokens = status.block_tokens};
  KV_TRY(const int code, show(line, report));
  if (hits.hit_tokens >= line.required_hit_tokens) return code;
  std::fprintf(stderr, "not met: %llu tokens are hit, and --require-hit-tokens wants %llu\n",
               static_cast<unsigned long long>(hits.hit_tokens),
               static_cast<unsigned long long>(line.required_hit_tokens));
  return kExitNotMet;
}

// Commands that change what the service holds, for administrators.
bool moves_blocks(const CommandLine& line) {
  return line.command == Command::demote || line.command == Command::flush ||
         line.command == Command::clear;
}

// A disk that should be there and is not has kept nothing: that is a failure, with its reason.
Result<int> run_flush(Client& service, const CommandLine& line, milliseconds time) {
  FlushReport report;
  KV_TRY(report.outcome, service.flush(in(time)));
  KV_TRY(auto status, service.status(in(time)));
  report.disk_is_off = status.block_tokens != 0 && status.tiers[tier_index(Tier::disk)].slots == 0;
  report.disk_problem = std::move(status.disk_problem);
  KV_TRY(const int code, show(line, report));
  if (code != kExitOk) return code;
  return report.disk_problem.empty() || report.outcome.unsaved_blocks == 0 ? kExitOk : kExitFailed;
}

Result<int> run_clear(Client& service, const CommandLine& line, const Prompt& prompt,
                      milliseconds time) {
  const NamespaceFields fields = prompt.fields();
  ClearReport report{
      .tier = line.cleared_tier, .one_namespace = line.has_namespace(), .outcome = {}};
  if (line.epoch.has_value()) {
    KV_TRY(report.outcome, service.set_epoch(fields, *line.epoch, in(time)));
  } else {
    KV_TRY(report.outcome,
           service.clear(line.cleared_tier, report.one_namespace ? &fields : nullptr, in(time)));
  }
  return show(line, report);
}

Result<int> run_command(Client& service, const CommandLine& line, const Prompt& prompt,
                        const std::string& endpoint) {
  const milliseconds time = line.timeout.value_or(moves_blocks(line) ? kMoveTime : kReadTime);
  switch (line.command) {
    case Command::status:
      return show_status(service, line, endpoint, time);
    case Command::lookup:
      return show_lookup(service, line, prompt, time);
    case Command::why: {
      KV_TRY(const auto answer, service.why(prompt.fields(), prompt.tokens, in(time)));
      return show(line, answer);
    }
    case Command::tree: {
      KV_TRY(const auto tree, service.tree(line.node_limit, in(time)));
      return show(line, tree);
    }
    case Command::demote: {
      KV_TRY(const auto outcome, service.demote(line.tier, in(time)));
      return show(line, DemoteReport{line.tier, outcome});
    }
    case Command::flush:
      return run_flush(service, line, time);
    case Command::clear:
      return run_clear(service, line, prompt, time);
  }
  return kExitUsage;
}

}  // namespace

int run(const CommandLine& line) {
  Prompt prompt;
  const bool has_prompt = line.command == Command::lookup || line.command == Command::why;
  if (has_prompt || line.has_namespace()) {
    auto read = read_prompt(line);
    if (!read) {
      const bool is_usage = read.error().field == kTokensField;
      return fail(prompt_message(line, read.error()), is_usage ? kExitUsage : kExitFailed);
    }
    prompt = std::move(*read);
  }
  const auto addresses = client::find_addresses(line.dir, line.endpoint);
  if (!addresses) return fail(address_message(line, addresses.error()));
  Client::Options options;
  options.dir = line.dir;
  options.endpoint = line.endpoint;
  options.name = "cachectl";
  const bool is_admin = moves_blocks(line) || line.command == Command::why;
  options.role = is_admin ? Client::Role::admin : Client::Role::runner;
  options.deadline = in(line.timeout.value_or(kAttachTime));
  auto service = Client::connect(options);
  if (!service) return fail(service_message(line, service.error()));
  const auto code = run_command(**service, line, prompt, addresses->service);
  return code ? *code : fail(service_message(line, code.error()));
}

}  // namespace kv::cachectl
