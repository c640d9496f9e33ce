#include "tools/cachesim/trace.h"

#include <algorithm>

namespace kv::cachesim {

std::uint64_t Trace::tokens_of(const TraceRequest& request, std::uint32_t count) const {
  if (block_tokens > 0) {
    return std::min<std::uint64_t>(std::uint64_t{count} * block_tokens, request.input_tokens);
  }
  std::uint64_t tokens = 0;
  for (const BlockRun& run : runs_of(request)) {
    const std::uint32_t used = std::min(run.count, count);
    for (std::uint32_t i = 0; i < used; ++i) tokens += block_size[run.first + i];
    count -= used;
    if (count == 0) break;
  }
  return tokens;
}

std::uint64_t Trace::accesses() const {
  std::uint64_t total = 0;
  for (const TraceRequest& request : requests) total += request.block_count;
  return total;
}

}  // namespace kv::cachesim
