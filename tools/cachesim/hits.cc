#include "tools/cachesim/hits.h"

#include <ctime>
#include <vector>

#include "allocator/base/check.h"
#include "tools/cachesim/compute_cost.h"

namespace kv::cachesim {

HitCounts count_hits(const Trace& trace, std::string_view policy, std::uint32_t capacity,
                     const RequestProgress& progress) {
  constexpr std::uint64_t kRequestsBetweenReports = 256;
  const std::clock_t start = std::clock();
  const auto cache = make_cache_model(policy, trace, capacity);
  KV_CHECK(cache != nullptr);
  HitCounts counts;
  counts.policy = policy;
  counts.capacity_blocks = capacity;
  double saved = 0;
  double all = 0;
  std::uint64_t done = 0;
  std::vector<std::uint32_t> blocks;
  for (const TraceRequest& request : trace.requests) {
    trace.expand(request, blocks);
    const std::uint32_t hits = cache->take(blocks);
    const std::uint64_t hit_tokens = trace.tokens_of(request, hits);
    counts.block_hits += hits;
    counts.block_accesses += blocks.size();
    counts.token_hits += hit_tokens;
    counts.tokens += request.input_tokens;
    saved += prefill_flops(hit_tokens);
    all += prefill_flops(request.input_tokens);
    if (progress && ++done % kRequestsBetweenReports == 0) progress(done, trace.requests.size());
  }
  counts.compute_saved = all > 0 ? saved / all : 0;
  counts.seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return counts;
}

}  // namespace kv::cachesim
