// SharedLink: one direction of one link. A transfer waits for the latency, then shares the
// bandwidth with all others that are under way, each the same part (processor sharing).
// Whole numbers throughout: a transfer ends within a nanosecond of the exact time.
// Owner: VirtualService. Threads: none. Cost: O(log transfers) each.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "allocator/base/time_point.h"
#include "tools/cachesim/replay/event_queue.h"
#include "tools/cachesim/replay/wide.h"

namespace kv::cachesim {

struct LinkOptions {
  std::uint64_t bytes_per_second = 0;  // 0: bytes take no time
  Duration latency{};
};

class SharedLink {
 public:
  explicit SharedLink(const LinkOptions& options) : options_(options) {}

  // requires: now never goes back, and next() is not before it.
  void start(TimePoint now, std::uint64_t id, std::uint64_t bytes);
  // When a transfer gets under way or ends; kNever when none is there.
  [[nodiscard]] TimePoint next() const;
  // Time passes; appends the ids of the transfers that have ended by now, in the order of their
  // ends. requires: now never goes back.
  void advance(TimePoint now, std::vector<std::uint64_t>& ended);

  [[nodiscard]] std::uint64_t bytes_moved() const { return bytes_moved_; }  // of ended transfers
  [[nodiscard]] std::uint64_t transfers() const { return transfers_; }      // ended ones
  [[nodiscard]] Duration busy() const { return busy_; }  // time with a transfer under way

 private:
  struct Transfer {
    std::uint64_t id = 0;
    std::uint64_t bytes = 0;
  };
  // Bytes that each transfer under way has been given since the link was idle, in 2^-32 bytes.
  using Share = Wide;
  static constexpr unsigned kShareBits = 32;

  [[nodiscard]] TimePoint next_end() const;
  void serve(TimePoint until);
  void enter(const Transfer& transfer);

  LinkOptions options_;
  TimePoint now_{};
  std::deque<std::pair<TimePoint, Transfer>> waiting_;  // for the latency to pass
  // By the share at which it ends, then in order of arrival.
  std::map<std::pair<Share, std::uint64_t>, Transfer> active_;
  Share share_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t bytes_moved_ = 0, transfers_ = 0;
  Duration busy_{};
};

}  // namespace kv::cachesim
