// StepNumbers: the step numbers on the wire. A step that is too large for one message goes as
// several, and the service wants a higher number for each; so steps are numbered anew, and what the
// caller says is completed is translated. Owner: one Client. Threads: none. Cost: O(1), amortised;
// at most kStepsInFlightMax kept.
#pragma once

#include <cstdint>
#include <deque>

#include "allocator/base/result.h"

namespace kv::client {

inline constexpr std::size_t kStepsInFlightMax = 4'096;

class StepNumbers {
 public:
  // The caller's next step. fails: invalid (step_seq does not rise, or is behind completed_step),
  // exhausted (too many steps that were not completed).
  [[nodiscard]] Result<void> begin(std::uint64_t step_seq, std::uint64_t completed_step);
  // The number of the step's next message. requires: begin.
  [[nodiscard]] std::uint64_t next();
  // All messages up to this number are completed, as of the last begin: the step's own where the
  // caller said so.
  [[nodiscard]] std::uint64_t completed() const { return completes_itself_ ? last_ : completed_; }

 private:
  struct Step {
    std::uint64_t step_seq = 0;
    std::uint64_t last = 0;  // number of its last message
  };
  std::deque<Step> in_flight_;
  std::uint64_t step_seq_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t completed_ = 0;
  bool completes_itself_ = false;
};

}  // namespace kv::client
