// Checkers: the invariants of an Engine that hold after every step, each found broken said in
// words. They look from outside, through the Engine's read-only views, and count everything anew.
//
//   1 conservation   2 one owner   3 reference balance   4 no reuse under use   14 generations
//   (history) 18 tree well-formed   20 hard limits   24 gauges and accounts
//
// Owner: the test or the world. Threads: none. Cost: O(slots + blocks + sequences) a call.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "allocator/base/token.h"
#include "cachesvc/core/engine.h"

namespace kv::world {

// What the caller knows and the Engine's views do not tell.
struct Known {
  // Keys of blocks that lost a copy to an error at some time: below these a tier need not be
  // prefix-closed. Null: none did.
  const std::set<Digest>* broken_keys = nullptr;
};

// Empty when all invariants hold; else a line each, starting with the invariant's number.
[[nodiscard]] std::vector<std::string> check(const core::Engine& engine, const Known& known = {});

// Nothing is left of any client: no sequence, no transfer, no held or fenced slot, no pin (15).
[[nodiscard]] std::vector<std::string> check_drained(const core::Engine& engine,
                                                     const Known& known = {});

// A digest of what a refused call must leave as it was (7): slots, generations, records, pins,
// tree, sequences, transfers. Counters, leases and kept replies are not in it.
[[nodiscard]] std::uint64_t state_digest(const core::Engine& engine);

}  // namespace kv::world
