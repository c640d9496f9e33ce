#include "allocator/run_allocator.h"

#include <algorithm>
#include <bit>

#include "allocator/base/check.h"

namespace kv {
namespace {

constexpr std::uint32_t kWordBits = 64;
constexpr std::uint32_t kStretchesMax = 16;  // looked at in one search

constexpr std::uint64_t bit_of(std::uint32_t index) {
  return std::uint64_t{1} << (index % kWordBits);
}

}  // namespace

RunAllocator::RunAllocator(std::uint32_t capacity) : capacity_(capacity), free_count_(capacity) {
  KV_CHECK(capacity < kNone);
  for (std::uint32_t bits = capacity;;) {
    const std::uint32_t words = (bits + kWordBits - 1) / kWordBits;
    auto& level = levels_.emplace_back(words, ~std::uint64_t{0});
    if (bits % kWordBits != 0) level.back() = bit_of(bits) - 1;
    if (words <= 1) break;
    bits = words;
  }
}

bool RunAllocator::is_free(std::uint32_t id) const {
  return id < capacity_ && (levels_[0][id / kWordBits] & bit_of(id)) != 0;
}

void RunAllocator::clear_bit(std::uint32_t id) {
  for (auto& level : levels_) {
    std::uint64_t& word = level[id / kWordBits];
    word &= ~bit_of(id);
    if (word != 0) break;
    id /= kWordBits;
  }
  --free_count_;
}

bool RunAllocator::take_at(std::uint32_t id) {
  if (!is_free(id)) return false;
  clear_bit(id);
  return true;
}

void RunAllocator::give(std::uint32_t id) {
  KV_CHECK(id < capacity_ && !is_free(id));
  for (auto& level : levels_) {
    std::uint64_t& word = level[id / kWordBits];
    const bool was_empty = word == 0;
    word |= bit_of(id);
    if (!was_empty) break;
    id /= kWordBits;
  }
  ++free_count_;
}

std::uint32_t RunAllocator::next_free(std::uint32_t from) const {
  // Up until a level shows something behind `from`, then down to the first free id of it.
  std::uint32_t index = from;
  for (std::size_t height = 0; height < levels_.size(); ++height) {
    const auto& level = levels_[height];
    const std::uint32_t word = index / kWordBits;
    if (word >= level.size()) return kNone;
    const std::uint64_t behind = level[word] & ~(bit_of(index) - 1);
    if (behind != 0) {
      index = word * kWordBits + static_cast<std::uint32_t>(std::countr_zero(behind));
      while (height > 0) {
        --height;
        const std::uint64_t below = levels_[height][index];
        index = index * kWordBits + static_cast<std::uint32_t>(std::countr_zero(below));
      }
      return index;
    }
    index = word + 1;
  }
  return kNone;
}

std::uint32_t RunAllocator::free_length(std::uint32_t from, std::uint32_t limit) const {
  std::uint32_t length = 0;
  while (length < limit && from + length < capacity_) {
    const std::uint32_t id = from + length;
    const std::uint32_t in_word = kWordBits - id % kWordBits;
    const std::uint64_t word = levels_[0][id / kWordBits] >> (id % kWordBits);
    const auto ones = std::min(static_cast<std::uint32_t>(std::countr_one(word)), in_word);
    length += ones;
    if (ones < in_word) break;
  }
  return std::min(length, limit);
}

std::uint32_t RunAllocator::take_with_room(std::uint32_t room) {
  KV_CHECK(room > 0);
  if (free_count_ == 0) return kNone;
  std::uint32_t best = kNone;
  std::uint32_t best_length = 0;
  std::uint32_t from = cursor_;
  for (std::uint32_t i = 0; i < kStretchesMax && best_length < room; ++i) {
    std::uint32_t id = next_free(from);
    if (id == kNone) id = next_free(0);
    const std::uint32_t length = free_length(id, room);
    if (length > best_length) {
      best = id;
      best_length = length;
    }
    from = id + length;
  }
  clear_bit(best);
  cursor_ = best + best_length < capacity_ ? best + best_length : 0;
  return best;
}

std::uint64_t RunAllocator::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& level : levels_) bytes += level.size() * sizeof(std::uint64_t);
  return bytes;
}

}  // namespace kv
