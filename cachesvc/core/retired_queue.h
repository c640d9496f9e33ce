// RetiredQueue: in which order the blocks of retired roots are given up: children before parents,
// each block looked at once, and once more when it lost a pin. Whoever takes a block from here
// decides what of it can go; what running work still holds stays until its pin goes.
//
// Owner: the Engine. Threads: none. No recursion: a cursor walks the nodes. A cursor whose node was
// removed by somebody else begins its root anew. Cost: next() one hop a node, O(1) a block.
#pragma once

#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "cachesvc/core/prefix_cache.h"

namespace kv::core {

class RetiredQueue {
 public:
  // requires: the root was retired.
  void add(RootId root);
  // A block of a retired root lost a pin.
  void add_unpinned(BlockId block);

  // The next block, or none(): nothing waits, or `hops` ran out. The caller gives up what it can of
  // it before it asks again. Blocks that nothing holds come without children.
  [[nodiscard]] BlockId next(const PrefixCache& cache, std::uint32_t& hops);
  [[nodiscard]] bool empty() const { return passes_.empty() && unpinned_.empty(); }

  // Roots of all time: when finished() reaches what added() was, each block of the roots from
  // before had its turn.
  [[nodiscard]] std::uint64_t added() const { return added_; }
  [[nodiscard]] std::uint64_t finished() const { return finished_; }

 private:
  struct Pass {
    RootId root;
    NodeId node;              // where the cursor stands; none(): begins
    std::uint32_t left = 0;   // blocks at the front of its run that are still to come
    bool descending = false;  // its children come first
  };
  [[nodiscard]] BlockId next_unpinned(const PrefixCache& cache);
  [[nodiscard]] BlockId next_of_pass(const PrefixCache& cache, Pass& pass);
  void begin(const PrefixTree& tree, Pass& pass);
  void move_on(const PrefixTree& tree, Pass& pass);
  void finish();

  std::vector<Pass> passes_;  // the first one is walked
  std::vector<BlockId> unpinned_;
  std::uint64_t added_ = 0;
  std::uint64_t finished_ = 0;
};

}  // namespace kv::core
