// Belady's optimum for prefixes: after each request the cache keeps, of what it held and what the
// request brought, the blocks whose next use comes first, of one request's the head first; what is
// never used again is not kept. No policy that does not know the future has more hits.
//
// All cached blocks with the same next request are leading blocks of that request which were not
// used by one in between, so a count a request is all there is to know: its hits when it arrives.
// Owner: the command. Threads: none. Memory: 12 bytes a request and the changes of the next use
// along each prompt. Cost: O(accesses) once, then O(changes log requests).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "tools/cachesim/cache_model.h"

namespace kv::cachesim {

class MinBypass final : public CacheModel {
 public:
  MinBypass(const Trace& trace, std::uint32_t capacity);

  // requires: the trace's requests, in order.
  std::uint32_t take(std::span<const std::uint32_t> blocks) override;

 private:
  // Blocks in a row of one request whose next use is by the same request.
  struct Stretch {
    std::uint32_t next_request;
    std::uint32_t count;
  };
  std::uint32_t capacity_;
  std::vector<std::vector<Stretch>> stretches_;  // by request; never used again: left out
  std::vector<std::uint32_t> kept_;              // by next request: blocks that are cached for it
  std::set<std::uint32_t> wanted_;               // requests with kept_ > 0
  std::uint64_t size_ = 0;
  std::uint32_t now_ = 0;
};

}  // namespace kv::cachesim
