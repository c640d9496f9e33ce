// Slow twins of the eviction policies, written from their definitions: plain containers, searched
// from end to end. What tests hold the fast ones against.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tiering/policies/eviction_policy.h"

namespace kv {

struct ReferenceBlock {
  BlockUse use;
  std::optional<EvictionTurn> evictable;
  std::uint64_t uses = 1;
  long double priority = 0;  // H
  bool in_second = false;    // the list or queue of blocks that proved themselves
  std::uint64_t entered = 0;
};

class ReferencePolicy {
 public:
  ReferencePolicy() = default;
  ReferencePolicy(const ReferencePolicy&) = delete;
  ReferencePolicy& operator=(const ReferencePolicy&) = delete;
  ReferencePolicy(ReferencePolicy&&) = delete;
  ReferencePolicy& operator=(ReferencePolicy&&) = delete;
  virtual ~ReferencePolicy() = default;
  virtual void insert(std::uint32_t block, const BlockUse& use) = 0;
  virtual void touch(std::uint32_t block, std::uint64_t last_use, bool counted) = 0;
  virtual void set_evictable(std::uint32_t block, std::optional<EvictionTurn> turn) {
    blocks_.at(block).evictable = turn;
  }
  virtual void remove(std::uint32_t block, bool evicted) = 0;
  [[nodiscard]] virtual std::optional<std::uint32_t> victim() const = 0;
  [[nodiscard]] const std::map<std::uint32_t, ReferenceBlock>& blocks() const { return blocks_; }

 protected:
  std::map<std::uint32_t, ReferenceBlock> blocks_;
};

[[nodiscard]] std::unique_ptr<ReferencePolicy> make_reference(const PolicyOptions& options);

}  // namespace kv
