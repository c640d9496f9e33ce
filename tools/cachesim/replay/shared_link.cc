#include "tools/cachesim/replay/shared_link.h"

#include <algorithm>

#include "allocator/base/check.h"

namespace kv::cachesim {

void SharedLink::start(TimePoint now, std::uint64_t id, std::uint64_t bytes) {
  KV_CHECK(now >= now_ && next() >= now);
  serve(now);
  waiting_.emplace_back(now + options_.latency, Transfer{id, bytes});
}

TimePoint SharedLink::next() const {
  const TimePoint enters = waiting_.empty() ? kNever : waiting_.front().first;
  return std::min(enters, next_end());
}

// The first nanosecond at which the one that is nearest to its end has its bytes.
TimePoint SharedLink::next_end() const {
  if (active_.empty()) return kNever;
  if (options_.bytes_per_second == 0) return now_;
  const Share end = active_.begin()->first.first;
  // The end before was rounded up to a nanosecond, which may have been enough for this one too.
  const Share left = end > share_ ? end - share_ : 0;
  const Wide work = left * active_.size() * kNsPerSecond;
  const Wide rate = static_cast<Wide>(options_.bytes_per_second) << kShareBits;
  return now_ + Duration(static_cast<Duration::rep>((work + rate - 1) / rate));
}

void SharedLink::serve(TimePoint until) {
  if (!active_.empty()) {
    const Duration time = until - now_;
    busy_ += time;
    const Wide rate = static_cast<Wide>(options_.bytes_per_second) << kShareBits;
    share_ += rate * static_cast<std::uint64_t>(time.count()) / kNsPerSecond / active_.size();
  }
  now_ = until;
}

void SharedLink::enter(const Transfer& transfer) {
  if (active_.empty()) share_ = 0;
  active_.emplace(std::pair{share_ + (static_cast<Share>(transfer.bytes) << kShareBits), order_++},
                  transfer);
}

void SharedLink::advance(TimePoint now, std::vector<std::uint64_t>& ended) {
  KV_CHECK(now >= now_);
  for (;;) {
    const TimePoint end = next_end();
    const bool enters = !waiting_.empty() && waiting_.front().first < end;
    const TimePoint due = enters ? waiting_.front().first : end;
    if (due > now) break;
    serve(due);
    if (enters) {
      enter(waiting_.front().second);
      waiting_.pop_front();
      continue;
    }
    const auto first = active_.begin();
    // Its end was rounded up to a nanosecond: what was left of that goes to the others.
    const Share excess = share_ > first->first.first ? share_ - first->first.first : 0;
    const std::size_t others = active_.size() - 1;
    share_ = first->first.first + (others == 0 ? 0 : excess * active_.size() / others);
    ended.push_back(first->second.id);
    bytes_moved_ += first->second.bytes;
    ++transfers_;
    active_.erase(first);
  }
  serve(now);
}

}  // namespace kv::cachesim
