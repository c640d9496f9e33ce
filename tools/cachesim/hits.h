// What `hits` counts: one policy at one capacity over a whole trace. Owner: the command. Threads:
// none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tools/cachesim/cache_model.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

struct HitCounts {
  std::string policy;
  std::uint32_t capacity_blocks = 0;
  std::uint64_t block_hits = 0;
  std::uint64_t block_accesses = 0;
  std::uint64_t token_hits = 0;
  std::uint64_t tokens = 0;  // of all prompts
  double compute_saved = 0;  // share of the prefill's floating-point operations
  double seconds = 0;        // of CPU time that counting took; not part of the result
};

using RequestProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// requires: the policy is known; capacity > 0.
[[nodiscard]] HitCounts count_hits(const Trace& trace, std::string_view policy,
                                   std::uint32_t capacity, const RequestProgress& progress = {});

}  // namespace kv::cachesim
