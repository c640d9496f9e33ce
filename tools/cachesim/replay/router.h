// Router: which machine gets a request. Owner: replay. Threads: none. Cost: random O(1); prefix one
// Lookup at each machine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/base/prng.h"
#include "allocator/base/time_point.h"
#include "tools/cachesim/replay/machine.h"
#include "tools/cachesim/replay/replay.h"

namespace kv::cachesim {

class Router {
 public:
  Router(RouterKind kind, std::uint64_t seed, std::uint32_t machines)
      : kind_(kind), prng_(seed), given_(machines, 0) {}

  // prefix: where the least is to be computed until this prompt is, what waits there included; of
  // equals where the fewest requests are, then where the fewest came to, then the first. requires:
  // there is a machine.
  [[nodiscard]] std::uint32_t choose(TimePoint now,
                                     std::span<const std::unique_ptr<Machine>> machines,
                                     std::uint32_t request);

 private:
  RouterKind kind_;
  Prng prng_;
  std::vector<std::uint64_t> given_;  // requests, by machine
};

}  // namespace kv::cachesim
