#include "tools/cachesim/min_bypass.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace kv::cachesim {
namespace {

constexpr std::uint32_t kNever = 0xFFFFFFFFU;

}  // namespace

MinBypass::MinBypass(const Trace& trace, std::uint32_t capacity)
    : capacity_(capacity), stretches_(trace.requests.size()), kept_(trace.requests.size(), 0) {
  std::vector<std::uint32_t> next_use(trace.unique_blocks(), kNever);
  std::vector<std::uint32_t> blocks;
  for (auto r = static_cast<std::uint32_t>(trace.requests.size()); r-- > 0;) {
    trace.expand(trace.requests[r], blocks);
    std::vector<Stretch>& stretches = stretches_[r];
    for (const std::uint32_t block : blocks) {
      const std::uint32_t next = next_use[block];
      next_use[block] = r;
      if (next == kNever) continue;
      if (stretches.empty() || stretches.back().next_request != next)
        stretches.push_back({next, 0});
      ++stretches.back().count;
    }
  }
}

std::uint32_t MinBypass::take(std::span<const std::uint32_t> /*blocks*/) {
  KV_CHECK(now_ < kept_.size());
  const std::uint32_t hits = kept_[now_];
  if (hits > 0) wanted_.erase(now_);
  size_ -= hits;
  kept_[now_] = 0;
  for (const Stretch& stretch : stretches_[now_]) {
    if (kept_[stretch.next_request] == 0) wanted_.insert(stretch.next_request);
    kept_[stretch.next_request] += stretch.count;
    size_ += stretch.count;
  }
  while (size_ > capacity_) {
    const std::uint32_t last = *wanted_.rbegin();
    const auto gone =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(size_ - capacity_, kept_[last]));
    kept_[last] -= gone;
    size_ -= gone;
    if (kept_[last] == 0) wanted_.erase(last);
  }
  ++now_;
  return hits;
}

}  // namespace kv::cachesim
