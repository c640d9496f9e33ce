// The real model of the tests, its golden file, and runs on a cold session.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plugins/runner/generator.h"
#include "plugins/runner/kernel_module.h"
#include "tests/plugins/runner/cold_session.h"

namespace kv::test {

inline std::filesystem::path model_folder() {
  return std::filesystem::path(KV_SOURCE_DIR) / "plugins/runner/models/stories260K";
}

template <class T>
T need(Result<T> result) {
  if (!result.has_value()) throw std::runtime_error(std::string(result.error().reason));
  return std::move(result).value();
}

// Everything read once for a test program.
struct Stories {
  runner::Model model = need(runner::Model::load(model_folder() / "stories260K.bin"));
  runner::Tokenizer tokenizer = need(runner::Tokenizer::load(model_folder() / "tok512.bin", 512));
  runner::KernelModule kernel =
      need(runner::KernelModule::open(runner::KernelModule::default_path()));
  runner::GemmBackend backend = runner::choose_gemm_backend(model.config());
  nlohmann::json golden;

  Stories() { std::ifstream(model_folder() / "golden_greedy.json") >> golden; }
  static const Stories& get() {
    static const Stories stories;
    return stories;
  }
  // Prompt and golden continuation of one case.
  [[nodiscard]] std::vector<Token> story(std::size_t index) const {
    auto tokens = golden["cases"][index]["prompt_tokens"].get<std::vector<Token>>();
    const auto more = golden["cases"][index]["generated_tokens"].get<std::vector<Token>>();
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }
  [[nodiscard]] std::unique_ptr<runner::Generator> generator(
      client::Session& session, const runner::Generator::Options& options) const {
    return need(
        runner::Generator::make(model, tokenizer, kernel.kernel(), backend, session, options));
  }
};

// One request on a pool of its own, with nothing cached.
inline runner::Generated cold_run(const std::vector<Token>& prompt, std::uint32_t max_tokens,
                                  std::uint32_t block_tokens = 16,
                                  std::uint32_t chunk_tokens = 512) {
  ColdSession session(static_cast<std::uint32_t>(prompt.size() + max_tokens) / block_tokens + 2);
  auto generator = Stories::get().generator(
      session, {.block_tokens = block_tokens, .chunk_tokens = chunk_tokens});
  need(generator->add(
      {.prompt = prompt, .max_tokens = max_tokens, .keep_logits = runner::KeepLogits::all}));
  return need(generator->run()).front();
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace kv::test
