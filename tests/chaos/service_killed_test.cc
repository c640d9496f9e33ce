// The service is killed under load, again and again, on the same directory and endpoint.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "tests/chaos/chaos_fixture.h"
#include "tests/chaos/load_client.h"

namespace kv::test {
namespace {

constexpr std::size_t kPromptTokens = 50;  // three full blocks
constexpr std::uint64_t kHitTokens = 48;
constexpr std::uint64_t kRunnerEvery = 5;  // lives
// Of a worker in one life. All of all lives must fit on the disk: what is evicted is not served.
constexpr std::uint64_t kNewPromptsMax = 12;

LoadClient::Options load_options(const std::string& dir) {
  LoadClient::Options options;
  options.dir = dir;
  options.layout = stories_layout();
  options.fields = test_namespace();
  return options;
}

// Prompts by their seed that a Flush reported durable.
class DurablePrompts {
 public:
  void add(const std::vector<std::uint64_t>& seeds) {
    const std::lock_guard lock(mutex_);
    all_.insert(all_.end(), seeds.begin(), seeds.end());
  }
  [[nodiscard]] std::vector<std::uint64_t> all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> all_;
};

// One thread that works on whatever service runs: computes, hits, flushes, and attaches again.
class Worker {
 public:
  Worker(const std::string& dir, std::uint64_t number, DurablePrompts& durable)
      : client_(load_options(dir)), number_(number), prng_(number), durable_(durable) {
    thread_ = std::thread([this] { work(); });
  }
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  Worker(Worker&&) = delete;
  Worker& operator=(Worker&&) = delete;

  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // After stop().
  [[nodiscard]] const LoadClient& client() const { return client_; }
  [[nodiscard]] const std::string& problems() const { return problems_; }
  [[nodiscard]] std::uint64_t failures() const { return failures_; }

 private:
  void work() {
    while (!stop_) {
      const auto outcome = attached_ ? work_once() : client_.attach();
      if (outcome) {
        attached_ = true;
        continue;
      }
      fail(outcome.error());
    }
  }
  // What a dead or new service may answer, and nothing else.
  void fail(const Error& error) {
    attached_ = false;
    fresh_ = 0;
    ++failures_;
    unflushed_.clear();
    (void)poll(nullptr, 0, 1);  // between two tries; nothing hangs on the time
    if (error.code == ErrorCode::unavailable || error.code == ErrorCode::stale) return;
    problems_ += std::string(error_name(error.code)) + ": " + std::string(error.reason) + "; ";
  }
  Result<void> work_once() {
    if (unflushed_.size() >= 4) {
      KV_TRY(const auto flushed, client_.flush());
      // Not all: what others published meanwhile may be what is missing, or mine.
      if (flushed.unsaved_blocks == 0) {
        durable_.add(unflushed_);
        unflushed_.clear();
      }
    }
    (void)poll(nullptr, 0, 1);  // others want to work, too; nothing hangs on the time
    const bool again = !mine_.empty() && (fresh_ == kNewPromptsMax || prng_.below(3) == 0);
    const std::uint64_t seed =
        again ? mine_[prng_.below(mine_.size())] : number_ * 1'000'000 + ++prompts_;
    const auto account = client_.run(prompt_of(seed, kPromptTokens));
    if (!account) return account.error();
    if (again) return {};
    unflushed_.push_back(seed);
    mine_.push_back(seed);
    ++fresh_;
    return {};
  }

  LoadClient client_;
  std::uint64_t number_;
  Prng prng_;
  DurablePrompts& durable_;
  std::atomic<bool> stop_{false};
  bool attached_ = false;
  std::uint64_t prompts_ = 0, failures_ = 0;
  std::uint64_t fresh_ = 0;  // new prompts in this life
  std::vector<std::uint64_t> mine_, unflushed_;
  std::string problems_;
  std::thread thread_;
};

class ServiceKilled : public ChaosTest {
 protected:
  // All of them are hit to their last full block, with the right bytes.
  static void expect_served(LoadClient& client, const std::vector<std::uint64_t>& seeds) {
    for (const std::uint64_t seed : seeds) {
      const auto account = client.run(prompt_of(seed, kPromptTokens));
      ASSERT_TRUE(account) << account.error().reason;
      EXPECT_EQ(account->hits(), kHitTokens) << "prompt " << seed;
    }
    EXPECT_EQ(client.counts().wrong_blocks, 0U);
  }
  // The new ones, and some of those from earlier lives.
  static std::vector<std::uint64_t> to_check(const std::vector<std::uint64_t>& all,
                                             std::size_t known, Prng& prng) {
    std::vector<std::uint64_t> seeds(all.begin() + static_cast<std::ptrdiff_t>(known), all.end());
    for (int i = 0; i < 10 && known > 0; ++i) seeds.push_back(all[prng.below(known)]);
    return seeds;
  }
  void one_life(std::uint64_t life, Prng& prng) {
    ASSERT_NO_FATAL_FAILURE(serve({}));
    LoadClient checker(load_options(dir_.path()));
    const auto attached = checker.attach();
    ASSERT_TRUE(attached) << attached.error().reason;
    ASSERT_TRUE(
        eventually(checker.client(), [](const auto& status) { return !status.recovering; }));
    const auto all = durable_.all();
    ASSERT_NO_FATAL_FAILURE(expect_served(checker, to_check(all, checked_, prng)));
    checked_ = all.size();
    std::unique_ptr<RunnerProgram> runner;
    if (life % kRunnerEvery == 0) {
      runner = std::make_unique<RunnerProgram>(dir_.path(), random_run(prng, 200));
    }
    const std::uint64_t blocks = prng.below(60);
    const auto published = [](const client::ServiceStatus& status) {
      return counter_of(status, "published_blocks") + counter_of(status, "admissions");
    };
    const std::uint64_t from = published(status_of(checker.client()));
    ASSERT_TRUE(eventually(checker.client(),
                           [&](const auto& status) { return published(status) >= from + blocks; }));
    kill_service();
    if (runner != nullptr) expect_clear_end(*runner);
  }
  // It has the golden text, with or without the service, or says in one line why not.
  void expect_clear_end(RunnerProgram& runner) {
    const auto result = runner.wait(seconds(60));
    EXPECT_FALSE(result.timed_out);
    if (const auto tokens = generated_tokens(result.out)) {
      EXPECT_EQ(*tokens, runner.golden());
      ++texts_;
    } else {
      EXPECT_EQ(result.exit_code, 1) << result.err;
    }
    if (result.exit_code == 0) return;
    EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  }

  DurablePrompts durable_;
  std::size_t checked_ = 0;
  std::uint64_t texts_ = 0;
};

// SCENARIOS DEAD-09: every call ends; what is hit after a restart is what really survived.
TEST_F(ServiceKilled, ServesWhatWasDurableAndNoWrongByteAndNobodyHangs) {
  const std::uint64_t lives = environment_number("KV_CHAOS_LIVES", 50);
  const std::uint64_t seed = environment_number("KV_CHAOS_SEED", 1);
  SCOPED_TRACE("KV_CHAOS_SEED=" + std::to_string(seed));
  Prng prng(seed);
  ASSERT_NO_FATAL_FAILURE(serve({}));
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    workers.push_back(std::make_unique<Worker>(dir_.path(), number, durable_));
  }
  kill_service();
  for (std::uint64_t life = 0; life < lives; ++life) {
    SCOPED_TRACE("life " + std::to_string(life));
    ASSERT_NO_FATAL_FAILURE(one_life(life, prng));
  }
  LoadClient::Counts sum;
  std::uint64_t failures = 0;
  for (const auto& worker : workers) {
    worker->stop();
    EXPECT_EQ(worker->problems(), "");
    const LoadClient::Counts& counts = worker->client().counts();
    EXPECT_EQ(counts.wrong_blocks, 0U);
    EXPECT_LT(counts.worst_overrun, seconds(2)) << "beyond its deadline, on a busy machine";
    EXPECT_GE(worker->failures(), lives / 2);
    sum.calls += counts.calls;
    sum.right_blocks += counts.right_blocks;
    sum.worst_overrun = std::max(sum.worst_overrun, counts.worst_overrun);
    failures += worker->failures();
  }
  ASSERT_NO_FATAL_FAILURE(serve({}));
  LoadClient checker(load_options(dir_.path()));
  ASSERT_TRUE(checker.attach());
  ASSERT_TRUE(eventually(checker.client(), [](const auto& status) { return !status.recovering; }));
  const auto all = durable_.all();
  EXPECT_GE(all.size(), lives) << "next to nothing was made durable";
  ASSERT_NO_FATAL_FAILURE(expect_served(checker, all));
  std::printf(
      "%llu kills, %llu calls that failed, %zu durable prompts all served, %llu calls, "
      "%llu right blocks, %llu runner texts\n",
      static_cast<unsigned long long>(lives), static_cast<unsigned long long>(failures), all.size(),
      static_cast<unsigned long long>(sum.calls), static_cast<unsigned long long>(sum.right_blocks),
      static_cast<unsigned long long>(texts_));
}

}  // namespace
}  // namespace kv::test
