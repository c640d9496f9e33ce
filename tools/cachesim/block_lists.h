// Doubly linked lists of blocks; a block is in one of them, or in none. Owner: an oracle. Threads:
// none. Memory: 9 bytes a unique block. Cost: O(1).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "allocator/base/check.h"
#include "tools/cachesim/trace.h"

namespace kv::cachesim {

class BlockLists {
 public:
  static constexpr std::uint8_t kListsMax = 4;
  static constexpr std::uint8_t kNowhere = 0xFF;

  explicit BlockLists(std::uint32_t unique_blocks)
      : links_(unique_blocks), where_(unique_blocks, kNowhere) {}

  [[nodiscard]] std::uint8_t where(std::uint32_t block) const { return where_[block]; }
  [[nodiscard]] std::uint32_t size(std::uint8_t list) const { return ends_[list].size; }
  [[nodiscard]] std::uint32_t newest(std::uint8_t list) const { return ends_[list].newest; }
  [[nodiscard]] std::uint32_t oldest(std::uint8_t list) const { return ends_[list].oldest; }
  [[nodiscard]] std::uint32_t newer(std::uint32_t block) const { return links_[block].newer; }

  void push(std::uint8_t list, std::uint32_t block) {  // as the newest; requires: in no list
    Ends& ends = ends_[list];
    links_[block] = {ends.newest, kNoBlock};
    (ends.newest == kNoBlock ? ends.oldest : links_[ends.newest].newer) = block;
    ends.newest = block;
    ++ends.size;
    where_[block] = list;
  }
  void remove(std::uint32_t block) {  // requires: in a list
    Ends& ends = ends_[where_[block]];
    const Links links = links_[block];
    (links.older == kNoBlock ? ends.oldest : links_[links.older].newer) = links.newer;
    (links.newer == kNoBlock ? ends.newest : links_[links.newer].older) = links.older;
    --ends.size;
    where_[block] = kNowhere;
  }
  std::uint32_t pop_oldest(std::uint8_t list) {  // requires: not empty
    const std::uint32_t block = ends_[list].oldest;
    KV_CHECK(block != kNoBlock);
    remove(block);
    return block;
  }
  void move(std::uint8_t list, std::uint32_t block) {  // as the newest; requires: in a list
    remove(block);
    push(list, block);
  }

 private:
  struct Links {
    std::uint32_t older = kNoBlock;
    std::uint32_t newer = kNoBlock;
  };
  struct Ends {
    std::uint32_t oldest = kNoBlock;
    std::uint32_t newest = kNoBlock;
    std::uint32_t size = 0;
  };
  std::vector<Links> links_;
  std::vector<std::uint8_t> where_;
  std::array<Ends, kListsMax> ends_;
};

}  // namespace kv::cachesim
