// The names of core::Counters, as reported by status and metrics: one table, so that no counter is
// forgotten and none has two names.
// Threads: none (constants). Cost: O(1).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "allocator/base/token.h"
#include "cachesvc/core/actions.h"

namespace kv::codec {

using TierCounts = std::array<std::uint64_t, kTierCount>;

// Exactly one of the two members is set. By tier, the full name is name.tier ("hit_tokens.device").
struct CounterName {
  std::string_view name;
  std::uint64_t core::Counters::* value = nullptr;
  TierCounts core::Counters::* by_tier = nullptr;
};

inline constexpr std::array kCounterNames{
    CounterName{"hit_tokens", nullptr, &core::Counters::hit_tokens},
    CounterName{"prompt_tokens", &core::Counters::prompt_tokens},
    CounterName{"computed_tokens", &core::Counters::computed_tokens},
    CounterName{"generated_tokens", &core::Counters::generated_tokens},
    CounterName{"lookups", &core::Counters::lookups},
    CounterName{"admissions", &core::Counters::admissions},
    CounterName{"exhausted", &core::Counters::exhausted},
    CounterName{"published_blocks", &core::Counters::published_blocks},
    CounterName{"adopted_blocks", &core::Counters::adopted_blocks},
    CounterName{"rewritten_blocks", &core::Counters::rewritten_blocks},
    CounterName{"duplicate_blocks", &core::Counters::duplicate_blocks},
    CounterName{"evicted_blocks", nullptr, &core::Counters::evicted_blocks},
    CounterName{"corrupt_blocks", nullptr, &core::Counters::corrupt_blocks},
    CounterName{"failed_blocks", nullptr, &core::Counters::failed_blocks},
    CounterName{"dropped_unsaved_blocks", &core::Counters::dropped_unsaved_blocks},
    CounterName{"recovered_blocks", &core::Counters::recovered_blocks},
    CounterName{"orphaned_blocks", &core::Counters::orphaned_blocks},
    CounterName{"transfers_started", &core::Counters::transfers_started},
    CounterName{"transfers_done", &core::Counters::transfers_done},
    CounterName{"saved_blocks", nullptr, &core::Counters::saved_blocks},
    CounterName{"loaded_blocks", nullptr, &core::Counters::loaded_blocks},
    CounterName{"stale_requests", &core::Counters::stale_requests},
    CounterName{"repeated_requests", &core::Counters::repeated_requests},
    CounterName{"refused_requests", &core::Counters::refused_requests},
    CounterName{"expired_clients", &core::Counters::expired_clients},
    CounterName{"gone_clients", &core::Counters::gone_clients},
    CounterName{"no_space_blocks", &core::Counters::no_space_blocks},
    CounterName{"retried_blocks", &core::Counters::retried_blocks},
    CounterName{"busy_requests", &core::Counters::busy_requests},
    CounterName{"too_large_requests", &core::Counters::too_large_requests},
    CounterName{"refused_sequences", &core::Counters::refused_sequences},
    CounterName{"refused_prompt_tokens", &core::Counters::refused_prompt_tokens},
    CounterName{"refused_namespaces", &core::Counters::refused_namespaces},
    CounterName{"cleared_blocks", &core::Counters::cleared_blocks},
    CounterName{"uncacheable_blocks", &core::Counters::uncacheable_blocks},
    CounterName{"forked_sequences", &core::Counters::forked_sequences},
    CounterName{"preempted_sequences", &core::Counters::preempted_sequences},
    CounterName{"dropped_blocks", &core::Counters::dropped_blocks},
    CounterName{"resumed_tokens", &core::Counters::resumed_tokens},
    CounterName{"resumed_hit_tokens", &core::Counters::resumed_hit_tokens},
    CounterName{"displaced_blocks", &core::Counters::displaced_blocks},
};

[[nodiscard]] constexpr std::size_t named_counter_bytes() {
  std::size_t bytes = 0;
  for (const CounterName& counter : kCounterNames) {
    bytes += counter.by_tier != nullptr ? sizeof(TierCounts) : sizeof(std::uint64_t);
  }
  return bytes;
}
// A new counter without a name does not compile.
static_assert(named_counter_bytes() == sizeof(core::Counters));

}  // namespace kv::codec
