#include "plugins/runner/generate_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "plugins/client/client.h"
#include "plugins/runner/generator.h"
#include "plugins/runner/kernel_module.h"
#include "plugins/runner/messages.h"

namespace kv::runner {
namespace {

constexpr int kAttachmentsMax = 8;

int failed(const std::string& message, int exit_code = 1) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return exit_code;
}

nlohmann::ordered_json to_json(const Generated& result, std::size_t prompt_tokens) {
  nlohmann::ordered_json hits;
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    hits[std::string(tier_name(static_cast<Tier>(tier)))] = result.account.hit_tokens[tier];
  }
  return {{"text", result.text},
          {"prompt_tokens", prompt_tokens},
          {"hit_tokens", hits},
          {"computed_tokens", result.computed_tokens},
          {"ttft_ms", result.ttft_ms},
          {"tokens_per_s", result.tokens_per_s},
          {"generated_tokens", result.tokens}};
}

void print(const Generated& result, std::size_t prompt_tokens, bool json) {
  if (json) {
    // A model may stop within a character: what is no UTF-8 is replaced, not refused.
    const auto text = to_json(result, prompt_tokens)
                          .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    std::printf("%s\n", text.c_str());
    return;
  }
  std::printf("%s\n\nprompt %zu tokens:", result.text.c_str(), prompt_tokens);
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    const auto name = tier_name(static_cast<Tier>(tier));
    std::printf(" %llu from %.*s,",
                static_cast<unsigned long long>(result.account.hit_tokens[tier]),
                static_cast<int>(name.size()), name.data());
  }
  std::printf(" %llu computed; first token after %.1f ms, then %.0f tokens/s\n",
              static_cast<unsigned long long>(result.computed_tokens), result.ttft_ms,
              result.tokens_per_s);
}

bool write_logits(const std::string& file, const std::vector<float>& logits) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  const auto bytes = std::as_bytes(std::span(logits));
  stream.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  stream.close();
  return static_cast<bool>(stream);
}

struct Loaded {
  Model model;
  Tokenizer tokenizer;
  KernelModule kernel;
};

// Nothing after a line on stderr.
std::optional<Loaded> load(const GenerateCommand& command) {
  std::string blamed;
  const auto load_model = [&]() -> Result<std::pair<Model, Tokenizer>> {
    KV_TRY(const ModelFiles files, find_model_files(command.model_folder));
    blamed = files.weights.string();
    KV_TRY(Model model, Model::load(files.weights));
    blamed = files.tokenizer.string();
    KV_TRY(Tokenizer tokenizer, Tokenizer::load(files.tokenizer, model.config().vocab_size));
    return std::pair(std::move(model), std::move(tokenizer));
  };
  auto model = load_model();
  if (!model) {
    (void)failed(model_message(command.model_folder, blamed, model.error()));
    return std::nullopt;
  }
  const std::string file =
      command.kernel_file.empty() ? KernelModule::default_path().string() : command.kernel_file;
  std::string linker;
  auto kernel = KernelModule::open(file, &linker);
  if (!kernel) {
    (void)failed(kernel_message(command, file, kernel.error(), linker));
    return std::nullopt;
  }
  return Loaded{std::move(model->first), std::move(model->second), std::move(*kernel)};
}

struct Outcome {
  Generated generated;
  Error lost{ErrorCode::ok, {}, {}};  // why the service was lost on the way
};

Result<Outcome> generate(const GenerateCommand& command, const Loaded& loaded,
                         std::vector<Token> prompt, client::Session& session) {
  KV_TRY(const auto generator,
         Generator::make(loaded.model, loaded.tokenizer, loaded.kernel.kernel(),
                         choose_gemm_backend(loaded.model.config()), session,
                         {.block_tokens = command.block_tokens,
                          .chunk_tokens = command.chunk_tokens,
                          .call_timeout = command.timeout,
                          .admit_timeout = command.timeout}));
  KV_TRY_VOID(generator->add(
      {.prompt = std::move(prompt),
       .max_tokens = command.max_tokens,
       .keep_logits = command.logits_file.empty() ? KeepLogits::none : KeepLogits::all,
       .skip_read = command.skip_read}));
  KV_TRY(std::vector<Generated> results, generator->run());
  if (results.front().error.code != ErrorCode::ok) return results.front().error;
  return Outcome{std::move(results.front()), generator->session_error()};
}

// Blocks that were lost on the way (this process was stopped for longer than its lease, or the
// service restarted before it began) cost time, not the request: a new attachment begins again, on
// what was published so far.
Result<Outcome> generate_to_the_end(const GenerateCommand& command, const Loaded& loaded,
                                    const std::vector<Token>& prompt, client::Client& service) {
  for (int attachments = 1;; ++attachments) {
    Result<Outcome> result = generate(command, loaded, prompt, service);
    const bool is_lost = !result && result.error().code == ErrorCode::stale;
    if (!is_lost || attachments == kAttachmentsMax) return result;
    KV_TRY_VOID(service.reattach(client::in(command.timeout)));
  }
}

ServiceFacts facts_of(client::Client& service, const GenerateCommand& command) {
  const auto status = service.status(client::in(command.timeout));
  if (!status) return {};
  return {.block_tokens = status->block_tokens,
          .device_blocks = status->tiers[tier_index(Tier::device)].slots};
}

// Before the service is asked for anything: nothing is computed that cannot be written.
bool is_writable(const std::string& file) {
  std::error_code ignored;
  const auto folder = std::filesystem::absolute(file, ignored).parent_path();
  return !std::filesystem::is_directory(file, ignored) && access(folder.c_str(), W_OK | X_OK) == 0;
}

int generate_and_print(const GenerateCommand& command, const Loaded& loaded,
                       const std::vector<Token>& prompt, client::Client& service) {
  const std::size_t prompt_tokens = prompt.size();
  const Result<Outcome> result = generate_to_the_end(command, loaded, prompt, service);
  if (!result) {
    const ErrorCode code = result.error().code;
    const bool asks = code == ErrorCode::mismatch || code == ErrorCode::too_large;
    return failed(generate_message(command, result.error(), prompt_tokens,
                                   asks ? facts_of(service, command) : ServiceFacts{}));
  }
  const Generated& generated = result->generated;
  print(generated, prompt_tokens, command.json);
  if (!command.logits_file.empty() && !write_logits(command.logits_file, generated.logits)) {
    return failed(logits_message(command.logits_file));
  }
  if (result->lost.code != ErrorCode::ok) {
    return failed(lost_message(command, result->lost));
  }
  return 0;
}

}  // namespace

int run_generate(const GenerateCommand& command) {
  const std::optional<Loaded> loaded = load(command);
  if (!loaded) return 1;
  std::vector<Token> prompt = command.prompt_tokens;
  if (prompt.empty()) {
    Result<std::vector<Token>> encoded = loaded->tokenizer.encode(command.prompt);
    if (!encoded) return failed("--prompt: " + describe(encoded.error()));
    prompt = std::move(*encoded);
  }
  const std::string refusal = prompt_message(command, loaded->model.config(), prompt);
  if (!refusal.empty()) return failed(refusal, kUsageError);
  if (!command.logits_file.empty() && !is_writable(command.logits_file)) {
    return failed(logits_message(command.logits_file));
  }
  client::Client::Options options;
  options.dir = command.dir;
  options.endpoint = command.endpoint;
  options.name = "cachesvc-runner";
  options.deadline = client::in(command.timeout);
  const auto connected = client::Client::connect(options);
  if (!connected) return failed(connect_message(command, connected.error()));
  return generate_and_print(command, *loaded, prompt, **connected);
}

}  // namespace kv::runner
