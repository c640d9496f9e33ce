#include "tools/cachesim/replay/replay.h"

#include <memory>

#include "allocator/base/check.h"
#include "tools/cachesim/replay/event_queue.h"
#include "tools/cachesim/replay/machine.h"
#include "tools/cachesim/replay/wide.h"

namespace kv::cachesim {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;

class Arrivals {
 public:
  Arrivals(const Trace& trace, const ReplayOptions& options) : trace_(&trace), options_(options) {
    if (options_.counts_only) options_.in_flight = 1;
  }

  [[nodiscard]] bool done() const { return next_ == trace_->requests.size(); }
  // When the next request comes, if nothing else happens before.
  [[nodiscard]] TimePoint next(TimePoint now, std::uint64_t in_flight) const {
    if (done()) return kNever;
    if (options_.in_flight > 0) return in_flight < options_.in_flight ? now : kNever;
    const std::uint64_t at =
        scaled(trace_->requests[next_].time_ms * kNsPerMs, 1'000, options_.speed_thousandths);
    return TimePoint(Duration(static_cast<Duration::rep>(at)));
  }
  std::uint32_t take() { return next_++; }

 private:
  const Trace* trace_;
  ReplayOptions options_;
  std::uint32_t next_ = 0;
};

LinkUse use_of(const SharedLink& link) {
  return {link.bytes_moved(), link.transfers(), link.busy()};
}

}  // namespace

ReplayOutcome replay(const Trace& trace, const ReplayOptions& options,
                     const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  constexpr std::uint64_t kEventsBetweenReports = 4'096;
  KV_CHECK(trace.block_tokens > 0 && options.capacity_blocks[0] > 0);
  ReplayOutcome outcome;
  outcome.results.resize(trace.requests.size());
  const ComputeModel compute(options.counts_only ? ComputeModel::Options{} : options.compute);
  Machine machine(options, trace, compute, outcome.results);
  Arrivals arrivals(trace, options);
  constexpr std::uint32_t kArrival = 0;
  constexpr std::uint32_t kMachine = 1;
  EventQueue queue(2);
  TimePoint now{};
  std::uint64_t events = 0;
  for (;;) {
    queue.set(kArrival, arrivals.next(now, machine.instance().outstanding()));
    queue.set(kMachine, machine.next());
    const EventQueue::Event event = queue.next();
    if (event.time == kNever) break;
    now = event.time;
    if (event.source == kArrival) {
      machine.arrive(now, arrivals.take());
    } else {
      machine.advance(now);
    }
    if (progress && ++events % kEventsBetweenReports == 0) {
      progress(machine.instance().finished(), trace.requests.size());
    }
  }
  KV_CHECK(machine.instance().finished() == trace.requests.size());  // nobody waits for ever
  outcome.end = now;
  outcome.steps = machine.instance().steps();
  outcome.computing = machine.instance().computing();
  outcome.tiers = machine.use(now);
  for (std::size_t i = 0; i < kLinkCount; ++i) {
    outcome.links[i] = use_of(machine.service().link(static_cast<LinkName>(i)));
  }
  outcome.counters = machine.service().counters();
  return outcome;
}

}  // namespace kv::cachesim
