#include "plugins/client/step_batch.h"

#include <algorithm>

namespace kv::client {

void StepBatch::begin(const StepRequest& request, const MessageLimits& limits) {
  request_ = &request;
  items_max_ = limits.step_items();
  tokens_max_ = limits.step_tokens();
  items_.clear();
  tokens_.clear();
  children_.clear();
  acknowledged_ = appended_ = published_ = truncated_ = 0;
  dropped_ = forked_ = preempted_ = freed_ = 0;
  appended_tokens_ = 0;
  any_given_ = false;
}

bool StepBatch::next(std::span<const StepAnswer::Failure> failures) {
  const StepRequest& request = *request_;
  if (appended_tokens_ > 0) {
    // An append that goes on was the last item of the message before.
    const std::size_t item = items_.size() - 1;
    if (std::ranges::any_of(failures, [item](const auto& f) { return f.item == item; })) {
      ++appended_;
      appended_tokens_ = 0;
    }
  }
  items_.clear();
  tokens_.clear();
  children_.clear();
  for (; acknowledged_ < request.acknowledge.size() && !is_full(); ++acknowledged_) {
    const auto& item = request.acknowledge[acknowledged_];
    items_.push_back({item.sequence, StepOp::acknowledge, 0, 0, item.table_version});
  }
  add_appends();
  const bool appends_done = appended_ == request.append.size();
  for (; appends_done && published_ < request.publish.size() && !is_full(); ++published_) {
    const auto& item = request.publish[published_];
    items_.push_back({item.sequence, StepOp::publish, 0, 0, item.computed_tokens});
  }
  for (; appends_done && truncated_ < request.truncate.size() && !is_full(); ++truncated_) {
    const auto& item = request.truncate[truncated_];
    items_.push_back({item.sequence, StepOp::truncate, 0, 0, item.token_count});
  }
  if (appends_done) add_endings();
  // A step without items still says what is completed.
  const bool given = !items_.empty() || !any_given_;
  any_given_ = true;
  return given;
}

void StepBatch::add_endings() {
  const StepRequest& request = *request_;
  for (; dropped_ < request.drop.size() && !is_full(); ++dropped_) {
    const auto& item = request.drop[dropped_];
    items_.push_back({item.sequence, StepOp::drop, item.first_token, item.token_count, 0});
  }
  for (; forked_ < request.fork.size() && !is_full(); ++forked_) {
    const auto& item = request.fork[forked_];
    const auto child = static_cast<std::uint32_t>(children_.size());
    items_.push_back({item.parent, StepOp::fork, 0, item.max_new_tokens, child});
    children_.push_back(item.child);
  }
  for (; preempted_ < request.preempt.size() && !is_full(); ++preempted_) {
    items_.push_back({request.preempt[preempted_], StepOp::preempt, 0, 0, 0});
  }
  for (; freed_ < request.free.size() && !is_full(); ++freed_) {
    items_.push_back({request.free[freed_], StepOp::free, 0, 0, 0});
  }
}

void StepBatch::add_appends() {
  const StepRequest& request = *request_;
  while (appended_ < request.append.size() && !is_full()) {
    const auto& append = request.append[appended_];
    const std::size_t left = append.tokens.size() - appended_tokens_;
    const std::size_t count = std::min<std::size_t>(left, tokens_max_ - tokens_.size());
    if (count == 0 && left > 0) return;  // the message has no room for tokens
    if (count > 0) {
      items_.push_back({append.sequence, StepOp::append, static_cast<std::uint32_t>(tokens_.size()),
                        static_cast<std::uint32_t>(count), 0});
      const auto first = append.tokens.begin() + static_cast<std::ptrdiff_t>(appended_tokens_);
      tokens_.insert(tokens_.end(), first, first + static_cast<std::ptrdiff_t>(count));
    }
    if (count < left) {
      appended_tokens_ += count;
      return;
    }
    ++appended_;
    appended_tokens_ = 0;
  }
}

}  // namespace kv::client
