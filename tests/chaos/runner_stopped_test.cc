// Runners that are stopped for longer than their lease, and processes that forked after attaching.
#include <algorithm>
#include <cstring>
#include <set>

#include "tests/chaos/chaos_fixture.h"
#include "tests/chaos/load_client.h"

namespace kv::test {
namespace {

constexpr std::uint64_t kSlots = 48;  // of 20 KiB

class RunnerStopped : public ChaosTest {
 protected:
  void SetUp() override {
    // Shorter than the stops of the tests; `KV_CHAOS_STOP_SECONDS` makes those longer.
    ASSERT_NO_FATAL_FAILURE(serve({.device = "960KiB", .lease = lease()}));
    LoadClient::Options options;
    options.dir = dir_.path();
    options.layout = stories_layout();
    options.fields = test_namespace();
    load_ = std::make_unique<LoadClient>(options);
    const auto attached = load_->attach();
    ASSERT_TRUE(attached) << attached.error().reason;
    ASSERT_EQ(load_->slot_count(), kSlots);
  }
  [[nodiscard]] virtual std::string lease() const { return "2s"; }
  [[nodiscard]] client::ServiceStatus status() { return status_of(load_->client()); }
  [[nodiscard]] client::TierStatus device() { return status().tiers[tier_index(Tier::device)]; }

  std::unique_ptr<RunnerProgram> stop_one() { return stop_in_the_middle(load_->client()); }
  // Its lease is over and its slots are fenced; says how many.
  std::uint64_t wait_fenced() {
    EXPECT_TRUE(eventually(load_->client(), [](const auto& now) {
      return counter_of(now, "expired_clients") == 1 && now.tiers[0].held == 0 &&
             now.transfers_in_flight == 0;
    }));
    const auto now = device();
    EXPECT_GT(now.fenced, 0U);
    EXPECT_EQ(now.held, 0U);
    EXPECT_EQ(now.covered, 0U) << "its pins are dropped";
    return now.fenced;
  }
  [[nodiscard]] std::vector<std::byte> pool_bytes() const {
    const auto memory = load_->pool().memory;
    return {memory.begin(), memory.end()};
  }
  // Takes every slot that can be had, again and again, and writes into it. Says which they were.
  std::set<std::uint32_t> use_all_that_is_free(int rounds) {
    std::set<std::uint32_t> used;
    std::uint64_t prompts = 0;
    for (int round = 0; round < rounds; ++round) {
      std::vector<SequenceId> held;
      while (true) {
        const SequenceId id(10'000 + ++prompts);
        const auto prompt = prompt_of(prompts, kBlockTokens);
        const auto admission = load_->begin(id, prompt, true);
        held.push_back(id);
        if (!admission) {
          EXPECT_EQ(admission.error().code, ErrorCode::exhausted) << admission.error().reason;
          break;
        }
        load_->compute(*admission, prompt);
        for (const SlotId slot : admission->slots) used.insert(slot.value);
      }
      EXPECT_TRUE(load_->free(held));
    }
    return used;
  }
  // The slots that nobody got have the bytes that they had.
  void expect_untouched(const std::set<std::uint32_t>& used,
                        const std::vector<std::byte>& before) const {
    const auto& group = load_->pool().groups.at(0);
    for (std::uint32_t slot = 0; slot < group.slot_count; ++slot) {
      if (used.contains(slot)) continue;
      const std::byte* const then = before.data() + group.offset + slot * group.slot_bytes;
      EXPECT_EQ(std::memcmp(load_->slot(SlotId(slot)).data(), then, group.slot_bytes), 0)
          << "slot " << slot;
    }
  }

  std::unique_ptr<LoadClient> load_;
};

TEST_F(RunnerStopped, KeepsItsFencedSlotsAndAttachesAgainWhenItGoesOn) {
  auto runner = stop_one();
  ASSERT_NE(runner, nullptr);
  const auto stopped = std::chrono::steady_clock::now();
  const std::uint64_t fenced = wait_fenced();
  const auto before = pool_bytes();
  const seconds least(environment_number("KV_CHAOS_STOP_SECONDS", 0));
  do {
    const auto used = use_all_that_is_free(3);
    // Its cached blocks could be had, its fenced ones could not.
    EXPECT_EQ(used.size(), kSlots - fenced);
    expect_untouched(used, before);
    EXPECT_EQ(device().fenced, fenced);
    EXPECT_EQ(state_of(runner->process()), 'T');
  } while (std::chrono::steady_clock::now() - stopped < least && !HasFailure());
  const std::uint64_t admissions = counter_of(status(), "admissions");
  runner->signal(SIGCONT);
  EXPECT_EQ(runner->golden_problem(), "");
  EXPECT_TRUE(eventually(load_->client(), [](const auto& now) { return leftovers(now).empty(); }))
      << leftovers(status());
  EXPECT_EQ(counter_of(status(), "expired_clients"), 1U);
  EXPECT_EQ(counter_of(status(), "admissions"), admissions + 1) << "it was told, and began anew";
}

TEST_F(RunnerStopped, ThatDiesGivesItsFencedSlotsBack) {
  auto runner = stop_one();
  ASSERT_NE(runner, nullptr);
  (void)wait_fenced();
  runner->signal(SIGKILL);
  ASSERT_TRUE(wait_dead(runner->watched(), seconds(30)));
  EXPECT_TRUE(eventually(load_->client(), [](const auto& now) { return leftovers(now).empty(); }))
      << leftovers(status());
  EXPECT_EQ(use_all_that_is_free(1).size(), kSlots);
}

class RunnerStoppedShortly : public RunnerStopped {
 protected:
  [[nodiscard]] std::string lease() const override { return "10m"; }
};

TEST_F(RunnerStoppedShortly, KeepsEverythingAndGoesOn) {
  auto runner = stop_one();
  ASSERT_NE(runner, nullptr);
  const std::uint64_t held = device().held;
  (void)use_all_that_is_free(2);
  EXPECT_GE(device().held + device().cached, held);
  EXPECT_EQ(device().fenced, 0U);
  runner->signal(SIGCONT);
  EXPECT_EQ(runner->golden_problem(), "");
  EXPECT_EQ(counter_of(status(), "expired_clients"), 0U);
}

// A program that attached, holds slots, and forked; then it is killed and its child lives on.
class Forked : public RunnerStopped {
 protected:
  [[nodiscard]] std::string lease() const override { return "10m"; }
};

TEST_F(Forked, TheChildOfADeadProgramKeepsNoSlotAndCannotReachThePool) {
  const std::uint64_t cached = device().cached;
  Program parent({built("chaos_forker"), dir_.path()});
  ASSERT_TRUE(parent.read_lines(1, seconds(30))) << parent.err();
  ASSERT_TRUE(parent.out().starts_with("holds slots\n")) << parent.out();
  EXPECT_EQ(device().held, 3U);
  const auto watched = watch_process(parent.process());
  parent.signal(SIGKILL);
  ASSERT_TRUE(wait_dead(watched, seconds(30)));
  EXPECT_TRUE(eventually(
      load_->client(), [](const auto& now) { return leftovers(now).empty(); }, seconds(10)))
      << leftovers(status());
  EXPECT_EQ(device().cached, cached);
  const auto before = pool_bytes();
  ASSERT_TRUE(parent.read_lines(6, seconds(30))) << parent.out() << parent.err();
  EXPECT_EQ(parent.out(),
            "holds slots\n"
            "the parent is dead\n"
            "a call of its client: stale\n"
            "the pool: signal 11\n"
            "memory over its attach socket: none\n"
            "as a client of its own: ok\n");
  EXPECT_EQ(pool_bytes(), before);
}

}  // namespace
}  // namespace kv::test
