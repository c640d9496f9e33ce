// What a lookup asks for: a namespace and a prompt, from the command line.
// Owner: the command. Threads: none. Cost: with a model folder, reading the model once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "plugins/client/session.h"
#include "tools/cachectl/command_line.h"

namespace kv::cachectl {

inline constexpr std::string_view kTokensField = "tokens";  // of errors about them

struct Prompt {
  std::string weights, model_config, adapter, adapter_revision, salt;
  std::vector<Token> tokens;
  [[nodiscard]] NamespaceFields fields() const {
    NamespaceFields fields;
    fields.weights = weights;
    fields.model_config = model_config;
    fields.adapter = adapter;
    fields.adapter_revision = adapter_revision;
    fields.salt = salt;
    return fields;
  }
};

// fails: not_found (a file), corrupt (the model), invalid or too_large (the tokens).
[[nodiscard]] Result<Prompt> read_prompt(const CommandLine& line);

}  // namespace kv::cachectl
