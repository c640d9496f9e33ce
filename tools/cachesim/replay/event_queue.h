// EventQueue: what happens next. A source (the arrivals, a machine) is due at one time, or never;
// when that changes it is told again, so nothing in here is ever out of date. At equal times the
// source with the smaller number is first: a run does not depend on anything but its input.
// Owner: Replay. Threads: none. Cost: set O(log sources), next O(1).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/base/time_point.h"

namespace kv::cachesim {

inline constexpr TimePoint kNever = TimePoint::max();

class EventQueue {
 public:
  struct Event {
    TimePoint time;
    std::uint32_t source = 0;
  };

  explicit EventQueue(std::uint32_t source_count)
      : leaves_(std::bit_ceil(std::max(source_count, 1U))),
        due_(leaves_, kNever),
        winners_(std::size_t{2} * leaves_) {
    for (std::uint32_t i = 0; i < leaves_; ++i) winners_[leaves_ + i] = i;
    for (std::uint32_t i = leaves_ - 1; i > 0; --i) play(i);
  }

  void set(std::uint32_t source, TimePoint due) {
    KV_CHECK(source < leaves_);
    if (due_[source] == due) return;
    due_[source] = due;
    for (std::uint32_t i = (leaves_ + source) / 2; i > 0; i /= 2) play(i);
  }

  // Its time is kNever when nothing will happen.
  [[nodiscard]] Event next() const {
    const std::uint32_t first = leaves_ == 1 ? 0 : winners_[1];
    return {due_[first], first};
  }

 private:
  void play(std::uint32_t at) {
    const std::uint32_t left = winners_[std::size_t{2} * at];
    const std::uint32_t right = winners_[std::size_t{2} * at + 1];
    winners_[at] = due_[right] < due_[left] ? right : left;
  }

  std::uint32_t leaves_;
  std::vector<TimePoint> due_;          // by source
  std::vector<std::uint32_t> winners_;  // a tree: the source that is due first below a place
};

}  // namespace kv::cachesim
