#include "tiering/policies/lru.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace kv {
namespace {

// 20 bits of depth: a sequence has at most 2^20 tokens, so no depth that exists is clipped.
constexpr std::uint32_t kDepthBits = 20;
constexpr std::uint32_t kDepthMax = (1U << kDepthBits) - 1;

constexpr std::uint32_t kUseBits = 43;

std::uint64_t pack(LruPolicy::Turn turn, std::uint64_t last_use, std::uint32_t depth) {
  KV_CHECK(last_use < (std::uint64_t{1} << kUseBits));
  return (static_cast<std::uint64_t>(turn) << (kUseBits + kDepthBits)) | (last_use << kDepthBits) |
         (kDepthMax - std::min(depth, kDepthMax));
}

}  // namespace

LruPolicy::LruPolicy(std::uint32_t block_capacity)
    : keys_(block_capacity, 0), places_(block_capacity, Place{kNone, kAbsent}) {
  static_assert(kUseBits + kDepthBits == kTurnShift);
  KV_CHECK(block_capacity < kAbsent);
  heap_.reserve(block_capacity);
}

void LruPolicy::insert(BlockId block, std::uint64_t last_use, std::uint32_t depth, Turn turn) {
  KV_CHECK(!contains(block));
  const std::uint32_t id = block.value;
  keys_[id] = pack(turn, last_use, depth);
  List& list = list_of(id);
  if (list.tail == kNone || leaves_before(list.tail, id)) {
    list_insert_after(list, list.tail, id);
  } else if (leaves_before(id, list.head)) {
    list_insert_after(list, kNone, id);
  } else {
    heap_push(id);
  }
  ++size_;
}

void LruPolicy::remove(BlockId block) {
  KV_CHECK(contains(block));
  const std::uint32_t id = block.value;
  if (places_[id].next == kInHeap) {
    heap_remove(id);
  } else {
    list_remove(list_of(id), id);
  }
  places_[id] = Place{kNone, kAbsent};
  --size_;
}

BlockId LruPolicy::victim() const {
  // The turn is part of the key, so the first of each list and of the heap can be compared.
  std::uint32_t first = lists_[0].head != kNone ? lists_[0].head : lists_[1].head;
  if (!heap_.empty() && (first == kNone || leaves_before(heap_.front(), first))) {
    first = heap_.front();
  }
  return BlockId(first);
}

std::uint64_t LruPolicy::bytes() const {
  return keys_.capacity() * sizeof(keys_[0]) + places_.capacity() * sizeof(Place) +
         heap_.capacity() * sizeof(heap_[0]);
}

// `previous` kNone: the new head.
void LruPolicy::list_insert_after(List& list, std::uint32_t previous, std::uint32_t block) {
  const std::uint32_t next = previous == kNone ? list.head : places_[previous].next;
  places_[block] = Place{previous, next};
  (previous == kNone ? list.head : places_[previous].next) = block;
  (next == kNone ? list.tail : places_[next].previous) = block;
}

void LruPolicy::list_remove(List& list, std::uint32_t block) {
  const Place place = places_[block];
  (place.previous == kNone ? list.head : places_[place.previous].next) = place.next;
  (place.next == kNone ? list.tail : places_[place.next].previous) = place.previous;
}

void LruPolicy::heap_push(std::uint32_t block) {
  heap_.push_back(block);
  const auto position = static_cast<std::uint32_t>(heap_.size() - 1);
  heap_set(position, block);
  sift_up(position);
}

void LruPolicy::heap_remove(std::uint32_t block) {
  const std::uint32_t position = places_[block].previous;
  const std::uint32_t last = heap_.back();
  heap_.pop_back();
  if (last == block) return;
  heap_set(position, last);
  sift_up(position);
  sift_down(places_[last].previous);
}

void LruPolicy::heap_set(std::uint32_t position, std::uint32_t block) {
  heap_[position] = block;
  places_[block] = Place{position, kInHeap};
}

void LruPolicy::sift_up(std::uint32_t position) {
  const std::uint32_t block = heap_[position];
  while (position > 0) {
    const std::uint32_t parent = (position - 1) / 2;
    if (!leaves_before(block, heap_[parent])) break;
    heap_set(position, heap_[parent]);
    position = parent;
  }
  heap_set(position, block);
}

void LruPolicy::sift_down(std::uint32_t position) {
  const std::uint32_t block = heap_[position];
  const auto size = static_cast<std::uint32_t>(heap_.size());
  for (;;) {
    std::uint32_t child = 2 * position + 1;
    if (child >= size) break;
    if (child + 1 < size && leaves_before(heap_[child + 1], heap_[child])) ++child;
    if (!leaves_before(heap_[child], block)) break;
    heap_set(position, heap_[child]);
    position = child;
  }
  heap_set(position, block);
}

}  // namespace kv
