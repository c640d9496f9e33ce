// cachesvc-runner: the reference model runner's program.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "plugins/runner/generate_command.h"

namespace {

constexpr int kUsageError = 2;

constexpr const char* kExamples = R"(Examples:
  cachesvc-runner generate --model plugins/runner/models/stories260K \
      --prompt "Once upon a time" --max-tokens 64
  cachesvc-runner generate --model DIR --prompt "" --max-tokens 256 --json
  cachesvc-runner generate --model DIR --prompt-tokens 1,403,407,261,378 --max-tokens 8 \
      --dir /run/cachesvc --logits logits.f32 --json

Exit codes: 0 ok, 1 failed or unreachable, 2 usage.)";

void add_options(CLI::App& generate, kv::runner::GenerateCommand& command, std::string& tokens,
                 double& timeout_s) {
  generate.add_option("--model", command.model_folder, "Folder with a tok*.bin and another *.bin")
      ->required();
  auto* prompt =
      generate.add_option("--prompt", command.prompt, "Text to continue; \"\" begins a text");
  auto* prompt_tokens =
      generate.add_option("--prompt-tokens", tokens, "The prompt as token ids, as in 1,403,407");
  prompt->excludes(prompt_tokens);
  generate.add_option("--max-tokens", command.max_tokens, "Tokens to generate at most")
      ->capture_default_str()
      ->check(CLI::Range(1U, 1U << 20U));
  auto* endpoint = generate.add_option("--endpoint", command.endpoint, "ipc:// of the service");
  auto* dir = generate.add_option("--dir", command.dir, "Directory of the service");
  endpoint->excludes(dir);
  generate.add_option("--block-tokens", command.block_tokens, "Tokens of a block, a power of two")
      ->capture_default_str();
  generate.add_option("--chunk", command.chunk_tokens, "Prompt tokens computed in one step")
      ->capture_default_str()
      ->check(CLI::Range(1U, 65'536U));
  generate.add_option("--timeout", timeout_s, "Seconds to wait for the service, each call")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86'400.0));
  generate.add_option("--kernel", command.kernel_file, "Kernel plug-in (default: the CPU one)");
  generate.add_option("--logits", command.logits_file,
                      "Write the logits of every generated position here, raw fp32");
  generate.add_flag("--skip-read", command.skip_read, "Use no cached block; still publish");
  generate.add_flag("--json", command.json, "Print one JSON object");
  generate.footer(kExamples);
}

int run(int argc, char** argv) {
  CLI::App app("Generates text with a model whose KV cache cachesvc owns.", "cachesvc-runner");
  app.require_subcommand(1);
  app.footer(kExamples);
  kv::runner::GenerateCommand command;
  std::string tokens;
  double timeout_s = 30;
  CLI::App* generate = app.add_subcommand("generate", "Continue one prompt, greedily");
  add_options(*generate, command, tokens, timeout_s);
  try {
    app.parse(argc, argv);
    if (generate->count("--prompt") + generate->count("--prompt-tokens") == 0) {
      throw CLI::RequiredError("--prompt or --prompt-tokens");
    }
    if (generate->count("--prompt-tokens") > 0) {
      command.prompt_tokens = kv::runner::parse_tokens(tokens);
      if (command.prompt_tokens.empty()) {
        throw CLI::ValidationError("--prompt-tokens", "not a list of token ids");
      }
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  command.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1'000));
  return kv::runner::run_generate(command);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cachesvc-runner: %s\n", error.what());
    return 1;
  }
}
