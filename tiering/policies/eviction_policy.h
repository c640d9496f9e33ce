// EvictionPolicy: which block of one tier goes next, for the policies that look at more than the
// last use. A policy is an intrusive structure over block ids, told of every copy in its tier: it
// keeps counts, keys and the identities of blocks that went; never blocks, tiers or time. What may
// go is decided by its caller. Equal calls give equal victims on every machine. victim() is a pure
// look: asking twice, or not at all, changes nothing.
// Owner: EvictionOrder, one a tier. Threads: none. Memory is sized at construction.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "allocator/base/ids.h"

namespace kv {

// The names that configurations and command lines use: policy_name.
enum class PolicyKind : std::uint8_t { lru, arc, s3fifo, gdsf, lfu_da };
inline constexpr PolicyKind kPolicyKinds[] = {PolicyKind::lru, PolicyKind::arc, PolicyKind::s3fifo,
                                              PolicyKind::gdsf, PolicyKind::lfu_da};

[[nodiscard]] std::string_view policy_name(PolicyKind kind);
[[nodiscard]] std::optional<PolicyKind> policy_of_name(std::string_view name);

// Blocks of the early turn go before those of the late one.
enum class EvictionTurn : std::uint8_t { early, late };

// What computing a block again costs, in a unit of the caller's: `block` + `depth` times the number
// of blocks in front of it (attention reads them all). Only the ratio matters.
struct RecomputeCost {
  std::uint32_t block = 1;
  std::uint32_t depth = 0;
};

struct PolicyOptions {
  PolicyKind kind = PolicyKind::lru;
  std::uint32_t block_capacity = 0;  // block ids are below it
  std::uint32_t slot_count = 0;      // of the tier: how many blocks it holds when full
  RecomputeCost recompute_cost;
};

// A block as a policy sees it.
struct BlockUse {
  std::uint64_t identity = 0;  // of the content, spread over 64 bits: outlives the block's id
  std::uint64_t last_use = 0;  // of the engine's use counter, below 2^43
  std::uint32_t depth = 0;
};

class EvictionPolicy {
 public:
  EvictionPolicy() = default;
  EvictionPolicy(const EvictionPolicy&) = delete;
  EvictionPolicy& operator=(const EvictionPolicy&) = delete;
  EvictionPolicy(EvictionPolicy&&) = delete;
  EvictionPolicy& operator=(EvictionPolicy&&) = delete;
  virtual ~EvictionPolicy() = default;

  // The block got a copy in the tier, which counts as its first use; it may not go yet.
  // requires: not contained.
  virtual void insert(BlockId block, const BlockUse& use) = 0;
  // The block was used. `counted`: by another request; else by one that used it before.
  // requires: contained.
  virtual void touch(BlockId block, std::uint64_t last_use, bool counted) = 0;
  // From now on the block may go, in this turn, or (nullopt) may not. requires: contained.
  virtual void set_evictable(BlockId block, std::optional<EvictionTurn> turn) = 0;
  // The block lost its copy; `evicted`: to make room. requires: contained.
  virtual void remove(BlockId block, bool evicted) = 0;

  [[nodiscard]] virtual bool contains(BlockId block) const = 0;
  [[nodiscard]] virtual std::optional<EvictionTurn> evictable(BlockId block) const = 0;
  [[nodiscard]] virtual BlockId victim() const = 0;  // none() when nothing may go
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;
};

// Null for lru, which EvictionOrder holds by value.
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_policy(const PolicyOptions& options);

}  // namespace kv
