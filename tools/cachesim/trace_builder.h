// Makes a Trace of requests whose blocks carry identities of 64 bits: numbers them, chains them
// (a block is its identity in the context of all in front of it), and keeps them as runs.
// Owner: a trace reader. Threads: none. Memory: 56 bytes a unique block. Cost: O(1) a block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/cachesim/trace.h"

namespace kv::cachesim {

// A growing hash table from 64-bit numbers to 32-bit ones.
class NumberTable {
 public:
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFFU;
  [[nodiscard]] std::uint32_t find(std::uint64_t key) const;
  void insert(std::uint64_t key, std::uint32_t value);  // requires: absent; value != kAbsent
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t value = kAbsent;
  };
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const;
  void grow();

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

class TraceBuilder {
 public:
  // A trace may have fewer unique blocks than 2^31.
  static constexpr std::uint32_t kBlocksMax = 1U << 31U;

  // The next request in the order of arrival. `identities`: of its blocks, first to last. Returns
  // false when there are too many unique blocks.
  [[nodiscard]] bool add(const TraceRequest& arrival, std::span<const std::uint64_t> identities);
  // The same, of identities first, first + 1, ...: for traces that come as runs.
  [[nodiscard]] bool add_runs(const TraceRequest& arrival, std::uint64_t identity_base,
                              std::span<const BlockRun> runs);
  [[nodiscard]] Trace& trace() { return trace_; }

 private:
  void start(const TraceRequest& arrival);
  bool append(std::uint64_t identity);
  [[nodiscard]] std::uint32_t number_of(std::uint64_t identity);
  std::uint32_t make_block(std::uint64_t identity);

  Trace trace_;
  std::vector<std::uint64_t> identities_;  // by block
  NumberTable first_seen_;                 // identity -> the block that carried it first
  NumberTable chained_;  // (parent, that block) -> block, where the parent differs from its own
  std::uint32_t parent_ = kNoBlock;
  std::uint32_t depth_ = 0;
};

}  // namespace kv::cachesim
