// Textbook policies that know nothing of prefixes: each block of a request is looked up and cached
// by itself, tail to head (but lru_forward_touch: head to tail). A hit still needs all blocks in
// front. Owner: the command. Threads: none. Memory: 9 bytes a unique block. Cost: O(1) an access,
// amortised.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tools/cachesim/cache_model.h"

namespace kv::cachesim {

// One of lru_flat, lru_forward_touch, fifo_flat, clock_flat, sieve_flat, slru_flat, s3fifo_flat,
// arc_flat; null for another name. requires: capacity > 0.
[[nodiscard]] std::unique_ptr<CacheModel> make_flat_oracle(std::string_view name,
                                                           std::uint32_t unique_blocks,
                                                           std::uint32_t capacity);

}  // namespace kv::cachesim
