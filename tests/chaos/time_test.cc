// Time that misbehaves: the wall clock jumps, the service stands still.
#include <algorithm>
#include <fstream>

#include <fcntl.h>
#include <sys/mman.h>

#include "tests/chaos/chaos_fixture.h"
#include "tests/chaos/load_client.h"

namespace kv::test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr std::size_t kHeldBlocks = 5;
constexpr std::size_t kHeldTokens = kHeldBlocks * kBlockTokens;
constexpr std::size_t kWorkTokens = 48;

// The wall clock of the programs that it is preloaded into.
class WallClock {
 public:
  explicit WallClock(const std::string& dir) : path_(dir + "/wall_clock") {
    std::ofstream(path_).write("\0\0\0\0\0\0\0\0", 8);
    const FileDescriptor file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    void* const base =
        mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    KV_CHECK(base != MAP_FAILED);
    shift_ = static_cast<std::int64_t*>(base);
  }
  ~WallClock() { munmap(shift_, sizeof(std::int64_t)); }
  WallClock(const WallClock&) = delete;
  WallClock& operator=(const WallClock&) = delete;
  WallClock(WallClock&&) = delete;
  WallClock& operator=(WallClock&&) = delete;

  void set(std::chrono::nanoseconds shift) {
    __atomic_store_n(shift_, shift.count(), __ATOMIC_RELAXED);
  }
  // The sanitizers' runtimes want to be the first library; this one does not mind.
  [[nodiscard]] std::vector<std::string> environment() const {
    const char* const options = std::getenv("ASAN_OPTIONS");
    return {
        "LD_PRELOAD=" KV_BINARY_DIR "/lib/kv_wall_clock.so", "KV_WALL_CLOCK=" + path_,
        "ASAN_OPTIONS=verify_asan_link_order=0:" + std::string(options == nullptr ? "" : options)};
  }

 private:
  std::string path_;
  std::int64_t* shift_ = nullptr;
};

class Time : public ChaosTest {
 protected:
  static constexpr milliseconds kLease{2'000};

  void start(const std::vector<std::string>& environment) {
    ASSERT_NO_FATAL_FAILURE(serve({.lease = "2s", .environment = environment}));
    holder_ = attached();
    busy_ = attached();
    ASSERT_FALSE(HasFailure());
    const auto held = holder_->begin(SequenceId(1), prompt_of(501, kHeldTokens));
    ASSERT_TRUE(held) << held.error().reason;
    admission_ = *held;
    holder_->compute(admission_, prompt_of(501, kHeldTokens));
  }
  std::unique_ptr<LoadClient> attached() {
    auto client = std::make_unique<LoadClient>(LoadClient::Options{
        .dir = dir_.path(), .layout = stories_layout(), .fields = test_namespace()});
    const auto attached = client->attach();
    EXPECT_TRUE(attached) << attached.error().reason;
    return client;
  }
  // The busy client works; the holder is silent but for its heartbeats, and loses nothing.
  void work_for(milliseconds time) {
    const auto end = in(time);
    do {
      const auto account = busy_->run(prompt_of(600 + ++prompts_, kWorkTokens));
      ASSERT_TRUE(account) << account.error().reason;
      (void)poll(nullptr, 0, 10);  // a client that takes its time; nothing hangs on it
    } while (std::chrono::steady_clock::now() < end);
  }
  void expect_all_is_held() {
    const auto status = status_of(busy_->client());
    EXPECT_EQ(counter_of(status, "expired_clients"), 0U);
    EXPECT_EQ(status.clients, 2U);
    EXPECT_GE(status.tiers[0].held, kHeldBlocks);
    EXPECT_EQ(status.tiers[0].fenced, 0U);
    for (std::size_t block = 0; block < kHeldBlocks; ++block) {
      const auto prompt = prompt_of(501, kHeldTokens);
      const auto bytes = holder_->bytes_of(std::span(prompt).first((block + 1) * kBlockTokens));
      EXPECT_TRUE(std::ranges::equal(holder_->slot(admission_.slots[block]), bytes));
    }
  }
  // What it held all the time can still be published, and is hit.
  void expect_the_holder_goes_on() {
    const auto prompt = prompt_of(501, kHeldTokens);
    const auto finished = holder_->finish(SequenceId(1), prompt.size());
    ASSERT_TRUE(finished) << finished.error().reason;
    const auto again = busy_->run(prompt);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->hits(), 4 * kBlockTokens);
    EXPECT_EQ(busy_->counts().wrong_blocks, 0U);
    EXPECT_EQ(busy_->counts().right_blocks, 4U);
  }

  std::unique_ptr<LoadClient> holder_, busy_;
  client::Admission admission_;
  std::uint64_t prompts_ = 0;
};

TEST_F(Time, AWallClockThatJumpsAnHourEitherWayExpiresNobody) {
  WallClock clock(dir_.path());
  ASSERT_NO_FATAL_FAILURE(start(clock.environment()));
  for (const hours shift : {hours(1), hours(-1), hours(0)}) {
    SCOPED_TRACE(shift.count());
    clock.set(shift);
    ASSERT_NO_FATAL_FAILURE(work_for(kLease * 5 / 4));
    ASSERT_TRUE(busy_->flush());
    ASSERT_NO_FATAL_FAILURE(expect_all_is_held());
  }
  ASSERT_NO_FATAL_FAILURE(expect_the_holder_goes_on());
}

TEST_F(Time, AWallClockThatWasSetBackHidesNoSilentClient) {
  WallClock clock(dir_.path());
  ASSERT_NO_FATAL_FAILURE(start(clock.environment()));
  const auto runner = stop_in_the_middle(busy_->client());
  ASSERT_NE(runner, nullptr);
  clock.set(hours(-1));
  EXPECT_TRUE(eventually(busy_->client(), [](const auto& status) {
    return counter_of(status, "expired_clients") == 1;
  }));
  runner->signal(SIGCONT);
  EXPECT_EQ(runner->golden_problem(), "");
}

// The clock above is no dummy: the service's log is written by the shifted one.
TEST_F(Time, TheShiftedWallClockIsTheOneThatTheServiceReads) {
  WallClock clock(dir_.path());
  clock.set(hours(24 * 3'650));
  ASSERT_NO_FATAL_FAILURE(serve({.environment = [&clock] {
    auto environment = clock.environment();
    environment.emplace_back("CACHESVC_SERVICE__LOG_LEVEL=info");
    return environment;
  }()}));
  service_->signal(SIGTERM);
  const auto ended = service_->wait(seconds(30));
  EXPECT_EQ(ended.exit_code, 0);
  const std::time_t later = std::time(nullptr) + 3'650L * 24 * 3'600;
  std::tm utc{};
  ASSERT_NE(gmtime_r(&later, &utc), nullptr);
  EXPECT_NE(ended.err.find("ts=" + std::to_string(1'900 + utc.tm_year)), std::string::npos)
      << ended.err;
}

TEST_F(Time, AServiceThatStoodStillForManyLeasesExpiresNobody) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  const milliseconds pause(environment_number("KV_CHAOS_PAUSE_MS", 4'500));
  service_->signal(SIGSTOP);
  // A call that the service cannot hear ends by its deadline; there is nothing else to wait for.
  const auto unheard = busy_->client().status(in(pause));
  ASSERT_FALSE(unheard);
  EXPECT_EQ(unheard.error().code, ErrorCode::deadline);
  service_->signal(SIGCONT);
  ASSERT_NO_FATAL_FAILURE(work_for(kLease * 5 / 4));
  ASSERT_NO_FATAL_FAILURE(expect_all_is_held());
  ASSERT_NO_FATAL_FAILURE(expect_the_holder_goes_on());
}

// What really is silent is still found out after such a pause.
TEST_F(Time, AfterAPauseOfTheServiceASilentClientExpires) {
  ASSERT_NO_FATAL_FAILURE(start({}));
  const auto runner = stop_in_the_middle(busy_->client());
  ASSERT_NE(runner, nullptr);
  service_->signal(SIGSTOP);
  EXPECT_FALSE(busy_->client().status(in(kLease * 2)));
  service_->signal(SIGCONT);
  EXPECT_TRUE(eventually(busy_->client(), [](const auto& status) {
    return counter_of(status, "expired_clients") == 1;
  }));
  runner->signal(SIGCONT);
  EXPECT_EQ(runner->golden_problem(), "");
}

}  // namespace
}  // namespace kv::test
