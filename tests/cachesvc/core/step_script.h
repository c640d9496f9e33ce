// StepScript: puts a Step together, item by item, and keeps the memory that it points to.
// Owner: a test. Threads: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cachesvc/core/inputs.h"

namespace kv::core {

class StepScript {
 public:
  StepScript& append(SequenceId sequence, std::span<const Token> tokens) {
    items_.push_back({.sequence = sequence,
                      .op = StepOp::append,
                      .token_offset = static_cast<std::uint32_t>(tokens_.size()),
                      .token_count = static_cast<std::uint32_t>(tokens.size())});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    return *this;
  }
  StepScript& publish(SequenceId sequence, std::uint32_t tokens) {
    return item(sequence, StepOp::publish, tokens);
  }
  StepScript& truncate(SequenceId sequence, std::uint32_t tokens) {
    return item(sequence, StepOp::truncate, tokens);
  }
  StepScript& free(SequenceId sequence) { return item(sequence, StepOp::free, 0); }
  StepScript& acknowledge(SequenceId sequence, std::uint32_t version) {
    return item(sequence, StepOp::acknowledge, version);
  }
  // With room for `new_tokens` more.
  StepScript& fork(SequenceId parent, SequenceId child, std::uint32_t new_tokens = 0) {
    items_.push_back({.sequence = parent,
                      .op = StepOp::fork,
                      .token_count = new_tokens,
                      .value = static_cast<std::uint32_t>(children_.size())});
    children_.push_back(child);
    return *this;
  }
  StepScript& preempt(SequenceId sequence) { return item(sequence, StepOp::preempt, 0); }
  StepScript& drop(SequenceId sequence, std::uint32_t first_token, std::uint32_t tokens) {
    items_.push_back({.sequence = sequence,
                      .op = StepOp::drop,
                      .token_offset = first_token,
                      .token_count = tokens});
    return *this;
  }
  // Valid as long as the script lives and is not changed.
  [[nodiscard]] Step at(std::uint64_t step_seq, std::uint64_t completed_step) const {
    return {.header = {},
            .step_seq = step_seq,
            .completed_step = completed_step,
            .items = items_,
            .tokens = tokens_,
            .children = children_};
  }

 private:
  StepScript& item(SequenceId sequence, StepOp op, std::uint32_t value) {
    items_.push_back({.sequence = sequence, .op = op, .value = value});
    return *this;
  }
  std::vector<StepItem> items_;
  std::vector<Token> tokens_;
  std::vector<SequenceId> children_;
};

}  // namespace kv::core
