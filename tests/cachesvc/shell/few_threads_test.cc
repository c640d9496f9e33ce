// A system that gives no more threads: a small limit of address space refuses their stacks.
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <variant>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cachesvc/shell/copy_workers.h"
#include "cachesvc/shell/service.h"
#include "tests/cachesvc/shell/running_service.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tiering/stores/disk_store.h"

namespace kv::shell {
namespace {

constexpr int kTold = 7;
constexpr int kMissed = 8;
constexpr std::uint32_t kThreads = 64;

// From here on this process gets a few stacks of threads more, of 64 MiB each, and not 64.
void refuse_threads(int few) {
  constexpr rlim_t kStackBytes = rlim_t{64} << 20U;
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t taken = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  const rlim_t bytes = taken + kStackBytes * static_cast<rlim_t>(few) + kStackBytes / 2;
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(1);
}

class FewThreadsDeathTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's own memory is over any limit of address space";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(FewThreadsDeathTest, TheServiceSaysSoInsteadOfStarting) {
  const auto start_and_exit = [] {
    const tests::TempDir dir;
    auto options = tests::options_in(dir.path());
    options.config.transfer_workers = kThreads;
    refuse_threads(10);
    const auto made = Service::make(options);
    const auto* const problem = std::get_if<StartProblem>(&made);
    if (problem == nullptr) std::_Exit(kMissed);
    const bool told =
        problem->message == "the system refuses the 70 threads that the service needs";
    std::_Exit(told ? kTold : 1);
  };
  EXPECT_EXIT(start_and_exit(), testing::ExitedWithCode(kTold), "");
}

TEST_F(FewThreadsDeathTest, CopyWorkersThatCannotAllBeMadeEndThoseThatWere) {
  const auto make_and_exit = [] {
    const auto memory = BlockMemory::make(1U << 16U, 1U << 16U);
    const auto completions = CompletionQueue::make();
    refuse_threads(3);
    try {
      const CopyWorkers workers(kThreads, *memory, **completions);
    } catch (const std::system_error&) {
      std::_Exit(kTold);
    }
    std::_Exit(kMissed);
  };
  EXPECT_EXIT(make_and_exit(), testing::ExitedWithCode(kTold), "");
}

// From here on this process is another user's, who may have `few` threads more.
void become_a_user_of_few_threads(const std::string& dir, rlim_t few) {
  constexpr uid_t kUser = 23'459;
  const rlimit limit{.rlim_cur = few + 1, .rlim_max = few + 1};
  if (chown(dir.c_str(), kUser, kUser) != 0 || setrlimit(RLIMIT_NPROC, &limit) != 0 ||
      setuid(kUser) != 0) {
    std::_Exit(1);
  }
}

// RocksDB's threads are its own; where it finds none the store says so, at once.
TEST_F(FewThreadsDeathTest, ADiskStoreThatFindsTooFewIsUnavailableAndNeverEndsTheProcess) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const KvLayout layout{.block_tokens = 16,
                        .groups = {{.layer_count = 1,
                                    .kv_head_count = 1,
                                    .head_dim_k = 4,
                                    .head_dim_v = 4,
                                    .k_dtype = DType::f32,
                                    .v_dtype = DType::f32}}};
  for (const rlim_t few : {0U, 1U, 2U}) {
    const auto open_and_exit = [&] {
      const tests::TempDir dir;
      become_a_user_of_few_threads(dir.path(), few);
      const auto store =
          DiskStore::open({.directory = dir.path() + "/disk", .bytes = 1U << 20U}, layout);
      if (store) std::_Exit(kMissed);
      std::_Exit(store.error().code == ErrorCode::unavailable ? kTold : 1);
    };
    EXPECT_EXIT(open_and_exit(), testing::ExitedWithCode(kTold), "") << few;
  }
}

}  // namespace
}  // namespace kv::shell
