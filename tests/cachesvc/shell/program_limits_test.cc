// The program `cachesvc` under the limits of a system: what is too low is said at the start, what
// is reached later costs what it limits, never the service. And its signals.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cachesvc/shell/commands.h"
#include "tests/cachesvc/shell/child_process.h"
#include "tests/cachesvc/shell/pool_client.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"

namespace kv::tests {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasSanitizer = true;  // its own memory does not fit into limits of memory
#else
constexpr bool kHasSanitizer = false;
#endif

// `cachesvc serve` after a line of shell, with small tiers.
std::vector<std::string> serve_after(const std::string& line, const TempDir& dir,
                                     const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all = {"/bin/sh",
                                  "-c",
                                  line + " && exec \"$0\" \"$@\"",
                                  std::string(KV_BINARY_DIR) + "/bin/cachesvc",
                                  "serve",
                                  "--dir",
                                  dir.path(),
                                  "--set",
                                  "device.bytes=64KiB",
                                  "--set",
                                  "host.bytes=128KiB",
                                  "--set",
                                  "disk.bytes=4MiB"};
  for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
  return all;
}

bool is_ready(ChildProcess& service) { return service.next_line().starts_with("ready "); }

void expect_refused(const std::vector<std::string>& arguments, const TempDir& dir,
                    const std::string& line) {
  ChildProcess service(arguments);
  EXPECT_EQ(service.rest(), "");
  EXPECT_EQ(service.wait(), shell::kExitFailed);
  EXPECT_EQ(service.errors(), "error: " + line + "\n");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "nothing was made";
}

TEST(ProgramLimits, TooFewDescriptorsAreRefusedAtTheStart) {
  const TempDir dir;
  for (const char* count : {"12", "16", "20", "63"}) {
    expect_refused(serve_after(std::string("ulimit -n ") + count, dir), dir,
                   std::string("the limit of open files (ulimit -n) is ") + count +
                       ", and a service needs 64 and three for each client; raise the limit");
  }
}

TEST(ProgramLimits, TheFewestDescriptorsThatAreTakenAreEnoughForAClientAndTheDisk) {
  const TempDir dir;
  ChildProcess service(serve_after("ulimit -n 64", dir));
  ASSERT_TRUE(is_ready(service)) << service.errors();
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  client.publish(1, 40, 7);
  EXPECT_EQ(client.client().flush()->body_as_FlushReply()->durable_blocks(), 2U);
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait(), 0) << service.errors();
}

TEST(ProgramLimits, ATierOverTheLimitOfFileSizesIsRefusedAtTheStart) {
  const TempDir dir;
  expect_refused(serve_after("ulimit -f 1000", dir, {"device.bytes=1MiB"}), dir,
                 "the limit of file sizes (ulimit -f) is 500.0KiB, and device.bytes, a file in "
                 "memory, is 1.0MiB; raise the limit, or lower device.bytes");
  expect_refused(serve_after("ulimit -f 1000", dir, {"host.bytes=2MiB"}), dir,
                 "the limit of file sizes (ulimit -f) is 500.0KiB, and host.bytes, a file in "
                 "memory, is 2.0MiB; raise the limit, or lower host.bytes");
}

TEST(ProgramLimits, AFileOfTheDiskThatMayNotGrowCostsBlocksNotTheService) {
  const TempDir dir;
  ChildProcess service(serve_after("ulimit -f 256", dir));  // 128 KiB: 32 slots of 4 KiB
  ASSERT_TRUE(is_ready(service)) << service.errors();
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  client.publish(1, 900, 7);  // 56 blocks
  (void)client.client().flush();
  EXPECT_LE(client.counter("saved_blocks.disk"), 32U);
  EXPECT_EQ(client.client().status().code(), wire::ErrorCode::ok);
  service.signal(SIGTERM);
  const int code = service.wait();
  EXPECT_TRUE(code == 0 || code == shell::kExitFailed) << code << service.errors();
  EXPECT_NE(service.errors().find("event=ended"), std::string::npos) << service.errors();
}

TEST(ProgramLimits, TooLittleMemoryIsRefusedAtTheStart) {
  if (kHasSanitizer) GTEST_SKIP() << "a sanitizer's own memory does not fit";
  const TempDir dir;
  expect_refused(serve_after("ulimit -v 1000000", dir, {"host.bytes=64MiB"}), dir,
                 "the limit of memory (ulimit -v) is 976.5MiB, and a service needs 1.0GiB of "
                 "addresses beside device.bytes and host.bytes, 64.0MiB together; raise the limit, "
                 "or lower device.bytes or host.bytes");
}

TEST(ProgramLimits, TheLeastMemoryThatIsTakenIsEnoughForAClientAndTheDisk) {
  if (kHasSanitizer) GTEST_SKIP() << "a sanitizer's own memory does not fit";
  const TempDir dir;
  // The tiers and one GiB, in KiB.
  ChildProcess service(serve_after("ulimit -v $((64 + 128 + 1048576))", dir));
  ASSERT_TRUE(is_ready(service)) << service.errors();
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  client.publish(1, 40, 7);
  EXPECT_EQ(client.client().flush()->body_as_FlushReply()->durable_blocks(), 2U);
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait(), 0) << service.errors();
}

TEST(ProgramLimits, AHangUpOfTheTerminalEndsItCleanlyWithWhatWasInMemory) {
  const TempDir dir;
  {
    ChildProcess service(serve_after("true", dir));
    ASSERT_TRUE(is_ready(service)) << service.errors();
    PoolClient client(dir.path());
    ASSERT_TRUE(client.is_ready());
    client.publish(1, 40, 7);
    service.signal(SIGHUP);
    EXPECT_EQ(service.wait(), 0) << service.errors();
    EXPECT_NE(service.errors().find("event=ended how=clean"), std::string::npos);
  }
  ChildProcess service(serve_after("true", dir));
  ASSERT_TRUE(is_ready(service)) << service.errors();
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  EXPECT_TRUE(eventually([&] { return client.counter("recovered_blocks") == 2; }));
}

TEST(ProgramLimits, SignalsThatMeanNothingToItChangeNothing) {
  const TempDir dir;
  // The second as started by nohup.
  for (const auto& [line, numbers] : {std::pair{"true", std::vector{SIGUSR1, SIGUSR2}},
                                      std::pair{"trap '' HUP", std::vector{SIGHUP}}}) {
    ChildProcess service(serve_after(line, dir));
    ASSERT_TRUE(is_ready(service)) << service.errors();
    for (const int number : numbers) service.signal(number);
    TestClient client(dir.path(), false);
    EXPECT_EQ(client.hello().code(), wire::ErrorCode::ok);
    service.signal(SIGTERM);
    EXPECT_EQ(service.wait(), 0) << service.errors();
  }
}

}  // namespace
}  // namespace kv::tests
