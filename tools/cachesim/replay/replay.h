// Replay: a trace through the service's Engine, under virtual time. Machines (a service with its
// links, and an instance), arrivals, and what became of every request.
// Owner: the command. Threads: none. Cost: linear in the trace's blocks and generated tokens.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "allocator/base/time_point.h"
#include "tools/cachesim/replay/compute_model.h"
#include "tools/cachesim/replay/request_result.h"
#include "tools/cachesim/replay/virtual_instance.h"
#include "tools/cachesim/replay/virtual_service.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

enum class RouterKind : std::uint8_t { prefix, random };

struct ReplayOptions {
  // Counts as `hits` defines them: one request at a time, and nothing takes time. The device tier
  // has one slot more than its capacity then, for the token that is always computed.
  bool counts_only = false;
  std::array<std::uint32_t, kTiers> capacity_blocks{};
  std::uint64_t block_bytes = 0;  // of a whole block, all devices together
  std::array<LinkOptions, kLinkCount> links{};
  ComputeModel::Options compute;
  std::uint32_t sequences_max = 256;
  std::uint32_t step_tokens_max = 8'192;
  // Arrivals: at the trace's times (open), or as others finish (closed) when `in_flight` > 0.
  std::uint64_t speed_thousandths = 1'000;
  std::uint32_t in_flight = 0;
  // Machines of this kind, each with tiers of its own.
  std::uint32_t machines = 1;
  RouterKind router = RouterKind::prefix;
  std::uint64_t seed = 1;  // of the random router
};

// Of all machines together; the most that each of them used, summed.
struct TierUse {
  std::uint64_t capacity_blocks = 0;
  std::uint64_t used_blocks_max = 0;
  std::uint64_t used_blocks_mean = 0;  // over time
};

struct LinkUse {
  std::uint64_t bytes = 0, transfers = 0;
  Duration busy{};
};

struct ReplayOutcome {
  std::vector<RequestResult> results;  // by request of the trace
  TimePoint end{};
  std::uint64_t steps = 0;
  Duration computing{};
  std::array<TierUse, kTiers> tiers;
  std::array<LinkUse, kLinkCount> links;
  std::vector<core::Counters> counters;  // of each machine's Engine
};

// requires: the trace's blocks are of one size; capacity_blocks[0] > 0.
[[nodiscard]] ReplayOutcome replay(
    const Trace& trace, const ReplayOptions& options,
    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress = {});

}  // namespace kv::cachesim
