#include "tools/cachectl/prompt.h"

#include <utility>

#include "plugins/client/argument_text.h"
#include "plugins/runner/linear.h"
#include "plugins/runner/model.h"
#include "plugins/runner/model_identity.h"
#include "plugins/runner/tokenizer.h"

namespace kv::cachectl {
namespace {

// Exactly what the runner says of the model, so that both mean the same namespace.
Result<void> read_model(const CommandLine& line, Prompt& prompt) {
  KV_TRY(const auto files, runner::find_model_files(line.model));
  KV_TRY(const auto model, runner::Model::load(files.weights));
  auto identity = runner::model_identity(model, runner::choose_gemm_backend(model.config()));
  prompt.weights = std::move(identity.weights);
  prompt.model_config = std::move(identity.model_config);
  if (!line.prompt.has_value()) return {};
  KV_TRY(const auto tokenizer, runner::Tokenizer::load(files.tokenizer, model.config().vocab_size));
  KV_TRY(prompt.tokens, tokenizer.encode(*line.prompt));
  return {};
}

}  // namespace

Result<Prompt> read_prompt(const CommandLine& line) {
  Prompt prompt{.weights = line.weights,
                .model_config = line.model_config,
                .adapter = line.adapter,
                .adapter_revision = line.adapter_revision,
                .salt = line.salt,
                .tokens = {}};
  if (!line.model.empty()) KV_TRY_VOID(read_model(line, prompt));
  if (line.tokens.has_value()) {
    auto tokens = client::read_tokens(*line.tokens);
    if (!tokens) return Error{tokens.error().code, tokens.error().reason, kTokensField};
    prompt.tokens = std::move(*tokens);
  }
  return prompt;
}

}  // namespace kv::cachectl
