// EngineLoop: one Engine with one client, driven as fast as it goes. Replies are checked.
// Owner: a benchmark. Threads: none. Cost: that of the Engine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cachesvc/core/engine.h"

namespace kv::cachebench {

class EngineLoop {
 public:
  // Of the one tier on the device.
  explicit EngineLoop(std::uint32_t device_blocks);

  // Open and Admit; the prompt must be ready at once.
  void admit(SequenceId sequence, std::span<const Token> tokens, std::uint32_t max_new_tokens);
  // One Step that is completed at once. Returns the number of items that were applied.
  std::uint32_t step(std::span<const core::StepItem> items, std::span<const Token> tokens);
  // A prompt that nobody has asked for: opened, admitted, published and freed.
  void run_cold(std::span<const Token> tokens);

  [[nodiscard]] const core::Engine& engine() const { return engine_; }

 private:
  [[nodiscard]] core::RequestHeader next_header() {
    return {.client = client_, .request = RequestId(++request_)};
  }
  void input(const core::InputView& input);

  core::Engine engine_;
  core::Actions actions_;
  ClientId client_{1};
  std::uint64_t request_ = 0;
  std::uint64_t step_seq_ = 0;
  std::uint64_t sequences_ = 0;
};

}  // namespace kv::cachebench
