#include "plugins/runner/messages.h"

#include <algorithm>
#include <filesystem>

#include "plugins/client/default_dir.h"
#include "plugins/client/loss.h"

namespace kv::runner {
namespace {

constexpr const char* kFolderRule = "the folder that holds tok*.bin and the weights (*.bin)";

std::string service_of(const GenerateCommand& command) {
  const auto addresses = client::find_addresses(command.dir, command.endpoint);
  if (addresses) return addresses->service;
  if (!command.endpoint.empty()) return "--endpoint " + command.endpoint;
  return command.dir.empty() ? "the service" : "--dir " + command.dir;
}

std::string raise_text(const Error& error) {
  const auto key = client::limit_key(error);
  return key.empty() ? "" : ", or raise " + std::string(key) + " of the service";
}

std::string prompt_option(const GenerateCommand& command) {
  return command.prompt_tokens.empty() ? "--prompt" : "--prompt-tokens";
}

std::string mismatch_message(const GenerateCommand& command, const Error& error,
                             std::uint32_t service_block_tokens) {
  if (error.field != "block_tokens" || service_block_tokens == 0) {
    return service_of(command) + ": " + describe(error) +
           "; a service and its disk hold one layout: give this model a service of its own, on "
           "another --dir, or stop this one and remove DIR/disk";
  }
  const std::string theirs = std::to_string(service_block_tokens);
  return "--block-tokens " + std::to_string(command.block_tokens) + ": the service has " + theirs +
         " (block_tokens); pass --block-tokens " + theirs +
         ", or use another --dir, or stop the service and remove DIR/disk";
}

}  // namespace

std::string describe(const Error& error) {
  std::string text(error.reason);
  if (!error.field.empty()) text += " (" + std::string(error.field) + ")";
  return text;
}

std::string model_message(const std::string& folder, const std::string& file, const Error& error) {
  const std::string start = "--model " + folder + ": ";
  std::error_code failed;
  const auto kind = std::filesystem::status(folder, failed).type();
  if (kind == std::filesystem::file_type::not_found) {
    return start + "no such folder; give " + kFolderRule;
  }
  if (kind != std::filesystem::file_type::directory) {
    return start + "is no folder; give " + kFolderRule;
  }
  if (!file.empty()) {
    return "--model " + file + ": " + describe(error) +
           (error.code == ErrorCode::exhausted ? "; free some memory, or give a smaller model"
                                               : "; get the file anew, or give another folder");
  }
  return start + describe(error) + "; give " + kFolderRule;
}

std::string kernel_message(const GenerateCommand& command, const std::string& file,
                           const Error& error, const std::string& linker) {
  const bool is_given = !command.kernel_file.empty();
  std::string text = (is_given ? "--kernel " : "") + file + ": " + describe(error);
  // The linker begins with the name again.
  const std::string name = file + ": ";
  const std::size_t start = linker.starts_with(name) ? name.size() : 0;
  if (!linker.empty()) text += ": " + linker.substr(start);
  if (is_given) return text + "; give a kernel plug-in (*.so), or leave --kernel out";
  return text + "; build cachesvc_kernels_cpu, or name a kernel plug-in with --kernel";
}

std::string logits_message(const std::string& file) {
  return "--logits " + file + ": cannot be written; give a file in a folder that exists";
}

std::string prompt_message(const GenerateCommand& command, const ModelConfig& config,
                           const std::vector<Token>& prompt) {
  const std::string option = prompt_option(command);
  const std::string vocabulary = std::to_string(config.vocab_size);
  const auto outside =
      std::ranges::find_if(prompt, [&](Token token) { return token >= config.vocab_size; });
  if (outside != prompt.end()) {
    return option + ": token " + std::to_string(*outside) + " is outside the vocabulary of " +
           vocabulary + " tokens; give ids below " + vocabulary;
  }
  const std::uint64_t room = std::uint64_t{config.context_length} + 1;
  const std::string context = std::to_string(config.context_length);
  const std::string length = std::to_string(prompt.size());
  if (prompt.size() >= room) {
    return option + ": " + length + " tokens and --max-tokens " +
           std::to_string(command.max_tokens) + ", but the model's context holds " + context +
           "; shorten the prompt";
  }
  if (prompt.size() + std::uint64_t{command.max_tokens} <= room) return {};
  return "--max-tokens " + std::to_string(command.max_tokens) + ": the model's context holds " +
         context + " tokens and the prompt has " + length + "; give at most " +
         std::to_string(room - prompt.size());
}

std::string connect_message(const GenerateCommand& command, const Error& error) {
  const auto addresses = client::find_addresses(command.dir, command.endpoint);
  std::string text = service_of(command) + ": " + describe(error);
  if (!addresses) return text + "; name the service with --dir or --endpoint";
  if (const auto lost = client::loss_text(error, command.dir, command.endpoint)) {
    return lost->what + "; " + lost->remedy;
  }
  switch (error.code) {
    case ErrorCode::unavailable:
      return text + "; look at the service's log";
    case ErrorCode::deadline:
      return text + "; it is busy or hung: try again with a longer --timeout, or restart it";
    case ErrorCode::denied:
      return text + "; run this as the user of the service, or as root";
    case ErrorCode::exhausted:
    case ErrorCode::busy:
      return text + "; try again later" + raise_text(error);
    default:
      return text + "; check that the runner and the service are of the same version";
  }
}

std::string lost_message(const GenerateCommand& command, const Error& error) {
  const auto lost = client::loss_text(error, command.dir, command.endpoint);
  return (lost ? lost->what : service_of(command) + ": " + describe(error)) +
         "; the text was generated to the end without it";
}

std::string generate_message(const GenerateCommand& command, const Error& error,
                             std::size_t prompt_tokens, const ServiceFacts& service) {
  const std::string block = "--block-tokens " + std::to_string(command.block_tokens) + ": ";
  if (error.code == ErrorCode::mismatch) {
    return mismatch_message(command, error, service.block_tokens);
  }
  if (error.code == ErrorCode::too_large && error.field == "max_new_tokens") {
    return "--max-tokens " + std::to_string(command.max_tokens) + ": with the prompt's " +
           std::to_string(prompt_tokens) +
           " tokens it can never fit the device tier; raise device.bytes of the service or lower "
           "--max-tokens";
  }
  if (error.code == ErrorCode::too_large && error.field == "tokens") {
    const std::string room = service.device_blocks == 0
                                 ? std::string()
                                 : " of " + std::to_string(service.device_blocks) + " blocks of " +
                                       std::to_string(service.block_tokens) + " tokens";
    return prompt_option(command) + ": " + std::to_string(prompt_tokens) +
           " tokens can never fit the device tier" + room +
           "; raise device.bytes of the service or shorten the prompt";
  }
  if (error.code == ErrorCode::too_large && error.field == "device.bytes") {
    return block + "one block is larger than the device tier; raise device.bytes of the service";
  }
  if (error.code == ErrorCode::invalid && error.field == "block_tokens") {
    return block + std::string(error.reason) + "; give a power of two up to 1024";
  }
  if (error.code == ErrorCode::corrupt && error.field == "weights") {
    return "--model " + command.model_folder + ": " + std::string(error.reason) +
           ", its weights are damaged; get the file anew";
  }
  if (const auto lost = client::loss_text(error, command.dir, command.endpoint)) {
    return lost->what + "; " + lost->remedy;
  }
  std::string text = service_of(command) + ": " + describe(error);
  switch (error.code) {
    case ErrorCode::exhausted:
    case ErrorCode::busy:
      return text + "; try again later, or with a longer --timeout";
    case ErrorCode::deadline:
      return text + "; try again with a longer --timeout, or restart the service";
    case ErrorCode::unavailable:
      return text + "; look at the service's log";
    default:
      return text;
  }
}

}  // namespace kv::runner
