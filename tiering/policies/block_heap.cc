#include "tiering/policies/block_heap.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace kv {
namespace {

// As LruPolicy has them.
constexpr std::uint32_t kDepthBits = 20;
constexpr std::uint32_t kDepthMax = (1U << kDepthBits) - 1;
constexpr std::uint32_t kUseBits = 43;

}  // namespace

BlockHeap::BlockHeap(std::uint32_t block_capacity)
    : keys_(block_capacity), places_(block_capacity, kAbsent) {
  KV_CHECK(block_capacity < kAbsent);
  heap_.reserve(block_capacity);
}

void BlockHeap::push(BlockId block, EvictionTurn turn, std::uint64_t value, std::uint64_t last_use,
                     std::uint32_t depth) {
  KV_CHECK(!contains(block) && value <= kValueMax && last_use >> kUseBits == 0);
  const std::uint64_t turn_bit = turn == EvictionTurn::late ? kValueMax + 1 : 0;
  keys_[block.value] =
      Key{turn_bit | value, (last_use << kDepthBits) | (kDepthMax - std::min(depth, kDepthMax))};
  heap_.push_back(block.value);
  places_[block.value] = size() - 1;
  sift_up(size() - 1);
}

void BlockHeap::remove(BlockId block) {
  KV_CHECK(contains(block));
  const std::uint32_t position = places_[block.value];
  places_[block.value] = kAbsent;
  const std::uint32_t last = heap_.back();
  heap_.pop_back();
  if (last == block.value) return;
  place(position, last);
  sift_up(position);
  sift_down(places_[last]);
}

// Equal or not, values keep their order, but what falls to 0 together is a tie from then on: the
// heap is put in order again.
void BlockHeap::subtract(std::uint64_t amount) {
  for (const std::uint32_t block : heap_) {
    const std::uint64_t value = keys_[block].word & kValueMax;
    keys_[block].word -= std::min(value, amount);
  }
  for (std::uint32_t position = size() / 2; position-- > 0;) sift_down(position);
}

BlockId BlockHeap::front() const { return heap_.empty() ? BlockId::none() : BlockId(heap_[0]); }

std::uint64_t BlockHeap::bytes() const {
  return keys_.capacity() * sizeof(Key) +
         (places_.capacity() + heap_.capacity()) * sizeof(std::uint32_t);
}

bool BlockHeap::goes_before(std::uint32_t a, std::uint32_t b) const {
  const Key& one = keys_[a];
  const Key& other = keys_[b];
  if (one.word != other.word) return one.word < other.word;
  return one.tie != other.tie ? one.tie < other.tie : a < b;
}

void BlockHeap::place(std::uint32_t position, std::uint32_t block) {
  heap_[position] = block;
  places_[block] = position;
}

void BlockHeap::sift_up(std::uint32_t position) {
  const std::uint32_t block = heap_[position];
  while (position > 0) {
    const std::uint32_t parent = (position - 1) / 2;
    if (!goes_before(block, heap_[parent])) break;
    place(position, heap_[parent]);
    position = parent;
  }
  place(position, block);
}

void BlockHeap::sift_down(std::uint32_t position) {
  const std::uint32_t block = heap_[position];
  for (;;) {
    std::uint32_t child = 2 * position + 1;
    if (child >= size()) break;
    if (child + 1 < size() && goes_before(heap_[child + 1], heap_[child])) ++child;
    if (!goes_before(heap_[child], block)) break;
    place(position, heap_[child]);
    position = child;
  }
  place(position, block);
}

}  // namespace kv
