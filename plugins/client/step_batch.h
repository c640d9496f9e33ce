// StepBatch: cuts a StepRequest into messages within the protocol's limits, in the order of its
// items. Owner: one Client; reused, so that a steady step allocates nothing. Threads: none. Cost:
// O(items + tokens).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plugins/client/messages.h"

namespace kv::client {

class StepBatch {
 public:
  // Starts over.
  void begin(const StepRequest& request, const MessageLimits& limits = {});
  // Fills items() and tokens() with the next message's; false when all was given. `failures` are
  // those of the message before: the rest of an append whose start was refused is left out, since
  // it would land at the wrong position.
  bool next(std::span<const StepAnswer::Failure> failures);

  [[nodiscard]] std::span<const StepItem> items() const { return items_; }
  [[nodiscard]] std::span<const Token> tokens() const { return tokens_; }
  [[nodiscard]] std::span<const SequenceId> children() const { return children_; }

 private:
  [[nodiscard]] bool is_full() const { return items_.size() >= items_max_; }
  void add_appends();
  void add_endings();  // what comes after the truncates

  const StepRequest* request_ = nullptr;
  std::size_t items_max_ = kStepItemsMax, tokens_max_ = kTokensPerMessageMax;
  std::vector<StepItem> items_;
  std::vector<Token> tokens_;
  std::vector<SequenceId> children_;
  // How far each list of the request was given.
  std::size_t acknowledged_ = 0, appended_ = 0, published_ = 0, truncated_ = 0;
  std::size_t dropped_ = 0, forked_ = 0, preempted_ = 0, freed_ = 0;
  std::size_t appended_tokens_ = 0;  // of request_->append[appended_]
  bool any_given_ = false;
};

}  // namespace kv::client
