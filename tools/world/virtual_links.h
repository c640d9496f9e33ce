// VirtualLinks: carries out transfers in virtual time, with seeded faults: late, failed, cancelled,
// and bytes that rot in the source. Watches both ends of every copy meanwhile (invariants 4 and 5).
// Owner: VirtualWorld. Threads: none. Cost: O(blocks) a transfer.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "allocator/base/prng.h"
#include "allocator/base/time_point.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/inputs.h"
#include "tools/world/virtual_tiers.h"

namespace kv::world {

// Each in a thousand.
struct Faults {
  std::uint32_t late_transfers = 0;
  std::uint32_t failed_transfers = 0;  // all blocks of one at once
  std::uint32_t failed_blocks = 0;
  std::uint32_t rotten_blocks = 0;
  std::uint32_t repeated_reports = 0;  // a TransferDone comes once more, at once or later
  std::uint32_t failed_syncs = 0;
};

class VirtualLinks {
 public:
  struct Report {
    TransferId id;
    Tier from = Tier::device;
    std::vector<core::BlockOutcome> outcomes;
    std::vector<std::uint32_t> checksums;
    std::set<Digest> broken_keys;  // blocks whose source copy gave an error
  };

  VirtualLinks(VirtualTiers& tiers, std::uint64_t seed) : tiers_(&tiers), prng_(seed) {}

  void set_faults(const Faults& faults) { faults_ = faults; }
  void start(TimePoint now, const core::StartTransfer& start, const core::Actions& actions,
             std::uint32_t block_tokens, std::vector<std::string>& problems);
  // Whatever is on its way takes so much longer.
  void stall(Duration time);
  [[nodiscard]] bool idle() const { return flights_.empty(); }
  [[nodiscard]] TimePoint next_due() const {
    return flights_.begin()->first.first;
  }  // requires: !idle()
  // Ends the transfer that is due next. requires: !idle().
  [[nodiscard]] Report finish_next(std::vector<std::string>& problems);
  // The service stops: what is on its way is either written or not, and nobody is told.
  void stop();

 private:
  struct Flight {
    core::StartTransfer start;
    std::vector<core::TransferBlock> blocks;
    std::vector<Token> tokens;                  // to disk
    std::vector<Fingerprint> sources, targets;  // when it started
    std::uint32_t block_tokens = 0;
    bool fails = false;
  };
  [[nodiscard]] core::BlockOutcome copy(const Flight& flight, std::size_t index, Report& report,
                                        std::vector<std::string>& problems);
  void watch(const Flight& flight, std::size_t index, std::vector<std::string>& problems) const;
  void store(const Flight& flight, std::size_t index);
  [[nodiscard]] bool chance(std::uint32_t per_thousand) { return prng_.chance(per_thousand, 1000); }

  VirtualTiers* tiers_;  // the world's
  Prng prng_;
  Faults faults_;
  std::map<std::pair<TimePoint, std::uint64_t>, Flight> flights_;  // by due time, then order
  std::uint64_t order_ = 0;
};

}  // namespace kv::world
