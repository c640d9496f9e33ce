#include "plugins/client/step_numbers.h"

namespace kv::client {

Result<void> StepNumbers::begin(std::uint64_t step_seq, std::uint64_t completed_step) {
  if (step_seq <= step_seq_) {
    return Error{ErrorCode::invalid, "step numbers rise with each step", "step_seq"};
  }
  if (completed_step > step_seq) {
    return Error{ErrorCode::invalid, "a later step cannot be completed", "completed_step"};
  }
  while (!in_flight_.empty() && in_flight_.front().step_seq <= completed_step) {
    completed_ = in_flight_.front().last;
    in_flight_.pop_front();
  }
  if (in_flight_.size() >= kStepsInFlightMax) {
    return Error{ErrorCode::exhausted, "too many steps wait for completion", "completed_step"};
  }
  step_seq_ = step_seq;
  completes_itself_ = completed_step == step_seq;
  in_flight_.push_back({.step_seq = step_seq, .last = last_});
  return {};
}

std::uint64_t StepNumbers::next() {
  KV_CHECK(!in_flight_.empty());
  in_flight_.back().last = ++last_;
  return last_;
}

}  // namespace kv::client
