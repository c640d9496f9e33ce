#include "tests/tiering/policies/reference_policies.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace kv {
namespace {

using Blocks = std::map<std::uint32_t, ReferenceBlock>;

// The evictable block that is smallest by `key`, among those that `wanted` lets through.
template <class Wanted, class Key>
std::optional<std::uint32_t> smallest(const Blocks& blocks, Wanted wanted, Key key) {
  std::optional<std::uint32_t> best;
  for (const auto& [id, block] : blocks) {
    if (!block.evictable || !wanted(block)) continue;
    if (!best || key(id, block) < key(*best, blocks.at(*best))) best = id;
  }
  return best;
}

std::int64_t deeper_first(const ReferenceBlock& block) {
  return -static_cast<std::int64_t>(block.use.depth);
}

// H = L + uses * cost.
class GreedyDual final : public ReferencePolicy {
 public:
  explicit GreedyDual(RecomputeCost cost) : cost_(cost) {}
  void insert(std::uint32_t id, const BlockUse& use) override {
    blocks_[id].use = use;
    set_priority(blocks_[id]);
  }
  void touch(std::uint32_t id, std::uint64_t last_use, bool counted) override {
    blocks_.at(id).use.last_use = last_use;
    if (!counted) return;
    ++blocks_.at(id).uses;
    set_priority(blocks_.at(id));
  }
  void remove(std::uint32_t id, bool evicted) override {
    if (evicted) age_ = std::max(age_, blocks_.at(id).priority);
    blocks_.erase(id);
  }
  [[nodiscard]] std::optional<std::uint32_t> victim() const override {
    return smallest(
        blocks_, [](const ReferenceBlock&) { return true; },
        [](std::uint32_t id, const ReferenceBlock& block) {
          return std::tuple(block.evictable.value_or(EvictionTurn::late), block.priority,
                            block.use.last_use, deeper_first(block), id);
        });
  }

 private:
  void set_priority(ReferenceBlock& block) const {
    const long double cost = cost_.block + static_cast<long double>(cost_.depth) * block.use.depth;
    block.priority = age_ + static_cast<long double>(block.uses) * cost;
  }
  RecomputeCost cost_;
  long double age_ = 0;
};

// A list whose victims go by `key`; the early turn of both lists before the late one of any.
template <class Key>
std::optional<std::uint32_t> from_two_lists(const Blocks& blocks, bool second_first, Key key) {
  for (const EvictionTurn turn : {EvictionTurn::early, EvictionTurn::late}) {
    for (const bool second : {second_first, !second_first}) {
      const auto found = smallest(
          blocks,
          [&](const ReferenceBlock& block) {
            return block.evictable.value_or(EvictionTurn::late) == turn &&
                   block.in_second == second;
          },
          key);
      if (found) return found;
    }
  }
  return std::nullopt;
}

std::size_t count(const Blocks& blocks, bool in_second) {
  return static_cast<std::size_t>(std::ranges::count_if(
      blocks, [&](const auto& entry) { return entry.second.in_second == in_second; }));
}

bool take(std::deque<std::uint64_t>& ghosts, std::uint64_t identity) {
  const auto at = std::ranges::find(ghosts, identity);
  if (at == ghosts.end()) return false;
  ghosts.erase(at);
  return true;
}

class Arc final : public ReferencePolicy {
 public:
  explicit Arc(std::uint32_t slots) : slots_(slots) {}
  void insert(std::uint32_t id, const BlockUse& use) override {
    const auto b1 = static_cast<double>(b1_.size());
    const auto b2 = static_cast<double>(b2_.size());
    ReferenceBlock block;
    block.use = use;
    if (take(b1_, use.identity)) {
      p_ = std::min(static_cast<double>(slots_), p_ + std::max(1.0, std::floor(b2 / b1)));
      block.in_second = true;
    } else if (take(b2_, use.identity)) {
      p_ = std::max(0.0, p_ - std::max(1.0, std::floor(b1 / b2)));
      block.in_second = true;
    }
    blocks_[id] = block;
    trim();
  }
  void touch(std::uint32_t id, std::uint64_t last_use, bool counted) override {
    blocks_.at(id).use.last_use = last_use;
    if (counted) blocks_.at(id).in_second = true;
  }
  void remove(std::uint32_t id, bool evicted) override {
    const ReferenceBlock block = blocks_.at(id);
    blocks_.erase(id);
    if (evicted) {
      auto& ghosts = block.in_second ? b2_ : b1_;
      take(ghosts, block.use.identity);
      ghosts.push_back(block.use.identity);
      if (ghosts.size() > slots_) ghosts.pop_front();
    }
    trim();
  }
  [[nodiscard]] std::optional<std::uint32_t> victim() const override {
    const bool t1_first = static_cast<double>(count(blocks_, false)) > p_;
    return from_two_lists(blocks_, !t1_first, [](std::uint32_t id, const ReferenceBlock& block) {
      return std::tuple(block.use.last_use, deeper_first(block), id);
    });
  }

 private:
  void trim() {
    while (!b1_.empty() && count(blocks_, false) + b1_.size() > slots_) b1_.pop_front();
    while (!b2_.empty() && blocks_.size() + b1_.size() + b2_.size() > 2 * slots_) b2_.pop_front();
  }
  std::size_t slots_;
  std::deque<std::uint64_t> b1_, b2_;  // oldest in front
  double p_ = 0;
};

class S3Fifo final : public ReferencePolicy {
 public:
  explicit S3Fifo(std::uint32_t slots)
      : small_(std::max<std::size_t>(1, slots / 10)),
        ghosts_max_(slots - std::min<std::size_t>(slots, small_)) {}
  void insert(std::uint32_t id, const BlockUse& use) override {
    now_ = std::max(now_, use.last_use);
    ReferenceBlock block;
    block.use = use;
    block.uses = 0;
    block.entered = now_;
    block.in_second = take(ghosts_, use.identity);
    blocks_[id] = block;
  }
  void touch(std::uint32_t id, std::uint64_t last_use, bool counted) override {
    now_ = std::max(now_, last_use);
    if (!counted) return;
    blocks_.at(id).uses = std::min<std::uint64_t>(3, blocks_.at(id).uses + 1);
    settle();
  }
  void set_evictable(std::uint32_t id, std::optional<EvictionTurn> turn) override {
    ReferencePolicy::set_evictable(id, turn);
    settle();
  }
  void remove(std::uint32_t id, bool evicted) override {
    const ReferenceBlock block = blocks_.at(id);
    blocks_.erase(id);
    if (evicted && !block.in_second && ghosts_max_ > 0) {
      take(ghosts_, block.use.identity);
      ghosts_.push_back(block.use.identity);
      if (ghosts_.size() > ghosts_max_) ghosts_.pop_front();
    }
    settle();
  }
  [[nodiscard]] std::optional<std::uint32_t> victim() const override {
    return from_two_lists(blocks_, count(blocks_, false) < small_, key);
  }

 private:
  static std::tuple<EvictionTurn, std::uint64_t, std::int64_t, std::uint32_t> key(
      std::uint32_t id, const ReferenceBlock& block) {
    return {block.evictable.value_or(EvictionTurn::late), block.entered, deeper_first(block), id};
  }
  [[nodiscard]] std::optional<std::uint32_t> end_of(bool second) const {
    return smallest(
        blocks_, [&](const ReferenceBlock& block) { return block.in_second == second; }, key);
  }
  void settle() {
    for (auto end = end_of(false); end && blocks_.at(*end).uses > 1; end = end_of(false)) {
      ReferenceBlock& block = blocks_.at(*end);
      block.uses = 0;
      block.in_second = true;
      block.entered = now_;
    }
    for (auto end = end_of(true); end && blocks_.at(*end).uses > 0; end = end_of(true)) {
      ReferenceBlock& block = blocks_.at(*end);
      --block.uses;
      block.entered = now_;
    }
  }
  std::size_t small_;
  std::size_t ghosts_max_;
  std::deque<std::uint64_t> ghosts_;
  std::uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<ReferencePolicy> make_reference(const PolicyOptions& options) {
  switch (options.kind) {
    case PolicyKind::lru:
      return nullptr;
    case PolicyKind::arc:
      return std::make_unique<Arc>(options.slot_count);
    case PolicyKind::s3fifo:
      return std::make_unique<S3Fifo>(options.slot_count);
    case PolicyKind::gdsf:
      return std::make_unique<GreedyDual>(options.recompute_cost);
    case PolicyKind::lfu_da:
      return std::make_unique<GreedyDual>(RecomputeCost{.block = 1, .depth = 0});
  }
  return nullptr;
}

}  // namespace kv
