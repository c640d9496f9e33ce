// The command `cachesvc-runner generate`: one prompt through a running service.
// Threads: none. Cost: the model is loaded, one request runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/base/token.h"

namespace kv::runner {

struct GenerateCommand {
  std::string model_folder;
  std::string prompt;                // without prompt_tokens; empty: the begin token alone
  std::vector<Token> prompt_tokens;  // exactly these, where there are any
  std::uint32_t max_tokens = 32;
  std::string endpoint;  // of the service; empty: in dir
  std::string dir;       // empty: the default directory
  std::uint32_t block_tokens = 16;
  std::uint32_t chunk_tokens = 64;
  std::chrono::milliseconds timeout{30'000};  // of each call to the service
  std::string kernel_file;                    // empty: the CPU kernels that came with the program
  std::string logits_file;                    // raw fp32 of every generated position; empty: none
  bool skip_read = false;
  bool json = false;
};

inline constexpr int kUsageError = 2;

// The exit code: 0, or after one line on stderr 1, or kUsageError (the model cannot take what the
// options ask for). When the service is lost on the way, the text is
// generated and printed all the same where that is possible, and the code is 1.
[[nodiscard]] int run_generate(const GenerateCommand& command);

}  // namespace kv::runner
