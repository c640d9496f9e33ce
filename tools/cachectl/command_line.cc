#include "tools/cachectl/command_line.h"

#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include "cachesvc/program/usage_error.h"
#include "plugins/client/admin.h"
#include "plugins/client/argument_text.h"
#include "plugins/client/messages.h"
#include "tools/cachectl/exit_code.h"

namespace kv::cachectl {
namespace {

constexpr std::string_view kExitCodes =
    "\nExit codes: 0 ok, 1 failed or unreachable, 2 usage, 3 a check was not met.";

constexpr const char* kExamples = R"(Examples:
  cachectl status                        tiers, counters and hit ratio of the default service
  cachectl --dir /tmp/kv status --json   the same as JSON, of the service in /tmp/kv
  cachectl status --watch 2s             every two seconds
  cachectl lookup --model DIR --prompt "Once upon a time"
  cachectl lookup --namespace-weights W --namespace-config C --tokens 1,403,407
  cachectl why --model DIR --prompt "Once upon a time"
  cachectl tree                          what is cached, as a tree of blocks
  cachectl demote --tier device          save the device tier to the host tier and empty it
  cachectl flush                         make everything durable on disk
  cachectl clear --yes                   forget everything, in all tiers
)";

constexpr const char* kStatusHelp = R"(Words, by tier:
  held       slots of running sequences and transfers, not in the tree
  cached     slots with a block of the tree
  pinned     cached, and kept because a sequence or a load uses the block or one behind it
  evictable  cached, and may go when room is needed
  fenced     slots of a client that lost its lease: not given out before the client is gone
  remote     the tier of other machines; off when it has no slots

Words about blocks:
  holes      blocks of the tree that lost their last copy, with cached blocks behind them
  adopted    published blocks whose slot became the copy of a block known without one on the device
  rewritten  published blocks for which the runner uses the copy that was there already
  duplicate  published blocks that were there already and stayed private to their sequence

Examples:
  cachectl status                        tiers, counters and hit ratio of the default service
  cachectl --dir /tmp/kv status --json   the same as JSON, of the service in /tmp/kv
  cachectl status --watch 2s             every two seconds
)";

constexpr const char* kLookupHelp = R"(Examples:
  cachectl lookup --model DIR --prompt "Once upon a time"
  cachectl lookup --model DIR --tokens @prompt.json --require-hit-tokens 100
  cachectl lookup --namespace-weights W --namespace-config C --tokens 1,403,407
)";

constexpr const char* kWhyHelp = R"(Reasons:
  never_stored              nothing stored begins like it
  diverged                  the block of the first token that differs from what is stored
  after_divergence          the blocks behind it
  below_block               the last tokens, too few for a block
  tail_recompute            the last block of a cached prompt: one token at least is computed
  other_namespace           stored, but with another field of the namespace
  evicted                   it was cached: from which tier it went, when, and why
  dropped_before_writeback  evicted while a lower tier was still to get it
  in_flight                 a running sequence computes it
  load_failed, corrupt      its copy could not be read, or had changed
  not_cacheable             it was computed, and must not be cached
  history_lost              it was stored once, longer ago than is remembered

Examples:
  cachectl why --model DIR --prompt "Once upon a time"
  cachectl why --model DIR --tokens @prompt.json --json
)";

constexpr const char* kTreeHelp = R"(Examples:
  cachectl tree                          what is cached, as a tree of blocks
  cachectl tree --limit 20 --json        the first 20 nodes, as JSON
)";

constexpr const char* kDemoteHelp = R"(Examples:
  cachectl demote --tier device          save the device tier to the host tier and empty it
)";

constexpr const char* kFlushHelp = R"(Examples:
  cachectl flush                         make everything durable on disk
  cachectl flush --timeout 2m            the same, of a large host tier
)";

constexpr const char* kClearHelp = R"(Running sequences go on. With all tiers, what they compute is
not cached any more, no older block is hit from here on, and the answer comes when the disk has
forgotten them as well. With --tier only the copies of that tier go; other tiers still serve.

Words of the answer:
  cleared    blocks that were known; with --tier: that lost their copy there
  in use     blocks of them that running sequences still hold; nobody else hits them (with --tier:
             that kept their copy)
  epoch      number of the namespace's content, raised with every clear of all its tiers; numbers
             begin again at 0 when the service restarts

Examples:
  cachectl clear --yes                   forget everything, in all tiers
  cachectl clear --tier host --yes       empty the host tier
  cachectl clear --model DIR --yes       forget what was computed with this model
  cachectl clear --model DIR --epoch 7 --yes
                                         the same once, however often it is asked for
)";

std::string with_exit_codes(std::string help) { return help.append(kExitCodes); }

std::string check_duration(const std::string& text) {
  const auto time = client::parse_time(text);
  return time ? std::string() : std::string(time.error().reason);
}

std::string check_not_empty(const std::string& text) { return client::problem_of_empty(text); }

auto count_between(std::uint64_t least, std::uint64_t most) {
  return [least, most](const std::string& text) {
    return client::problem_of_count(text, least, most);
  };
}

std::string check_dir(const std::string& dir) {
  if (dir.empty()) return client::problem_of_empty(dir);
  std::error_code ignored;
  const std::filesystem::path path(dir);
  if (!std::filesystem::is_socket(path, ignored)) return {};
  const std::string parent = path.has_parent_path() ? path.parent_path().string() : ".";
  return dir + " is a socket: give its directory, --dir " + parent;
}

std::string check_endpoint(const std::string& endpoint) {
  constexpr std::string_view kScheme = "ipc://";
  if (endpoint.empty()) return client::problem_of_empty(endpoint);
  if (endpoint.starts_with(kScheme) && endpoint.size() > kScheme.size()) return {};
  return "'" + endpoint + "': only ipc:// endpoints are served: write ipc:///path/service.sock";
}

void set_duration(std::optional<std::chrono::milliseconds>& to, const std::string& text) {
  if (const auto time = client::parse_time(text)) to = *time;
}

void add_global(CLI::App& app, CommandLine& line) {
  auto* dir = app.add_option("--dir", line.dir,
                             "directory of the service (default: $CACHESVC_DIR, "
                             "else $XDG_RUNTIME_DIR/cachesvc, else $HOME/.cache/cachesvc)")
                  ->check(check_dir);
  app.add_option("--endpoint", line.endpoint, "ipc:// endpoint of the service")
      ->excludes(dir)
      ->check(check_endpoint);
  app.add_option_function<std::string>(
         "--timeout", [&line](const std::string& text) { set_duration(line.timeout, text); },
         "time for connecting, and for the answer: 500ms, 8s, 2m (default: 1500ms, and 5s; demote, "
         "flush and clear: 60s)")
      ->check(check_duration);
  app.add_flag("--json", line.json, "print JSON");
}

// Returns the option of the model folder.
CLI::Option* add_namespace(CLI::App& command, CommandLine& line) {
  auto* model = command.add_option("--model", line.model, "model folder, as the runner takes it");
  model->check(check_not_empty);
  auto* weights = command.add_option("--namespace-weights", line.weights,
                                     "the namespace's weights field, instead of --model");
  weights->excludes(model)->check(check_not_empty);
  command.add_option("--namespace-config", line.model_config, "model_config field")->needs(weights);
  command.add_option("--namespace-adapter", line.adapter, "adapter field");
  command.add_option("--namespace-adapter-revision", line.adapter_revision,
                     "adapter_revision field");
  command.add_option("--namespace-salt", line.salt, "salt field");
  return model;
}

void add_prompt(CLI::App& command, CommandLine& line, Command which) {
  auto* model = add_namespace(command, line);
  auto* prompt = command.add_option("--prompt", line.prompt, "text, with the model's tokenizer");
  prompt->needs(model);
  command
      .add_option("--tokens,--prompt-tokens", line.tokens,
                  "token ids: 1,403,407; @FILE reads them from a file, @- from stdin")
      ->excludes(prompt);
  command.callback([&line, which, name = command.get_name()] {
    if (!line.has_namespace()) {
      throw CLI::RequiredError(name + ": --model or --namespace-weights");
    }
    if (!line.prompt.has_value() && !line.tokens.has_value()) {
      throw CLI::RequiredError(name + ": --prompt or --tokens");
    }
    line.command = which;
  });
}

void add_lookup(CLI::App& app, CommandLine& line) {
  auto* lookup = app.add_subcommand("lookup", "hit tokens of a prompt, by tier; changes nothing");
  lookup->footer(with_exit_codes(kLookupHelp));
  add_prompt(*lookup, line, Command::lookup);
  lookup
      ->add_option("--require-hit-tokens", line.required_hit_tokens,
                   "exit with 3 when fewer tokens are hit")
      ->check(count_between(0, client::kTokensPerMessageMax));
}

void add_why(CLI::App& app, CommandLine& line) {
  auto* why = app.add_subcommand("why", "why tokens of a prompt are computed; changes nothing");
  why->footer(with_exit_codes(kWhyHelp));
  add_prompt(*why, line, Command::why);
}

void add_clear(CLI::App& app, CommandLine& line) {
  auto* clear = app.add_subcommand("clear", "forget what is cached: all of it, or a namespace's");
  clear->footer(with_exit_codes(kClearHelp));
  auto* tier = clear->add_option_function<std::string>(
      "--tier",
      [&line](const std::string& name) {
        line.cleared_tier = name == "device" ? Tier::device
                            : name == "host" ? Tier::host
                                             : Tier::disk;
      },
      "only this tier: device, host or disk");
  tier->check(CLI::IsMember({"device", "host", "disk"}));
  (void)add_namespace(*clear, line);
  clear
      ->add_option("--epoch", line.epoch,
                   "number of the namespace's content afterwards; nothing is cleared when it has "
                   "that number already (0: the next one)")
      ->excludes(tier)
      ->check(count_between(0, client::kEpochMax));
  clear->add_flag("--yes", line.is_confirmed, "do it; without it nothing is done");
  clear->callback([&line] {
    line.command = Command::clear;
    const bool has_fields = !line.model_config.empty() || !line.adapter.empty() ||
                            !line.adapter_revision.empty() || !line.salt.empty();
    if (!line.has_namespace() && (line.epoch.has_value() || has_fields)) {
      throw CLI::RequiredError("clear: --model or --namespace-weights");
    }
    if (!line.is_confirmed) {
      throw CLI::RequiredError("clear: cached blocks would be lost: --yes");
    }
  });
}

void add_commands(CLI::App& app, CommandLine& line) {
  app.require_subcommand(1);
  auto* status = app.add_subcommand("status", "tiers, counters and hit ratio");
  status->footer(with_exit_codes(kStatusHelp));
  status
      ->add_option_function<std::string>(
          "--watch", [&line](const std::string& text) { set_duration(line.watch, text); },
          "print again after this time, until interrupted (JSON: one object a line)")
      ->check(check_duration);
  status->add_flag("--all", line.all, "print counters that are 0, too (JSON has them always)");
  status->callback([&line] { line.command = Command::status; });
  add_lookup(app, line);
  add_why(app, line);
  auto* tree = app.add_subcommand("tree", "the prefix tree: runs of blocks and their copies");
  tree->footer(with_exit_codes(kTreeHelp));
  tree->add_option("--limit", line.node_limit, "at most this many nodes")
      ->check(count_between(1, kTreeNodesMax))
      ->capture_default_str();
  tree->callback([&line] { line.command = Command::tree; });
  auto* demote =
      app.add_subcommand("demote", "copy a tier to the one below, then drop what is not in use");
  demote->footer(with_exit_codes(kDemoteHelp));
  demote
      ->add_option_function<std::string>(
          "--tier",
          [&line](const std::string& tier) {
            line.tier = tier == "host" ? Tier::host : Tier::device;
          },
          "device or host")
      ->required()
      ->check(CLI::IsMember({"device", "host"}));
  demote->callback([&line] { line.command = Command::demote; });
  auto* flush =
      app.add_subcommand("flush", "save everything that can be kept, and make it durable");
  flush->footer(with_exit_codes(kFlushHelp));
  flush->callback([&line] { line.command = Command::flush; });
  add_clear(app, line);
  for (auto* command : app.get_subcommands([](CLI::App*) { return true; })) command->fallthrough();
}

}  // namespace

std::variant<CommandLine, Ending> parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  CLI::App app{"Looks into a running cachesvc, and moves what it holds.", "cachectl"};
  app.set_version_flag("--version", "cachectl " KV_VERSION, "print the version");
  app.footer(with_exit_codes(kExamples));
  try {
    add_global(app, line);
    add_commands(app, line);
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream out;
    app.exit(success, out, out);
    return Ending{kExitOk, out.str()};
  } catch (const CLI::Error& error) {
    return Ending{kExitUsage, "error: " + program::usage_error_text(app, error)};
  }
  return line;
}

}  // namespace kv::cachectl
