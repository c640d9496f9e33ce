#include "tools/cachectl/commands.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <poll.h>

#include "plugins/client/client.h"
#include "plugins/client/default_dir.h"
#include "tools/cachectl/exit_code.h"
#include "tools/cachectl/prompt.h"
#include "tools/cachectl/render.h"

namespace kv::cachectl {
namespace {

using client::Client;
using client::in;
using std::chrono::milliseconds;

// A service that does not take us in by then is as good as dead.
constexpr milliseconds kAttachTimeMax{1'500};
constexpr milliseconds kReadTime{5'000};
constexpr milliseconds kMoveTime{60'000};

std::string_view remedy(ErrorCode code) {
  switch (code) {
    case ErrorCode::unavailable:
      return "or name another one with --dir or --endpoint";
    case ErrorCode::deadline:
      return "it is busy or hung: try again, with a longer --timeout, or restart it";
    case ErrorCode::denied:
      return "run this as the user of the service, or as root";
    case ErrorCode::stale:
      return "the service restarted meanwhile: run this again";
    case ErrorCode::exhausted:
    case ErrorCode::busy:
      return "try again later";
    case ErrorCode::not_found:
      return "check the path";
    case ErrorCode::corrupt:
    case ErrorCode::mismatch:
    case ErrorCode::unsupported:
      return "check that cachectl and the service are of the same version";
    case ErrorCode::ok:
    case ErrorCode::exists:
    case ErrorCode::too_large:
    case ErrorCode::invalid:
      break;
  }
  return "see cachectl --help";
}

int fail(const Error& error, const std::string& where) {
  const std::string field = error.field.empty() ? "" : " (" + std::string(error.field) + ")";
  const std::string_view advice = remedy(error.code);
  std::fprintf(stderr, "error: %s: %.*s%s; %.*s\n", where.c_str(),
               static_cast<int>(error.reason.size()), error.reason.data(), field.c_str(),
               static_cast<int>(advice.size()), advice.data());
  return kExitFailed;
}

// False when the reader of stdout is gone.
bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

template <class Report>
Result<int> show(const CommandLine& line, const Report& report) {
  const bool indented = !line.watch.has_value();
  const bool printed = print(line.json ? as_json(report, indented) : as_text(report));
  return printed ? kExitOk : kExitFailed;
}

Result<int> show_status(Client& service, const CommandLine& line, const std::string& endpoint,
                        milliseconds time) {
  while (true) {
    KV_TRY(auto status, service.status(in(time)));
    KV_TRY(const int code, show(line, StatusReport{.status = std::move(status),
                                                   .endpoint = endpoint,
                                                   .boot = service.boot()}));
    if (code != kExitOk || !line.watch.has_value()) return code;
    if (!line.json && !print("\n")) return kExitFailed;
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
  return hits.hit_tokens < line.required_hit_tokens ? kExitNotMet : code;
}

Result<int> run_command(Client& service, const CommandLine& line, const Prompt& prompt,
                        const std::string& endpoint) {
  const bool moves = line.command == Command::demote || line.command == Command::flush;
  const milliseconds time = line.timeout.value_or(moves ? kMoveTime : kReadTime);
  switch (line.command) {
    case Command::status:
      return show_status(service, line, endpoint, time);
    case Command::lookup:
      return show_lookup(service, line, prompt, time);
    case Command::tree: {
      KV_TRY(const auto tree, service.tree(line.node_limit, in(time)));
      return show(line, tree);
    }
    case Command::demote: {
      KV_TRY(const auto outcome, service.demote(line.tier, in(time)));
      return show(line, DemoteReport{line.tier, outcome});
    }
    case Command::flush: {
      KV_TRY(const auto outcome, service.flush(in(time)));
      return show(line, outcome);
    }
  }
  return kExitUsage;
}

}  // namespace

int run(const CommandLine& line) {
  Prompt prompt;
  if (line.command == Command::lookup) {
    auto read = read_prompt(line);
    if (!read) return fail(read.error(), line.model.empty() ? "the command line" : line.model);
    prompt = std::move(*read);
  }
  const auto addresses = client::find_addresses(line.dir, line.endpoint);
  if (!addresses) {
    return fail(addresses.error(), line.endpoint.empty() ? line.dir : line.endpoint);
  }
  const bool moves = line.command == Command::demote || line.command == Command::flush;
  Client::Options options;
  options.dir = line.dir;
  options.endpoint = line.endpoint;
  options.name = "cachectl";
  options.role = moves ? Client::Role::admin : Client::Role::runner;
  options.deadline = in(std::min(line.timeout.value_or(kAttachTimeMax), kAttachTimeMax));
  auto service = Client::connect(options);
  if (!service) return fail(service.error(), addresses->service);
  const auto code = run_command(**service, line, prompt, addresses->service);
  return code ? *code : fail(code.error(), addresses->service);
}

}  // namespace kv::cachectl
