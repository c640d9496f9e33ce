// ArcPolicy: the adaptive replacement cache. Blocks used by one request are `recent`, those used by
// more `frequent`; each list goes least recently used first, and remembers as many of what went as
// the tier has slots. A block that comes back shifts the balance to the list it was missed from:
// `recent_target` is how many slots the recent ones may keep.
// From the textbook it differs in two points: a block that may not go (it has children, or a pin)
// is passed over, as is a list of which none may go; and the rule for a block that comes back from
// the frequent ghosts while the recent list has exactly its target is left out, because room is
// made before the block that needs it is named.
// Owner: EvictionOrder. Threads: none. Memory: 57 bytes a block, 54 a slot. Cost: as LruPolicy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tiering/policies/eviction_policy.h"
#include "tiering/policies/ghost_list.h"
#include "tiering/policies/lru.h"

namespace kv {

class ArcPolicy final : public EvictionPolicy {
 public:
  ArcPolicy(std::uint32_t block_capacity, std::uint32_t slot_count);

  void insert(BlockId block, const BlockUse& use) override;
  void touch(BlockId block, std::uint64_t last_use, bool counted) override;
  void set_evictable(BlockId block, std::optional<EvictionTurn> turn) override;
  void remove(BlockId block, bool evicted) override;
  [[nodiscard]] bool contains(BlockId block) const override {
    return records_[block.value].place != Place::absent;
  }
  [[nodiscard]] std::optional<EvictionTurn> evictable(BlockId block) const override;
  [[nodiscard]] BlockId victim() const override;
  [[nodiscard]] std::uint64_t bytes() const override;

  [[nodiscard]] std::uint32_t recent_target() const { return recent_target_; }

 private:
  enum class Place : std::uint8_t { absent, recent, frequent };
  struct Record {
    BlockUse use;
    Place place = Place::absent;
  };
  [[nodiscard]] LruPolicy& list(const Record& record) {
    return record.place == Place::recent ? recent_ : frequent_;
  }
  void trim_ghosts();

  std::uint32_t slot_count_;
  std::vector<Record> records_;
  LruPolicy recent_;    // T1: those of its blocks that may go
  LruPolicy frequent_;  // T2: likewise
  GhostList recent_ghosts_;
  GhostList frequent_ghosts_;
  std::uint32_t recent_count_ = 0;  // all blocks of T1
  std::uint32_t frequent_count_ = 0;
  std::uint32_t recent_target_ = 0;  // p
};

}  // namespace kv
