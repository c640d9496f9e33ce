#include "tools/cachesim/replay/machine.h"

namespace kv::cachesim {
namespace {

std::uint32_t device_slots(const ReplayOptions& options) {
  return options.capacity_blocks[0] + (options.counts_only ? 1 : 0);
}

// What a tier can hold at most: more slots than that take only memory of this program.
std::array<std::uint64_t, kTiers> useful_slots(const ReplayOptions& options, const Trace& trace) {
  constexpr std::uint64_t kInFlight = 4'096;
  std::uint64_t longest = 0;
  for (const TraceRequest& request : trace.requests) {
    const std::uint64_t tokens = std::uint64_t{request.input_tokens} + request.output_tokens;
    longest = std::max({longest, std::uint64_t{request.block_count}, tokens / trace.block_tokens});
  }
  const std::uint64_t published = trace.unique_blocks() + kInFlight;
  return {published + options.sequences_max * (longest + 2), published, published};
}

VirtualService::Options service_options(const ReplayOptions& options, const Trace& trace) {
  VirtualService::Options service;
  service.slots = options.capacity_blocks;
  service.slots[0] = device_slots(options);
  const auto useful = useful_slots(options, trace);
  for (std::size_t t = 0; t < kTiers; ++t) {
    service.slots[t] =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(service.slots[t], useful[t]));
  }
  service.block_bytes = options.block_bytes;
  service.links = options.links;
  service.sequences_max = options.sequences_max;
  return service;
}

InstanceOptions instance_options(const ReplayOptions& options) {
  InstanceOptions instance;
  instance.sequences_max = options.sequences_max;
  // One step a request, when it takes no time.
  instance.step_tokens_max = options.counts_only ? 0x7FFFFFFFU : options.step_tokens_max;
  instance.counts_only = options.counts_only;
  instance.device_slots = device_slots(options);
  return instance;
}

}  // namespace

Machine::Machine(const ReplayOptions& options, const Trace& trace, const ComputeModel& compute,
                 std::span<RequestResult> results)
    : options_(options),
      service_(service_options(options, trace)),
      instance_(instance_options(options), trace, compute, service_, results) {}

void Machine::arrive(TimePoint now, std::uint32_t request) {
  instance_.arrive(now, request);
  arrived_ = std::min(arrived_, now);
}

void Machine::advance(TimePoint now) {
  account(now);
  arrived_ = kNever;
  service_.advance(now);
  instance_.advance(now);
  for (std::size_t t = 0; t < kTiers; ++t) {
    used_[t] = service_.used_slots(static_cast<Tier>(t));
    used_max_[t] = std::max(used_max_[t], used_[t]);
  }
}

void Machine::account(TimePoint now) {
  const auto time = static_cast<std::uint64_t>((now - accounted_).count());
  for (std::size_t t = 0; t < kTiers; ++t) used_time_[t] += static_cast<Wide>(time) * used_[t];
  accounted_ = now;
}

std::array<TierUse, kTiers> Machine::use(TimePoint now) const {
  std::array<TierUse, kTiers> use;
  const auto whole = static_cast<std::uint64_t>(now.time_since_epoch().count());
  const auto rest = static_cast<std::uint64_t>((now - accounted_).count());
  for (std::size_t t = 0; t < kTiers; ++t) {
    use[t].capacity_blocks = options_.capacity_blocks[t];
    use[t].used_blocks_max = used_max_[t];
    const Wide time = used_time_[t] + static_cast<Wide>(rest) * used_[t];
    use[t].used_blocks_mean = whole == 0 ? used_[t] : static_cast<std::uint64_t>(time / whole);
  }
  return use;
}

}  // namespace kv::cachesim
