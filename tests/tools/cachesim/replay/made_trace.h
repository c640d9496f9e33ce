// Traces made in tests, and a device whose times can be reckoned in the head. Threads: none.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tools/cachesim/replay/replay.h"
#include "tools/cachesim/trace_builder.h"

namespace kv::cachesim {

inline constexpr std::uint32_t kBlockTokens = 512;

// 1 us a row, 2 us at least; no attention.
inline const ComputeTable& simple_table() {
  static const ComputeTable table = {
      "simple", "simple", "f32", 1, {{{1, 1'000}, {2, 2'000}}}, {{{1, 0}, {2, 0}}}};
  return table;
}

inline ReplayOptions options_of(std::uint32_t device, std::uint32_t host = 0,
                                std::uint32_t disk = 0) {
  ReplayOptions options;
  options.capacity_blocks = {device, host, disk};
  options.block_bytes = 1'000'000;
  options.compute.table = &simple_table();
  return options;
}

class TraceMaker {
 public:
  TraceMaker() { builder_.trace().block_tokens = kBlockTokens; }
  // `blocks` are identities; the last one may be a part of a block.
  TraceMaker& add(std::uint64_t time_ms, std::uint32_t input, std::uint32_t output,
                  const std::vector<std::uint64_t>& blocks) {
    TraceRequest request;
    request.time_ms = time_ms;
    request.input_tokens = input;
    request.output_tokens = output;
    EXPECT_TRUE(builder_.add(request, blocks));
    return *this;
  }
  [[nodiscard]] const Trace& trace() { return builder_.trace(); }

 private:
  TraceBuilder builder_;
};

inline std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

}  // namespace kv::cachesim
