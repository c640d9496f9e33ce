// EvictionOrder: the eviction order of one tier under the policy of its choice. LRU, which needs
// to know only what may go, is held by value and costs no virtual call; the others sit behind
// EvictionPolicy and are told of every copy.
// Owner: PrefixCache, one a tier. Threads: none. Memory and cost: those of the policy.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tiering/policies/eviction_policy.h"
#include "tiering/policies/lru.h"

namespace kv {

class EvictionOrder {
 public:
  explicit EvictionOrder(const PolicyOptions& options)
      : lru_(options.kind == PolicyKind::lru ? options.block_capacity : 0),
        other_(make_policy(options)) {}

  // Whether insert and remove do anything: their caller may save itself the way there.
  [[nodiscard]] bool is_told_of_copies() const { return other_ != nullptr; }
  // The block got its first copy in the tier, or lost its last; `evicted`: to make room.
  // requires: remove: it is not evictable any more.
  void insert(BlockId block, const BlockUse& use) {
    if (other_ != nullptr) other_->insert(block, use);
  }
  void remove(BlockId block, bool evicted) {
    if (other_ != nullptr) other_->remove(block, evicted);
  }
  // requires: inserted.
  void set_evictable(BlockId block, std::uint64_t last_use, std::uint32_t depth,
                     EvictionTurn turn) {
    if (other_ != nullptr) {
      other_->set_evictable(block, turn);
    } else {
      lru_.insert(block, last_use, depth, turn);
    }
  }
  void set_not_evictable(BlockId block) {
    if (other_ != nullptr) {
      other_->set_evictable(block, std::nullopt);
    } else {
      lru_.remove(block);
    }
  }
  // The block was used; one that is not in the tier may be named.
  void touch(BlockId block, std::uint64_t last_use, std::uint32_t depth, bool counted) {
    if (other_ != nullptr) {
      if (other_->contains(block)) other_->touch(block, last_use, counted);
    } else if (lru_.contains(block)) {
      const EvictionTurn turn = lru_.turn(block);
      lru_.remove(block);
      lru_.insert(block, last_use, depth, turn);
    }
  }
  [[nodiscard]] bool is_evictable(BlockId block) const {
    return other_ != nullptr ? other_->evictable(block).has_value() : lru_.contains(block);
  }
  [[nodiscard]] EvictionTurn turn(BlockId block) const {  // requires: is_evictable
    if (other_ == nullptr) return lru_.turn(block);
    return other_->evictable(block).value_or(EvictionTurn::late);
  }
  [[nodiscard]] BlockId victim() const {
    return other_ != nullptr ? other_->victim() : lru_.victim();
  }
  [[nodiscard]] std::uint64_t bytes() const {
    return lru_.bytes() + (other_ != nullptr ? other_->bytes() : 0);
  }

 private:
  LruPolicy lru_;
  std::unique_ptr<EvictionPolicy> other_;  // null: lru_ decides
};

}  // namespace kv
