// What cachesvc-runner says when it fails: one line that names the option or path to blame, the
// values and a remedy. Owner: the caller. Threads: any. Cost: O(1); some look at a path.
#pragma once

#include <cstdint>
#include <string>

#include "allocator/base/result.h"
#include "plugins/runner/generate_command.h"
#include "plugins/runner/model.h"

namespace kv::runner {

[[nodiscard]] std::string describe(const Error& error);  // the reason and the field
// `file`: the one to blame; empty: the folder itself.
[[nodiscard]] std::string model_message(const std::string& folder, const std::string& file,
                                        const Error& error);
// `linker`: what the dynamic linker said, if anything.
[[nodiscard]] std::string kernel_message(const GenerateCommand& command, const std::string& file,
                                         const Error& error, const std::string& linker);
[[nodiscard]] std::string logits_message(const std::string& file);
// Empty when the model can take the prompt and the wanted tokens.
[[nodiscard]] std::string prompt_message(const GenerateCommand& command, const ModelConfig& config,
                                         const std::vector<Token>& prompt);
[[nodiscard]] std::string connect_message(const GenerateCommand& command, const Error& error);
// Of a run that was generated to the end without the service.
[[nodiscard]] std::string lost_message(const GenerateCommand& command, const Error& error);
// What the service has, as far as it says; zeros where it does not.
struct ServiceFacts {
  std::uint32_t block_tokens = 0;
  std::uint32_t device_blocks = 0;
};
[[nodiscard]] std::string generate_message(const GenerateCommand& command, const Error& error,
                                           std::size_t prompt_tokens, const ServiceFacts& service);

}  // namespace kv::runner
