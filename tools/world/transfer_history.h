// TransferHistory: the ways in which transfers misbehaved in a run, counted, so that a test can
// demand that its runs met every one of them. It looks from outside, at what was started, asked for
// and reported; of the Engine it asks only whose load a transfer is.
// Owner: VirtualWorld. Threads: none. Cost: O(transfers in flight) a call.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "allocator/base/ids.h"
#include "allocator/base/time_point.h"
#include "allocator/base/token.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/inputs.h"

namespace kv::world {

class TransferHistory {
 public:
  struct Counts {
    std::uint64_t late = 0;       // took longer than kLate
    std::uint64_t failed = 0;     // all blocks
    std::uint64_t partial = 0;    // some blocks, others not
    std::uint64_t reordered = 0;  // ended before another one of its link that began earlier
    // Told once more: while another layer group of it was on its way, and when all had ended.
    std::uint64_t repeated_in_flight = 0, repeated_after_end = 0;
    std::uint64_t contradicted = 0;  // and with other outcomes
    // Ended when what it was for had gone. Loads: the client, its lease, the sequence; all: the
    // content of the namespace.
    std::uint64_t after_death = 0, after_expiry = 0, after_free = 0;
    std::uint64_t after_clear = 0, after_epoch = 0;
  };
  static constexpr Duration kLate = std::chrono::milliseconds(50);

  [[nodiscard]] const Counts& counts() const { return counts_; }

  // After each step; the transfers that it started come with started().
  void note(const core::InputView& input, const core::Actions& actions);
  void started(TimePoint now, const core::StartTransfer& start, const core::Actions& actions,
               const core::Engine& engine);
  // Of one namespace, or of all.
  void cleared(const std::optional<Digest>& namespace_digest, bool by_epoch);
  void ended(TimePoint now, TransferId id, std::span<const core::BlockOutcome> outcomes);
  void repeated(TransferId id, bool other_outcomes, const core::Engine& engine);
  void forget_flights() { flights_.clear(); }  // the service ended

 private:
  struct Flight {
    TimePoint started;
    Tier from = Tier::device, to = Tier::device;
    Digest namespace_digest, first_key;
    ClientId client;  // of a load
    SequenceId sequence;
    bool is_dead = false, is_expired = false, is_freed = false;
    bool is_cleared = false, is_of_old_epoch = false;
  };
  template <class Change>
  void change_flights_of(ClientId client, const Change& change);
  static void find_owner(const core::Engine& engine, TransferId id, Flight& flight);

  std::map<TransferId, Flight> flights_;  // in the order in which they began
  Counts counts_;
};

}  // namespace kv::world
