// VirtualWorld: everything around an Engine, under virtual time: memory, links, a disk that
// survives restarts, seeded faults, and a trace of all inputs. After every step all checkers run.
//
// Owner: the test. Threads: none. Cost: a step is O(slots + blocks), for small pools.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "allocator/base/prng.h"
#include "allocator/base/time_point.h"
#include "allocator/kv_layout.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/inputs.h"
#include "tools/world/checkers.h"
#include "tools/world/lease_model.h"
#include "tools/world/step_history.h"
#include "tools/world/transfer_history.h"
#include "tools/world/virtual_links.h"
#include "tools/world/virtual_tiers.h"

namespace kv::world {

class VirtualWorld {
 public:
  struct Options {
    core::Engine::Options engine;
    KvLayout layout;
    Faults faults;
    std::uint64_t seed = 1;
  };
  explicit VirtualWorld(const Options& options);

  // --- driving
  // One input now: the Engine's step, its actions, all checks.
  void send(const core::InputView& input);
  // The next thing that happens by itself: Continue, a transfer's end, a chunk of recovery. False
  // when nothing waits.
  bool run_next();
  // Until nothing waits any more. A problem when that takes more than `steps_max` steps.
  void run_all(std::uint32_t steps_max = 100'000);
  // Time passes; what is due meanwhile happens; then a Tick, which says for how long nobody could
  // be heard.
  void pass_time(Duration time, Duration unheard = {});
  // The disk cannot be used in this life of the service: ignored when it holds a block.
  void turn_disk_off();
  // A report of a transfer that nobody started.
  void report_unknown_transfer();
  // The service stops and starts again: memory is lost, the disk's unsynced entries perhaps, its
  // clients are unknown. The trace so far is replayed first and must give the same actions.
  void restart();
  // Replays the trace of this life into a fresh Engine.
  void check_replay();
  void stall_links(Duration time) { links_.stall(time); }
  void stop_faults() { links_.set_faults({}); }

  // --- what clients need
  [[nodiscard]] std::optional<core::Reply> take_reply(ClientId client, RequestId request);
  [[nodiscard]] std::vector<core::Notice> take_notices(ClientId client);
  [[nodiscard]] VirtualTiers& tiers() { return tiers_; }
  [[nodiscard]] const KvLayout& layout() const { return options_.layout; }
  [[nodiscard]] ClientId new_client() { return ClientId{next_client_++}; }
  [[nodiscard]] std::uint64_t life() const { return life_; }
  // --- what a Why may say: keys of blocks that clients published at any time, and of those that
  // had a copy in this life of the service.
  void note_published(std::span<const Digest> keys) {
    published_keys_.insert(keys.begin(), keys.end());
  }
  [[nodiscard]] const std::set<Digest>& published_keys() const { return published_keys_; }
  [[nodiscard]] const std::set<Digest>& cached_keys() const { return cached_keys_; }
  void count_reason(core::MissReason reason) { ++reasons_[static_cast<std::size_t>(reason)]; }
  [[nodiscard]] const std::array<std::uint64_t, core::kMissReasonCount>& reasons() const {
    return reasons_;
  }

  // --- for checks
  [[nodiscard]] std::vector<std::string> check_drained() const {
    return world::check_drained(*engine_, {&broken_keys_});
  }
  [[nodiscard]] const core::Engine& engine() const { return *engine_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] bool recovering() const { return !recovery_.empty(); }
  [[nodiscard]] bool disk_off() const { return disk_off_; }  // in this life
  [[nodiscard]] const TransferHistory::Counts& transfer_counts() const {
    return transfers_.counts();
  }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint64_t digest() const { return digest_; }
  // Requests that a living client sent and that have no reply yet.
  [[nodiscard]] std::size_t unanswered() const;
  void forget_client(ClientId client);  // it is gone: nobody waits for its replies
  void problem(const std::string& text);
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  using RequestName = std::pair<ClientId, RequestId>;
  struct RecoveryChunk {
    std::vector<core::RecoveredEntry> entries;
    std::vector<Token> tokens;
    bool last = false;
  };

  void act(const core::InputView& input);
  void erase_disk(const core::EraseDisk& erase);
  void note_clear(const core::InputView& input);
  [[nodiscard]] Digest namespace_of(ClientId client, const NamespaceFields& fields) const;
  void accept_clear(const RequestName& name, const NamespaceFields* fields, bool by_epoch,
                    bool again);
  void check_cleared(const RequestName& name, const core::Reply& reply);
  void break_chains(const Digest& key);
  void deliver_reply(const core::Reply& reply, const std::optional<RequestName>& current);
  void note_leases(const core::InputView& input);
  void finish_transfer();
  void repeat_report();
  void send_void(const core::TransferDone& report);
  void finish_sync();
  void plan_recovery();
  void forget_bad_copies();
  void note_cached();
  void check_step(const core::InputView& input, std::uint64_t digest_before,
                  const std::optional<RequestName>& current);

  Options options_;
  Prng prng_;
  TimePoint now_{};
  std::unique_ptr<core::Engine> engine_;
  StepHistory history_;
  TransferHistory transfers_;
  LeaseModel leases_;
  VirtualTiers tiers_;
  VirtualLinks links_;
  core::Actions actions_;
  bool continue_wanted_ = false;  // by the last step
  bool was_busy_ = false;         // by the one before: its work goes on in any step
  struct Sync {
    std::uint64_t blocks = 0;  // on disk
    std::uint64_t erases = 0;  // of all time, that it makes durable
  };
  std::map<std::pair<TimePoint, std::uint64_t>, Sync> syncs_;  // by due time and id
  std::map<ClientId, std::string> tenants_;
  std::set<RequestName> clears_accepted_;
  std::map<RequestName, TierClear> tier_clears_;                  // without a reply
  std::vector<TierClear> step_clears_;                            // that may act in this step
  std::map<RequestName, std::optional<Digest>> clears_waiting_;   // for their reply
  std::vector<core::StatusReply::NamespaceEpoch> epochs_before_;  // the step
  std::uint64_t blocks_synced_ = 0;                               // of the last sync
  std::vector<VirtualLinks::Report> repeats_;                     // reports to come again
  std::vector<RecoveryChunk> recovery_;                           // next chunk last
  std::set<VirtualTiers::Place> unrecovered_;
  std::set<Digest> durable_keys_;  // on disk with their whole chain when this life began
  std::set<Digest> broken_keys_;
  std::set<BadCopy> bad_copies_;  // told to the Engine, whose move of them goes on
  std::set<Digest> published_keys_, cached_keys_;
  std::array<std::uint64_t, core::kMissReasonCount> reasons_{};  // told, by block
  bool disk_formatted_ = false;
  bool disk_off_ = false;

  std::map<RequestName, std::uint64_t> reply_digests_;  // of every first reply
  std::set<RequestName> awaiting_;
  std::map<RequestName, core::Reply> replies_;
  std::map<ClientId, std::vector<core::Notice>> notices_;
  std::map<ClientId, std::uint64_t> notice_numbers_;

  std::vector<std::byte> trace_;
  std::uint64_t digest_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t next_client_ = 1;
  std::uint64_t life_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace kv::world
