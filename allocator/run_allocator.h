// RunAllocator: hands out ids 0 .. capacity - 1 so that ids taken one after another by one user are
// consecutive. Free ids are bits of a bitmap, with summaries of 64 words each above it.
// Owner: PrefixTree. Threads: none. Memory is sized at construction: about one bit an id.
// Cost: take_at and give O(levels); take_with_room looks at a bounded number of free stretches.
#pragma once

#include <cstdint>
#include <vector>

namespace kv {

class RunAllocator {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

  explicit RunAllocator(std::uint32_t capacity);  // all ids are free

  // Takes a free id that `room` - 1 free ids follow, or when none is found nearby, the one with
  // most of them. kNone when nothing is free. requires: room > 0.
  [[nodiscard]] std::uint32_t take_with_room(std::uint32_t room);
  // Takes this id. False when it is in use or out of range.
  [[nodiscard]] bool take_at(std::uint32_t id);
  void give(std::uint32_t id);  // requires: taken

  [[nodiscard]] bool is_free(std::uint32_t id) const;
  [[nodiscard]] std::uint32_t free_count() const { return free_count_; }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  // The first free id at or behind `from`, or kNone.
  [[nodiscard]] std::uint32_t next_free(std::uint32_t from) const;
  // How many ids from `from` on are free without a gap, at most `limit`.
  [[nodiscard]] std::uint32_t free_length(std::uint32_t from, std::uint32_t limit) const;
  void clear_bit(std::uint32_t id);

  std::uint32_t capacity_ = 0;
  std::uint32_t free_count_ = 0;
  std::uint32_t cursor_ = 0;                        // where the next search starts
  std::vector<std::vector<std::uint64_t>> levels_;  // [0]: the ids; [n + 1]: words of [n] not zero
};

}  // namespace kv
