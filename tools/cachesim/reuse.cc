#include "tools/cachesim/reuse.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kv::cachesim {
namespace {

// Sums of the counts from an index on, in O(log n) (a Fenwick tree, mirrored).
class SuffixCounts {
 public:
  explicit SuffixCounts(std::size_t size) : sums_(size + 1, 0) {}
  void add(std::size_t index, std::int64_t amount) {
    for (std::size_t i = sums_.size() - 1 - index; i < sums_.size(); i += i & (~i + 1)) {
      sums_[i] += amount;
    }
  }
  [[nodiscard]] std::int64_t after(std::size_t index) const {
    std::int64_t sum = 0;
    for (std::size_t i = sums_.size() - 2 - index; i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return sum;
  }

 private:
  std::vector<std::int64_t> sums_;
};

}  // namespace

// In the LRU stack the blocks of one request lie head first. Those of request q that nobody used
// since are a stretch of its prompt that begins where later requests left it; so the blocks of this
// request that q used last have the distances D + 1, D + 2, ..., where D blocks were used after q.
ReuseDistances::ReuseDistances(const Trace& trace) : hits_(trace.unique_blocks() + 2, 0) {
  std::vector<std::uint32_t> last_request(trace.unique_blocks(), kNoBlock);
  SuffixCounts last_used(trace.requests.size());
  std::vector<std::uint32_t> blocks;
  for (std::uint32_t r = 0; r < trace.requests.size(); ++r) {
    trace.expand(trace.requests[r], blocks);
    struct Stretch {
      std::uint32_t request;
      std::int64_t count;
    };
    std::vector<Stretch> stretches;
    for (const std::uint32_t block : blocks) {
      const std::uint32_t last = last_request[block];
      last_request[block] = r;
      if (last == kNoBlock) continue;
      if (stretches.empty() || stretches.back().request != last) stretches.push_back({last, 0});
      ++stretches.back().count;
    }
    for (const Stretch& stretch : stretches) {
      const auto from = static_cast<std::size_t>(last_used.after(stretch.request)) + 1;
      ++hits_[from];
      --hits_[from + static_cast<std::size_t>(stretch.count)];
    }
    for (const Stretch& stretch : stretches) last_used.add(stretch.request, -stretch.count);
    last_used.add(r, static_cast<std::int64_t>(blocks.size()));
  }
  // From differences to the number of accesses at each distance, to hits up to each.
  std::uint64_t at_distance = 0;
  std::uint64_t total = 0;
  for (std::uint64_t& entry : hits_) {
    at_distance += entry;
    total += at_distance;
    entry = total;
  }
}

std::uint64_t ReuseDistances::block_hits(std::uint32_t capacity) const {
  return hits_[std::min<std::size_t>(capacity, hits_.size() - 1)];
}

std::uint32_t ReuseDistances::distance_at(double share) const {
  if (reused() == 0) return 0;
  const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(reused())));
  const auto found = std::ranges::lower_bound(hits_, std::max<std::uint64_t>(1, wanted));
  return static_cast<std::uint32_t>(found - hits_.begin());
}

Ceiling ceiling_of(const Trace& trace) {
  Ceiling ceiling;
  std::uint32_t seen = 0;  // blocks are numbered in the order of first use
  for (const TraceRequest& request : trace.requests) {
    std::uint32_t hits = 0;
    for (const BlockRun& run : trace.runs_of(request)) {
      const std::uint32_t known = std::min(run.count, seen > run.first ? seen - run.first : 0);
      hits += known;
      seen = std::max(seen, run.first + run.count);
      if (known < run.count) break;
    }
    for (const BlockRun& run : trace.runs_of(request)) seen = std::max(seen, run.first + run.count);
    ceiling.block_hits += hits;
    ceiling.token_hits += trace.tokens_of(request, hits);
  }
  ceiling.roots = static_cast<std::uint32_t>(std::ranges::count(trace.parents, kNoBlock));
  return ceiling;
}

}  // namespace kv::cachesim
