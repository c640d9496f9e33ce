#include "tools/cachesim/replay/machine.h"

namespace kv::cachesim {
namespace {

std::uint32_t device_slots(const ReplayOptions& options) {
  return options.capacity_blocks[0] + (options.counts_only ? 1 : 0);
}

VirtualService::Options service_options(const ReplayOptions& options) {
  VirtualService::Options service;
  service.slots = options.capacity_blocks;
  service.slots[0] = device_slots(options);
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
      service_(service_options(options)),
      instance_(instance_options(options), trace, compute, service_, results) {}

void Machine::arrive(TimePoint now, std::uint32_t request) {
  instance_.arrive(now, request);
  advance(now);
}

void Machine::advance(TimePoint now) {
  account(now);
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
