#include "tools/cachectl/prompt.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <system_error>

#include "plugins/runner/linear.h"
#include "plugins/runner/model.h"
#include "plugins/runner/model_identity.h"
#include "plugins/runner/tokenizer.h"

namespace kv::cachectl {
namespace {

constexpr std::string_view kBetween = " \t\r\n,";

Result<std::string> read_all(const std::string& name) {
  if (name == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code ignored;
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name, ignored)) {
    return Error{ErrorCode::not_found, "the file with the tokens cannot be read", kTokensField};
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

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

Result<std::vector<Token>> parse_tokens(std::string_view text) {
  constexpr Error kInvalid{ErrorCode::invalid, "tokens are numbers below 2^32 between commas",
                           kTokensField};
  const auto trim = [&text] {
    const auto first = text.find_first_not_of(" \t\r\n");
    const auto last = text.find_last_not_of(" \t\r\n");
    text =
        first == std::string_view::npos ? std::string_view() : text.substr(first, last - first + 1);
  };
  trim();
  if (text.starts_with('[') && text.ends_with(']') && text.size() >= 2) {
    text = text.substr(1, text.size() - 2);
    trim();
  }
  std::vector<Token> tokens;
  while (!text.empty()) {
    Token token = 0;
    const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (failed != std::errc()) return kInvalid;
    tokens.push_back(token);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    const auto next = text.find_first_not_of(kBetween);
    // Between two numbers: spaces or one comma; behind the last: nothing.
    const auto commas = std::ranges::count(text.substr(0, next), ',');
    const bool is_last = next == std::string_view::npos;
    if (next == 0 || commas > (is_last ? 0 : 1)) return kInvalid;
    text = next == std::string_view::npos ? std::string_view() : text.substr(next);
  }
  return tokens;
}

Result<Prompt> read_prompt(const CommandLine& line) {
  Prompt prompt{.weights = line.weights,
                .model_config = line.model_config,
                .adapter = line.adapter,
                .adapter_revision = line.adapter_revision,
                .salt = line.salt,
                .tokens = {}};
  if (!line.model.empty()) KV_TRY_VOID(read_model(line, prompt));
  if (line.tokens.has_value()) {
    std::string text = *line.tokens;
    if (text.starts_with('@')) {
      KV_TRY(text, read_all(text.substr(1)));
    }
    KV_TRY(prompt.tokens, parse_tokens(text));
  }
  return prompt;
}

}  // namespace kv::cachectl
