// GhostList: identities of blocks that went, oldest first, up to a number that is fixed at start.
// What ARC and S3-FIFO tell a block that comes back from one that is new by. Identities are 64 bits
// of a digest: two blocks that share one are taken for each other, which costs a wrong guess only.
// Owner: a policy. Threads: none. Memory is sized at construction: 27 bytes an entry. Cost: O(1).
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/flat_map.h"

namespace kv {

class GhostList {
 public:
  explicit GhostList(std::uint32_t capacity);

  // As the newest; where it is full the oldest is forgotten, with capacity 0 this one.
  void push(std::uint64_t identity);
  bool take(std::uint64_t identity);  // true: it was there, and is not any more
  void drop_oldest();                 // requires: not empty
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Entry {
    std::uint64_t identity = 0;
    std::uint32_t older = kNone;
    std::uint32_t newer = kNone;  // free entries: the next free one
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

  [[nodiscard]] std::uint32_t find(std::uint64_t identity) const;
  void erase(std::uint32_t at);

  std::vector<Entry> entries_;
  FlatMap index_;
  std::uint32_t oldest_ = kNone;
  std::uint32_t newest_ = kNone;
  std::uint32_t free_ = kNone;
  std::uint32_t size_ = 0;
};

}  // namespace kv
