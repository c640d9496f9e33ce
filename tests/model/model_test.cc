#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/model/random_run.h"

// KV_SEEDS: how many seeds in all (400). KV_SEED_FIRST: the first of them (1). KV_LOG=1 prints each
// operation of a failing run.
namespace kv::model {
namespace {

constexpr std::uint64_t kSeedsDefault = 400;
constexpr std::uint64_t kShards = 4;
constexpr std::uint32_t kOperations = 600;

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t seed_count() { return environment_number("KV_SEEDS", kSeedsDefault); }
std::uint64_t seed_first() { return environment_number("KV_SEED_FIRST", 1); }

std::string failure_of(std::uint64_t seed, const RandomRun& run) {
  std::string text = "seed " + std::to_string(seed) +
                     "; again with: KV_SEEDS=1 KV_SEED_FIRST=" + std::to_string(seed) +
                     " bin/model_test\n";
  for (const std::string& line : run.log()) text += "  " + line + "\n";
  for (const std::string& line : run.problems()) text += line + "\n";
  return text;
}

// What the runs must have met, or they prove little.
struct Seen {
  const char* name;
  std::uint64_t count;
};
using Reasons = std::array<std::uint64_t, core::kMissReasonCount>;
std::vector<Seen> seen_of(const core::Counters& counters,
                          const world::TransferHistory::Counts& transfers,
                          const RandomRun::Events& events, const Reasons& reasons) {
  const auto at = [](const std::array<std::uint64_t, kTierCount>& counts, Tier tier) {
    return counts[tier_index(tier)];
  };
  return {{"device hits", at(counters.hit_tokens, Tier::device)},
          {"host hits", at(counters.hit_tokens, Tier::host)},
          {"disk hits", at(counters.hit_tokens, Tier::disk)},
          {"exhausted", counters.exhausted},
          {"adopted", counters.adopted_blocks},
          {"rewritten", counters.rewritten_blocks},
          {"duplicate", counters.duplicate_blocks},
          {"evicted from device", at(counters.evicted_blocks, Tier::device)},
          {"evicted from host", at(counters.evicted_blocks, Tier::host)},
          {"evicted from disk", at(counters.evicted_blocks, Tier::disk)},
          {"dropped unsaved", counters.dropped_unsaved_blocks},
          {"corrupt in host", at(counters.corrupt_blocks, Tier::host)},
          {"corrupt on disk", at(counters.corrupt_blocks, Tier::disk)},
          {"failed in host", at(counters.failed_blocks, Tier::host)},
          {"failed on disk", at(counters.failed_blocks, Tier::disk)},
          {"recovered", counters.recovered_blocks},
          {"orphaned", counters.orphaned_blocks},
          {"repeated requests", counters.repeated_requests},
          {"refused requests", counters.refused_requests},
          {"expired clients", counters.expired_clients},
          {"gone clients", counters.gone_clients},
          {"cleared", counters.cleared_blocks},
          {"displaced", counters.displaced_blocks},
          {"computed before a clear", counters.uncacheable_blocks},
          {"forked", counters.forked_sequences},
          {"preempted", counters.preempted_sequences},
          {"dropped by a sequence", counters.dropped_blocks},
          {"resumed with hits", counters.resumed_hit_tokens},
          {"late transfers", transfers.late},
          {"failed transfers", transfers.failed},
          {"partial transfers", transfers.partial},
          {"reordered transfers", transfers.reordered},
          {"reports repeated in flight", transfers.repeated_in_flight},
          {"reports repeated after the end", transfers.repeated_after_end},
          {"reports contradicted", transfers.contradicted},
          {"loads ended after their client's death", transfers.after_death},
          {"loads ended after their client's lease", transfers.after_expiry},
          {"loads ended after their sequence was freed", transfers.after_free},
          {"transfers ended after a clear", transfers.after_clear},
          {"transfers ended after a new epoch", transfers.after_epoch},
          {"freed while waiting", events.freed_waiting},
          {"freed while loading", events.freed_loading},
          {"disk off", events.disk_off},
          {"disk off, with a block on it", events.disk_off_refused},
          {"disk off, while recovering", events.disk_off_recovering},
          {"pauses of the service", events.unheard},
          {"why: never stored", reasons[0]},
          {"why: diverged", reasons[1]},
          {"why: after divergence", reasons[2]},
          {"why: tail recompute", reasons[4]},
          {"why: other namespace", reasons[5]},
          {"why: evicted", reasons[6]},
          {"why: dropped before write-back", reasons[7]},
          {"why: in flight", reasons[8]},
          {"why: not cacheable", reasons[11]}};
}

class RandomOperations : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomOperations, KeepEveryInvariantAndReplayToTheSameActions) {
  std::uint64_t steps = 0;
  std::vector<Seen> seen = seen_of({}, {}, {}, {});
  for (std::uint64_t i = GetParam(); i < seed_count(); i += kShards) {
    const std::uint64_t seed = seed_first() + i;
    RandomRun run(seed);
    if (environment_number("KV_LOG", 0) != 0) run.keep_log();
    run.run(kOperations);
    steps += run.world().steps();
    ASSERT_TRUE(run.problems().empty()) << failure_of(seed, run);
    const auto more =
        seen_of(run.counters(), run.world().transfer_counts(), run.events(), run.world().reasons());
    for (std::size_t n = 0; n < seen.size(); ++n) seen[n].count += more[n].count;
  }
  for (const Seen& event : seen) {
    RecordProperty(event.name, std::to_string(event.count));
    if (seed_count() >= kSeedsDefault) {
      EXPECT_GT(event.count, 0U) << event.name;
    }
  }
  RecordProperty("engine_steps", std::to_string(steps));
}

INSTANTIATE_TEST_SUITE_P(Shard, RandomOperations, ::testing::Range(std::uint64_t{0}, kShards));

}  // namespace
}  // namespace kv::model
