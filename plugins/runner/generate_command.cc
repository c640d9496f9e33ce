#include "plugins/runner/generate_command.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "plugins/client/client.h"
#include "plugins/runner/generator.h"
#include "plugins/runner/kernel_module.h"

namespace kv::runner {
namespace {

// One line: what failed and why; reasons of the client name their remedy.
int failed(const char* what, const Error& error) {
  std::fprintf(stderr, "cachesvc-runner: %s: %.*s", what, static_cast<int>(error.reason.size()),
               error.reason.data());
  if (!error.field.empty()) {
    std::fprintf(stderr, " (%.*s)", static_cast<int>(error.field.size()), error.field.data());
  }
  std::fprintf(stderr, "\n");
  return 1;
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

Result<Loaded> load(const GenerateCommand& command) {
  KV_TRY(const ModelFiles files, find_model_files(command.model_folder));
  KV_TRY(Model model, Model::load(files.weights));
  KV_TRY(Tokenizer tokenizer, Tokenizer::load(files.tokenizer, model.config().vocab_size));
  KV_TRY(KernelModule kernel, KernelModule::open(command.kernel_file.empty()
                                                     ? KernelModule::default_path()
                                                     : std::filesystem::path(command.kernel_file)));
  return Loaded{std::move(model), std::move(tokenizer), std::move(kernel)};
}

Result<Generated> generate(const GenerateCommand& command, const Loaded& loaded,
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
  if (generator->session_error().code != ErrorCode::ok) {
    (void)failed("the service was lost; generated to the end without it",
                 generator->session_error());
  }
  return std::move(results.front());
}

}  // namespace

std::vector<Token> parse_tokens(const std::string& text) {
  std::vector<Token> tokens;
  const char* next = text.data();
  const char* end = text.data() + text.size();
  while (true) {
    Token token = 0;
    const auto parsed = std::from_chars(next, end, token);
    if (parsed.ec != std::errc()) return {};
    tokens.push_back(token);
    if (parsed.ptr == end) return tokens;
    if (*parsed.ptr != ',') return {};
    next = parsed.ptr + 1;
  }
}

int run_generate(const GenerateCommand& command) {
  const Result<Loaded> loaded = load(command);
  if (!loaded) return failed("cannot load the model", loaded.error());
  std::vector<Token> prompt = command.prompt_tokens;
  if (prompt.empty()) {
    Result<std::vector<Token>> encoded = loaded->tokenizer.encode(command.prompt);
    if (!encoded) return failed("cannot encode the prompt", encoded.error());
    prompt = std::move(*encoded);
  }
  client::Client::Options options;
  options.dir = command.dir;
  options.endpoint = command.endpoint;
  options.name = "cachesvc-runner";
  options.deadline = client::in(std::min(command.timeout, std::chrono::milliseconds(5'000)));
  const auto connected = client::Client::connect(options);
  if (!connected) {
    return failed("cannot connect", connected.error());
  }
  const std::size_t prompt_tokens = prompt.size();
  const Result<Generated> result = generate(command, *loaded, std::move(prompt), **connected);
  if (!result) return failed("cannot generate", result.error());
  if (!command.logits_file.empty() && !write_logits(command.logits_file, result->logits)) {
    return failed("cannot write the logits", {ErrorCode::unavailable, "file not writable", {}});
  }
  print(*result, prompt_tokens, command.json);
  return 0;
}

}  // namespace kv::runner
