#include "tools/cachesim/replay/replay.h"

#include <algorithm>
#include <memory>
#include <span>

#include "allocator/base/check.h"
#include "tools/cachesim/replay/event_queue.h"
#include "tools/cachesim/replay/machine.h"
#include "tools/cachesim/replay/router.h"
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
    constexpr std::uint64_t kLatest = std::uint64_t{1} << 60U;  // 36 years
    const Wide ns = static_cast<Wide>(trace_->requests[next_].time_ms) * kNsPerMs;
    const auto at = static_cast<std::uint64_t>(
        std::min<Wide>(ns * 1'000 / options_.speed_thousandths, kLatest));
    return TimePoint(Duration(static_cast<Duration::rep>(at)));
  }
  std::uint32_t take() { return next_++; }

 private:
  const Trace* trace_;
  ReplayOptions options_;
  std::uint32_t next_ = 0;
};

// Everything that is driven, and the order in which it happens.
class Run {
 public:
  Run(const Trace& trace, const ReplayOptions& options, std::span<RequestResult> results)
      : compute_(options.counts_only ? ComputeModel::Options{} : options.compute),
        arrivals_(trace, options),
        router_(options.router, options.seed, options.machines),
        queue_(options.machines + 1),
        finished_by_(options.machines, 0) {
    for (std::uint32_t i = 0; i < options.machines; ++i) {
      machines_.push_back(std::make_unique<Machine>(options, trace, compute_, results));
    }
  }

  // False when nothing will happen any more.
  bool step() {
    queue_.set(kArrival, arrivals_.next(now_, arrived_ - finished_));
    const EventQueue::Event event = queue_.next();
    if (event.time == kNever) return false;
    now_ = event.time;
    std::uint32_t chosen = event.source - 1;
    if (event.source == kArrival) {
      const std::uint32_t request = arrivals_.take();
      ++arrived_;
      chosen = router_.choose(now_, machines_, request);
      machines_[chosen]->arrive(now_, request);
    } else {
      machines_[chosen]->advance(now_);
    }
    Machine& machine = *machines_[chosen];
    finished_ += machine.instance().finished() - finished_by_[chosen];
    finished_by_[chosen] = machine.instance().finished();
    queue_.set(chosen + 1, machine.next());
    return true;
  }

  [[nodiscard]] std::uint64_t finished() const { return finished_; }
  void conclude(ReplayOutcome& outcome) const {
    outcome.end = now_;
    for (const auto& machine : machines_) {
      outcome.steps += machine->instance().steps();
      outcome.computing += machine->instance().computing();
      const auto use = machine->use(now_);
      for (std::size_t t = 0; t < kTiers; ++t) {
        outcome.tiers[t].capacity_blocks += use[t].capacity_blocks;
        outcome.tiers[t].used_blocks_max += use[t].used_blocks_max;
        outcome.tiers[t].used_blocks_mean += use[t].used_blocks_mean;
      }
      for (std::size_t i = 0; i < kLinkCount; ++i) {
        const SharedLink& link = machine->service().link(static_cast<LinkName>(i));
        outcome.links[i].bytes += link.bytes_moved();
        outcome.links[i].transfers += link.transfers();
        outcome.links[i].busy += link.busy();
      }
      outcome.counters.push_back(machine->service().counters());
    }
  }

 private:
  static constexpr std::uint32_t kArrival = 0;  // then the machines

  ComputeModel compute_;
  std::vector<std::unique_ptr<Machine>> machines_;
  Arrivals arrivals_;
  Router router_;
  EventQueue queue_;
  TimePoint now_{};
  std::uint64_t arrived_ = 0, finished_ = 0;
  std::vector<std::uint64_t> finished_by_;  // machine
};

}  // namespace

ReplayOutcome replay(const Trace& trace, const ReplayOptions& options,
                     const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  constexpr std::uint64_t kEventsBetweenReports = 4'096;
  KV_CHECK(trace.block_tokens > 0 && options.capacity_blocks[0] > 0 && options.machines > 0);
  ReplayOutcome outcome;
  outcome.results.resize(trace.requests.size());
  Run run(trace, options, outcome.results);
  for (std::uint64_t events = 0; run.step(); ++events) {
    if (progress && events % kEventsBetweenReports == 0) {
      progress(run.finished(), trace.requests.size());
    }
  }
  KV_CHECK(run.finished() == trace.requests.size());  // nobody waits for ever
  run.conclude(outcome);
  return outcome;
}

}  // namespace kv::cachesim
