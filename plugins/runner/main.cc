// cachesvc-runner: the reference model runner's program.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>

#include "allocator/kv_layout.h"
#include "cachesvc/program/standard_streams.h"
#include "cachesvc/program/usage_error.h"
#include "plugins/client/argument_text.h"
#include "plugins/runner/generate_command.h"

namespace {

using kv::runner::kUsageError;

constexpr const char* kExamples = R"(Examples:
  cachesvc-runner generate --model plugins/runner/models/stories260K \
      --prompt "Once upon a time" --max-tokens 64
  cachesvc-runner generate --model DIR --prompt "" --max-tokens 256 --json
  cachesvc-runner generate --model DIR --prompt-tokens 1,403,407,261,378 --max-tokens 8 \
      --dir /run/cachesvc --logits logits.f32 --json
  cachesvc-runner generate --model DIR --prompt-tokens @tokens.txt --timeout 5s

Exit codes: 0 ok, 1 failed or unreachable, 2 usage. When the service dies in the middle of a run,
the text is still generated to the end and printed, and the exit code is 1. A run that was stopped
for longer than its lease attaches again and begins anew.)";

std::string check_time(const std::string& text) {
  const auto time = kv::client::parse_time(text);
  return time ? std::string() : std::string(time.error().reason);
}

void set_time(std::chrono::milliseconds& to, const std::string& text) {
  if (const auto time = kv::client::parse_time(text)) to = *time;
}

std::string check_not_empty(const std::string& text) { return kv::client::problem_of_empty(text); }

auto count_between(std::uint64_t least, std::uint64_t most) {
  return [least, most](const std::string& text) {
    return kv::client::problem_of_count(text, least, most);
  };
}

std::string check_block_tokens(const std::string& text) {
  std::string problem = kv::client::problem_of_count(text, 1, kv::kBlockTokensMax);
  if (problem.empty() && !std::has_single_bit(std::stoul(text))) {
    problem = "'" + text + "': not a power of two; give 16 or another one up to 1024";
  }
  return problem;
}

void add_options(CLI::App& generate, kv::runner::GenerateCommand& command, std::string& tokens) {
  generate.add_option("--model", command.model_folder, "Folder with a tok*.bin and another *.bin")
      ->required()
      ->check(check_not_empty);
  auto* prompt =
      generate.add_option("--prompt", command.prompt, "Text to continue; \"\" begins a text");
  auto* prompt_tokens =
      generate.add_option("--prompt-tokens", tokens,
                          "The prompt as token ids: 1,403,407; @FILE reads them from a file");
  prompt->excludes(prompt_tokens);
  generate.add_option("--max-tokens", command.max_tokens, "Tokens to generate at most")
      ->capture_default_str()
      ->check(count_between(1, 1U << 20U));
  auto* endpoint = generate.add_option("--endpoint", command.endpoint, "ipc:// of the service");
  auto* dir = generate.add_option("--dir", command.dir, "Directory of the service");
  endpoint->excludes(dir)->check(check_not_empty);
  dir->check(check_not_empty);
  generate.add_option("--block-tokens", command.block_tokens, "Tokens of a block, a power of two")
      ->capture_default_str()
      ->check(check_block_tokens);
  generate.add_option("--chunk", command.chunk_tokens, "Prompt tokens computed in one step")
      ->capture_default_str()
      ->check(count_between(1, 65'536));
  generate
      .add_option_function<std::string>(
          "--timeout", [&command](const std::string& text) { set_time(command.timeout, text); },
          "Time to wait for the service, connecting and each call: 500ms, 5s, 2m (default: 30s)")
      ->check(check_time);
  generate.add_option("--kernel", command.kernel_file, "Kernel plug-in (default: the CPU one)")
      ->check(check_not_empty);
  generate
      .add_option("--logits", command.logits_file,
                  "Write the logits of every generated position here, raw fp32")
      ->check(check_not_empty);
  generate.add_flag("--skip-read", command.skip_read, "Use no cached block; still publish");
  generate.add_flag("--json", command.json, "Print one JSON object");
  generate.footer(kExamples);
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return kUsageError;
}

int run(int argc, char** argv) {
  CLI::App app("Generates text with a model whose KV cache cachesvc owns.", "cachesvc-runner");
  app.require_subcommand(1);
  app.set_version_flag("--version", "cachesvc-runner " KV_VERSION, "Print the version");
  app.footer(kExamples);
  kv::runner::GenerateCommand command;
  std::string tokens;
  CLI::App* generate = app.add_subcommand("generate", "Continue one prompt, greedily");
  add_options(*generate, command, tokens);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(kv::program::usage_error_text(app, error));
  }
  const std::string help = "; see cachesvc-runner generate --help";
  if (generate->count("--prompt") + generate->count("--prompt-tokens") == 0) {
    return usage_error("generate: --prompt or --prompt-tokens is required" + help);
  }
  if (generate->count("--prompt-tokens") > 0) {
    auto read = kv::client::read_tokens(tokens);
    const std::string option = "--prompt-tokens " + tokens + ": ";
    if (!read) {
      const bool is_path = read.error().code == kv::ErrorCode::not_found;
      return usage_error(option + std::string(read.error().reason) +
                         (is_path ? "; check the path" : "") + help);
    }
    if (read->empty()) return usage_error(option + "the prompt has no token" + help);
    command.prompt_tokens = std::move(*read);
  }
  return kv::runner::run_generate(command);
}

}  // namespace

int main(int argc, char** argv) {
  kv::program::keep_standard_streams();
  try {
    return kv::program::finish_output(run(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
