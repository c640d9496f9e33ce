// A trace of requests, held as runs of blocks: what each request's prompt consists of, in blocks
// that are numbered from 0 in the order of their first use. Equal numbers are equal content in
// equal context: a block has one parent. A request that follows an earlier one is a few runs,
// however long it is, so a trace of 94 million accesses takes a few megabytes.
// Owner: the command. Threads: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kv::cachesim {

inline constexpr std::uint32_t kNoBlock = 0xFFFFFFFFU;

struct BlockRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct TraceRequest {
  std::uint64_t time_ms = 0;  // from the start of the trace
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t block_count = 0;
  std::uint32_t run_count = 0;
  std::uint64_t first_run = 0;
};

struct Trace {
  std::string format;
  std::uint32_t block_tokens = 0;         // 0: blocks differ in size
  std::vector<std::uint32_t> block_size;  // tokens of each block; empty where block_tokens is set
  std::vector<TraceRequest> requests;     // in the order of arrival
  std::vector<BlockRun> runs;
  std::vector<std::uint32_t> parents;  // by block; kNoBlock: a root
  std::vector<std::uint32_t> depths;   // by block: blocks in front of it

  std::uint64_t lines = 0;
  std::uint64_t broken_lines = 0;
  std::uint64_t first_broken_line = 0;  // counted from 1; 0: none
  std::string first_broken_reason;

  [[nodiscard]] std::uint32_t unique_blocks() const {
    return static_cast<std::uint32_t>(parents.size());
  }
  [[nodiscard]] std::span<const BlockRun> runs_of(const TraceRequest& request) const {
    return std::span(runs).subspan(request.first_run, request.run_count);
  }
  // The request's blocks, one by one, replace what is in `into`.
  void expand(const TraceRequest& request, std::vector<std::uint32_t>& into) const {
    into.clear();
    for (const BlockRun& run : runs_of(request)) {
      for (std::uint32_t i = 0; i < run.count; ++i) into.push_back(run.first + i);
    }
  }
  // The tokens of the request's first `count` blocks.
  [[nodiscard]] std::uint64_t tokens_of(const TraceRequest& request, std::uint32_t count) const;
  [[nodiscard]] std::uint64_t accesses() const;
};

}  // namespace kv::cachesim
