#include "tools/cachesim/flat_oracles.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tools/cachesim/block_lists.h"

namespace kv::cachesim {
namespace {

// What a flat policy is asked: is a block cached, and here it is used.
template <class Policy>
class FlatCache final : public CacheModel {
 public:
  FlatCache(std::uint32_t unique_blocks, std::uint32_t capacity, bool head_first)
      : policy_(unique_blocks, capacity), head_first_(head_first) {}

  std::uint32_t take(std::span<const std::uint32_t> blocks) override {
    std::uint32_t hits = 0;
    while (hits < blocks.size() && policy_.cached(blocks[hits])) ++hits;
    if (head_first_) {
      for (const std::uint32_t block : blocks) policy_.use(block);
    } else {
      for (std::size_t i = blocks.size(); i-- > 0;) policy_.use(blocks[i]);
    }
    return hits;
  }

 private:
  Policy policy_;
  bool head_first_;
};

class OneList {
 public:
  OneList(std::uint32_t unique_blocks, std::uint32_t capacity)
      : lists_(unique_blocks), capacity_(capacity) {}
  [[nodiscard]] bool cached(std::uint32_t block) const { return lists_.where(block) == 0; }

 protected:
  BlockLists lists_;
  std::uint32_t capacity_;
};

class Lru : public OneList {
 public:
  using OneList::OneList;
  void use(std::uint32_t block) {
    if (cached(block)) return lists_.move(0, block);
    if (lists_.size(0) == capacity_) lists_.pop_oldest(0);
    lists_.push(0, block);
  }
};

class Fifo : public OneList {
 public:
  using OneList::OneList;
  void use(std::uint32_t block) {
    if (cached(block)) return;
    if (lists_.size(0) == capacity_) lists_.pop_oldest(0);
    lists_.push(0, block);
  }
};

// FIFO, but a block that was used since gets a second round.
class Clock : public OneList {
 public:
  Clock(std::uint32_t unique_blocks, std::uint32_t capacity)
      : OneList(unique_blocks, capacity), used_(unique_blocks, false) {}
  void use(std::uint32_t block) {
    if (cached(block)) {
      used_[block] = true;
      return;
    }
    while (lists_.size(0) == capacity_) {
      const std::uint32_t oldest = lists_.pop_oldest(0);
      if (used_[oldest]) lists_.push(0, oldest);
      used_[oldest] = false;
    }
    used_[block] = false;
    lists_.push(0, block);
  }

 private:
  std::vector<bool> used_;
};

// A hand goes from old to new, lets go the first block that was not used since it last passed, and
// stays there.
class Sieve : public OneList {
 public:
  Sieve(std::uint32_t unique_blocks, std::uint32_t capacity)
      : OneList(unique_blocks, capacity), used_(unique_blocks, false) {}
  void use(std::uint32_t block) {
    if (cached(block)) {
      used_[block] = true;
      return;
    }
    if (lists_.size(0) == capacity_) evict();
    used_[block] = false;
    lists_.push(0, block);
  }

 private:
  void evict() {
    if (hand_ == kNoBlock) hand_ = lists_.oldest(0);
    while (used_[hand_]) {
      used_[hand_] = false;
      hand_ = lists_.newer(hand_);
      if (hand_ == kNoBlock) hand_ = lists_.oldest(0);
    }
    const std::uint32_t gone = hand_;
    hand_ = lists_.newer(gone);
    lists_.remove(gone);
  }
  std::vector<bool> used_;
  std::uint32_t hand_ = kNoBlock;
};

// Two LRU lists: a second use moves a block to the protected one, four fifths of the capacity.
class Slru {
 public:
  Slru(std::uint32_t unique_blocks, std::uint32_t capacity)
      : lists_(unique_blocks),
        capacity_(capacity),
        protected_max_(static_cast<std::uint32_t>(std::uint64_t{capacity} * 4 / 5)) {}
  [[nodiscard]] bool cached(std::uint32_t block) const {
    return lists_.where(block) != BlockLists::kNowhere;
  }
  void use(std::uint32_t block) {
    if (!cached(block)) {
      if (lists_.size(kProbation) + lists_.size(kProtected) == capacity_) {
        lists_.pop_oldest(lists_.size(kProbation) > 0 ? kProbation : kProtected);
      }
      lists_.push(kProbation, block);
      return;
    }
    lists_.move(kProtected, block);
    while (lists_.size(kProtected) > protected_max_) {
      lists_.push(kProbation, lists_.pop_oldest(kProtected));
    }
  }

 private:
  static constexpr std::uint8_t kProbation = 0;
  static constexpr std::uint8_t kProtected = 1;
  BlockLists lists_;
  std::uint32_t capacity_;
  std::uint32_t protected_max_;
};

// Queues of new blocks (a tenth of the capacity), of those that were used there, and of what went.
class S3Fifo {
 public:
  S3Fifo(std::uint32_t unique_blocks, std::uint32_t capacity)
      : lists_(unique_blocks),
        uses_(unique_blocks, 0),
        capacity_(capacity),
        small_max_(std::max(1U, capacity / 10)) {}
  [[nodiscard]] bool cached(std::uint32_t block) const { return lists_.where(block) <= kMain; }
  void use(std::uint32_t block) {
    if (cached(block)) {
      uses_[block] = static_cast<std::uint8_t>(std::min(uses_[block] + 1, 3));
      return;
    }
    while (lists_.size(kSmall) + lists_.size(kMain) >= capacity_) evict();
    const bool known = lists_.where(block) == kGhosts;
    if (known) lists_.remove(block);
    uses_[block] = 0;
    lists_.push(known ? kMain : kSmall, block);
  }

 private:
  void evict() {
    if (lists_.size(kSmall) >= small_max_ || lists_.size(kMain) == 0) {
      evict_small();
    } else {
      evict_main();
    }
  }
  void evict_small() {
    const std::uint32_t block = lists_.pop_oldest(kSmall);
    if (uses_[block] > 1) {
      uses_[block] = 0;
      lists_.push(kMain, block);
      return;
    }
    const std::uint32_t ghosts_max = capacity_ - std::min(capacity_, small_max_);
    if (ghosts_max == 0) return;
    if (lists_.size(kGhosts) == ghosts_max) lists_.pop_oldest(kGhosts);
    lists_.push(kGhosts, block);
  }
  void evict_main() {
    const std::uint32_t block = lists_.pop_oldest(kMain);
    if (uses_[block] == 0) return;
    --uses_[block];
    lists_.push(kMain, block);
  }
  static constexpr std::uint8_t kSmall = 0;
  static constexpr std::uint8_t kMain = 1;
  static constexpr std::uint8_t kGhosts = 2;
  BlockLists lists_;
  std::vector<std::uint8_t> uses_;
  std::uint32_t capacity_;
  std::uint32_t small_max_;
};

// Megiddo and Modha: T1 used once, T2 used again, B1 and B2 what went from them; p is T1's share.
class Arc {
 public:
  Arc(std::uint32_t unique_blocks, std::uint32_t capacity)
      : lists_(unique_blocks), capacity_(capacity) {}
  [[nodiscard]] bool cached(std::uint32_t block) const { return lists_.where(block) <= kT2; }
  void use(std::uint32_t block) {
    const std::uint8_t where = lists_.where(block);
    if (where <= kT2) return lists_.move(kT2, block);
    const std::uint32_t b1 = lists_.size(kB1);
    const std::uint32_t b2 = lists_.size(kB2);
    if (where == kB1) {
      target_ = std::min(capacity_, target_ + std::max(1U, b2 / b1));
      replace(false);
      return lists_.move(kT2, block);
    }
    if (where == kB2) {
      target_ -= std::min(target_, std::max(1U, b1 / b2));
      replace(true);
      return lists_.move(kT2, block);
    }
    const std::uint32_t t1 = lists_.size(kT1);
    if (t1 + b1 == capacity_) {
      if (t1 < capacity_) {
        lists_.pop_oldest(kB1);
        replace(false);
      } else {
        lists_.pop_oldest(kT1);
      }
    } else if (const std::uint32_t all = t1 + lists_.size(kT2) + b1 + b2; all >= capacity_) {
      if (all == 2 * capacity_) lists_.pop_oldest(kB2);
      replace(false);
    }
    lists_.push(kT1, block);
  }

 private:
  void replace(bool came_from_b2) {
    if (lists_.size(kT1) + lists_.size(kT2) < capacity_) return;
    const std::uint32_t t1 = lists_.size(kT1);
    if (t1 > 0 && (t1 > target_ || (came_from_b2 && t1 == target_) || lists_.size(kT2) == 0)) {
      lists_.push(kB1, lists_.pop_oldest(kT1));
    } else {
      lists_.push(kB2, lists_.pop_oldest(kT2));
    }
  }
  static constexpr std::uint8_t kT1 = 0;
  static constexpr std::uint8_t kT2 = 1;
  static constexpr std::uint8_t kB1 = 2;
  static constexpr std::uint8_t kB2 = 3;
  BlockLists lists_;
  std::uint32_t capacity_;
  std::uint32_t target_ = 0;
};

}  // namespace

std::unique_ptr<CacheModel> make_flat_oracle(std::string_view name, std::uint32_t unique_blocks,
                                             std::uint32_t capacity) {
  const auto make = [&]<class Policy>(std::type_identity<Policy>, bool head_first = false) {
    return std::make_unique<FlatCache<Policy>>(unique_blocks, capacity, head_first);
  };
  if (name == "lru_flat") return make(std::type_identity<Lru>());
  if (name == "lru_forward_touch") return make(std::type_identity<Lru>(), true);
  if (name == "fifo_flat") return make(std::type_identity<Fifo>());
  if (name == "clock_flat") return make(std::type_identity<Clock>());
  if (name == "sieve_flat") return make(std::type_identity<Sieve>());
  if (name == "slru_flat") return make(std::type_identity<Slru>());
  if (name == "s3fifo_flat") return make(std::type_identity<S3Fifo>());
  if (name == "arc_flat") return make(std::type_identity<Arc>());
  return nullptr;
}

}  // namespace kv::cachesim
