// A CacheModel that is the service's own PrefixCache with one tier: a block of the trace is a block
// of one token there. Per request: match, pin, evict and insert what is missing, touch, unpin; as
// the engine does it when loads and computing take no time. What does not fit is not cached.
// Owner: the command. Threads: none. Cost: as PrefixCache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"
#include "cachesvc/core/prefix_cache.h"
#include "tools/cachesim/cache_model.h"

namespace kv::cachesim {

class CoreCache final : public CacheModel {
 public:
  CoreCache(PolicyKind policy, std::uint32_t capacity, RecomputeCost cost);

  std::uint32_t take(std::span<const std::uint32_t> blocks) override;

 private:
  bool make_room();

  core::PrefixCache cache_;
  RootId root_;
  std::vector<Token> tokens_;
  std::vector<BlockId> path_;
};

}  // namespace kv::cachesim
