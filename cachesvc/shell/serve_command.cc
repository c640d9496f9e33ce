#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>

#include <unistd.h>

#include "cachesvc/shell/commands.h"
#include "cachesvc/shell/config_show.h"
#include "cachesvc/shell/process_limits.h"
#include "cachesvc/shell/service.h"
#include "tiering/stores/open_attempt.h"

namespace kv::shell {
namespace {

int fail(const StartProblem& problem) {
  std::fprintf(stderr, "error: %s; %s\n", problem.message.c_str(), problem.remedy.c_str());
  return kExitFailed;
}

// Whoever started the service may wait for this line: where it cannot be written, the service must
// not go on as if it had been. A reader that went away does not wait. Not by stdio, which would try
// again at the end what failed here.
bool say_ready(std::string_view line) {
  while (!line.empty()) {
    const ssize_t count = write(STDOUT_FILENO, line.data(), line.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE) return true;
    if (count < 0) {
      std::fprintf(stderr, "error: the ready line cannot be written to standard output: %s; %s\n",
                   std::generic_category().message(errno).c_str(),
                   "give it another file, or /dev/null");
      return false;
    }
    line.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

int serve(const ConfigSources& sources) {
  if (const auto problem = settle_descriptors()) return fail(*problem);
  const LoadedConfig loaded = load_config(sources);
  if (!loaded.ok()) {
    std::fputs(problems_as_text(loaded).c_str(), stderr);
    return kExitUsage;
  }
  // A reader of stdout that went away must not end the service, nor a signal that other programs
  // take as a wish (to print figures, to open the log anew).
  for (const int number : {SIGPIPE, SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);
  if (const auto problem = settle_memory(loaded.config)) return fail(*problem);
  Service::Options options;
  options.config = loaded.config;
  options.handle_signals = true;
  auto made = Service::make(options);
  if (const auto* problem = std::get_if<StartProblem>(&made)) return fail(*problem);
  Service& service = *std::get<std::unique_ptr<Service>>(made);
  const std::string refusal(service.disk_refusal());
  if (!say_ready("ready endpoint=" + loaded.config.endpoint + " dir=" + loaded.config.dir +
                 (refusal.empty() ? "" : " disk=off reason=" + refusal) + "\n")) {
    return kExitFailed;
  }
  const Service::Ended how = service.run();
  // Destroying it would wait for the worker that hangs.
  if (how == Service::Ended::hung) {
    OpenAttempt::forget(loaded.config.dir + "/disk");
    std::_Exit(kExitFailed);
  }
  return how == Service::Ended::clean ? kExitOk : kExitFailed;
}

}  // namespace kv::shell
