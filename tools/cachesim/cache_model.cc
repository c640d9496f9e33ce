#include "tools/cachesim/cache_model.h"

#include <algorithm>

#include "tools/cachesim/compute_cost.h"
#include "tools/cachesim/core_cache.h"
#include "tools/cachesim/flat_oracles.h"
#include "tools/cachesim/leaf_oracle.h"
#include "tools/cachesim/min_bypass.h"

namespace kv::cachesim {
namespace {

constexpr PolicyEntry kPolicies[] = {
    {"lru", "least recently used, leaves first", true},
    {"arc", "adaptive replacement, leaves first", true},
    {"s3fifo", "small and main queue, leaves first", true},
    {"gdsf", "frequency x recompute cost, aged, leaves first", true},
    {"lfu-da", "frequency, aged, leaves first", true},
    {"min_bypass", "the optimum: knows the future"},
    {"lru_forward_touch", "flat LRU touched head to tail"},
    {"lru_leaf", "LRU of leaves (equals lru)"},
    {"fifo_leaf", "first in, first out, of leaves"},
    {"lfu_leaf", "least frequently used, of leaves"},
    {"lfu_persistent_leaf", "the same; counts survive eviction"},
    {"lfu_da_leaf", "LFU with dynamic aging, of leaves"},
    {"gdsf_flop_leaf", "LFU-DA weighted with recompute cost"},
    {"deepest_first_leaf", "the deepest leaf"},
    {"lru_flat", "flat LRU touched tail to head (equals lru)"},
    {"fifo_flat", "flat FIFO"},
    {"clock_flat", "flat CLOCK"},
    {"sieve_flat", "flat SIEVE"},
    {"s3fifo_flat", "flat S3-FIFO"},
    {"slru_flat", "flat segmented LRU"},
    {"arc_flat", "flat ARC"},
};

struct LeafName {
  std::string_view name;
  LeafRule rule;
};
constexpr LeafName kLeafNames[] = {
    {"lru_leaf", LeafRule::lru},
    {"fifo_leaf", LeafRule::fifo},
    {"lfu_leaf", LeafRule::lfu},
    {"lfu_persistent_leaf", LeafRule::lfu_persistent},
    {"lfu_da_leaf", LeafRule::lfu_da},
    {"gdsf_flop_leaf", LeafRule::gdsf_flop},
    {"deepest_first_leaf", LeafRule::deepest_first},
};

}  // namespace

std::span<const PolicyEntry> known_policies() { return kPolicies; }

std::unique_ptr<CacheModel> make_cache_model(std::string_view policy, const Trace& trace,
                                             std::uint32_t capacity) {
  if (const auto kind = policy_of_name(policy)) {
    return std::make_unique<CoreCache>(*kind, capacity,
                                       recompute_cost(std::max(1U, trace.block_tokens)));
  }
  if (policy == "min_bypass") return std::make_unique<MinBypass>(trace, capacity);
  for (const LeafName& leaf : kLeafNames) {
    if (leaf.name == policy) return std::make_unique<LeafOracle>(trace, capacity, leaf.rule);
  }
  return make_flat_oracle(policy, trace.unique_blocks(), capacity);
}

}  // namespace kv::cachesim
