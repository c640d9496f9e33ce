// S3FifoPolicy: three queues. New blocks enter `small`, a tenth of the slots; what another request
// used there more than once moves on to `main` when its turn comes, the rest goes, and is
// remembered (`ghosts`, as many as main has slots): a block that comes back while it is remembered
// enters main. A block at the end of main that was used since goes to its start instead, one use
// poorer. So one-time blocks leave soon, and do not push out what is used again.
// From the textbook it differs in two points: a block that may not go (it has children, or a pin)
// is passed over; and the moves between the queues are made as soon as they are due, not at the
// next eviction, so that victim() is a pure look.
// Owner: EvictionOrder. Threads: none. Memory: 57 bytes a block, 25 a slot. Cost: as LruPolicy; at
// most three moves for each use.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tiering/policies/eviction_policy.h"
#include "tiering/policies/ghost_list.h"
#include "tiering/policies/lru.h"

namespace kv {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  S3FifoPolicy(std::uint32_t block_capacity, std::uint32_t slot_count);

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

 private:
  enum class Place : std::uint8_t { absent, small, main };
  struct Record {
    std::uint64_t identity = 0;
    std::uint64_t entered = 0;  // the use at which it entered its queue
    std::uint32_t depth = 0;
    Place place = Place::absent;
    std::uint8_t uses = 0;  // since it entered, at most kUsesMax
  };
  [[nodiscard]] LruPolicy& queue(const Record& record) {
    return record.place == Place::small ? small_ : main_;
  }
  void enter_main(BlockId block);
  void make_due_moves();

  std::uint32_t small_target_;
  std::vector<Record> records_;
  LruPolicy small_;  // those of its blocks that may go, by when they entered
  LruPolicy main_;
  GhostList ghosts_;
  std::uint32_t small_count_ = 0;  // all blocks in small
  std::uint64_t latest_use_ = 0;
};

}  // namespace kv
