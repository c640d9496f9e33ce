// What cachectl says when it fails: one line that names what is to blame, and a remedy.
// Owner: the caller. Threads: any. Cost: O(1).
#pragma once

#include <string>

#include "allocator/base/result.h"
#include "tools/cachectl/command_line.h"

namespace kv::cachectl {

// Of the service's addresses, of connecting, or of the command itself.
[[nodiscard]] std::string address_message(const CommandLine& line, const Error& error);
[[nodiscard]] std::string service_message(const CommandLine& line, const Error& error);
// Of read_prompt: the model's folder or the tokens.
[[nodiscard]] std::string prompt_message(const CommandLine& line, const Error& error);

}  // namespace kv::cachectl
