// Where the disk tier lies, and what can be wrong with the place: read-only, removed under the
// service, used by another service, written by another version, too small. The service says what
// is wrong and what to do, and serves on without that tier or with what the place allows.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "tests/end_to_end/service_fixture.h"
#include "tiering/stores/checksum.h"
#include "tiering/stores/disk_format.h"

namespace kv::test {
namespace {

class DiskPlace : public ServiceTest {
 protected:
  // Mounts of these tests are seen by this process and its children only, and end with them.
  // Empty, or why it cannot be.
  static std::string own_mounts() {
    static const std::string refused = [] {
      if (::unshare(CLONE_NEWNS) != 0) return "unshare: " + std::string(std::strerror(errno));
      if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return "private mounts: " + std::string(std::strerror(errno));
      }
      return std::string();
    }();
    return refused;
  }
  [[nodiscard]] std::string disk() const { return dir_.path() + "/disk"; }

  // A service that ends with its last flush failed, since there is no disk to flush to.
  std::string stop_and_read_log(int exit_code) {
    service_->signal(SIGTERM);
    const auto ended = service_->wait(seconds(30));
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    return ended.err;
  }
  static void expect_line(const std::string& log, const std::string& event,
                          const std::vector<std::string>& parts) {
    std::istringstream lines(log);
    std::string found;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("event=" + event) != std::string::npos) found = line;
    }
    ASSERT_FALSE(found.empty()) << log;
    for (const std::string& part : parts) {
      EXPECT_NE(found.find(part), std::string::npos) << part << " in: " << found;
    }
  }
  // Device and host serve; the disk tier shows that it is off.
  void expect_served_without_disk() {
    TestRunner runner(connect());
    const auto prompt = prompt_of(1, 65);
    (void)runner.run(SequenceId(1), prompt);
    EXPECT_EQ(runner.run(SequenceId(2), prompt).hit_tokens[0], 64U);
    const auto admin = connect(Client::Role::admin);
    wait_for(*admin, [](const auto& status) { return status.transfers_in_flight == 0; });
    ASSERT_TRUE(admin->demote(Tier::device, in(seconds(20))));
    EXPECT_EQ(runner.run(SequenceId(3), prompt).hit_tokens[1], 64U);
    wait_for(*admin, [](const auto& status) { return status.tiers[2].slots == 0; });
    EXPECT_EQ(counter(*admin, "failed_blocks.disk"), 0U);
  }
  void fill_and_stop() {
    ASSERT_NO_FATAL_FAILURE(start_service());
    {
      TestRunner runner(connect());
      (void)runner.run(SequenceId(1), prompt_of(7, 65));
    }
    stop_service();
  }
};

TEST_F(DiskPlace, ThatIsReadOnlyTurnsTheTierOffAndSaysSo) {
  if (const std::string refused = own_mounts(); !refused.empty()) {
    GTEST_SKIP() << "no mounts of its own for this test: " << refused;
  }
  ASSERT_NO_FATAL_FAILURE(fill_and_stop());
  ASSERT_EQ(::mount(disk().c_str(), disk().c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(::mount(nullptr, disk().c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr),
            0);
  ASSERT_NO_FATAL_FAILURE(start_service());
  expect_served_without_disk();
  EXPECT_NE(service_->out().find("disk=off reason=unavailable"), std::string::npos);
  expect_line(
      stop_and_read_log(0), "disk_refused",
      {"code=unavailable", "reason=\"" + disk() + " cannot be written: Read-only file system\"",
       "remedy=\"make it a directory that this user may write"});
  ASSERT_EQ(::umount(disk().c_str()), 0);
  // Writable again: what was there is there.
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto client = connect(Client::Role::admin);
  wait_recovered(*client);
  EXPECT_EQ(counter(*client, "recovered_blocks"), 4U);
}

TEST_F(DiskPlace, ThatIsRemovedWhileServingCostsTheDiskTierOnly) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto admin = connect(Client::Role::admin);
  (void)runner.run(SequenceId(1), prompt_of(1, 65));
  ASSERT_TRUE(admin->flush(in(seconds(30))));
  std::filesystem::remove_all(disk());
  const auto flushed = admin->flush(in(seconds(30)));
  ASSERT_FALSE(flushed) << "nothing is durable there";
  EXPECT_EQ(flushed.error().code, ErrorCode::unavailable);
  for (std::uint64_t seed = 2; seed < 8; ++seed) {
    (void)runner.run(SequenceId(seed), prompt_of(seed, 65));
    EXPECT_EQ(runner.run(SequenceId(100 + seed), prompt_of(seed, 65)).hit_tokens[0], 64U);
  }
  wait_for(*admin, [](const auto& status) { return status.transfers_in_flight == 0; });
  EXPECT_GE(counter(*admin, "failed_blocks.disk"), 1U);
  EXPECT_EQ(counter(*admin, "saved_blocks.disk"), 4U);
  EXPECT_FALSE(std::filesystem::exists(disk()));
  expect_line(stop_and_read_log(1), "failed_blocks", {"tier=disk"});
  ASSERT_NO_FATAL_FAILURE(start_service());
  expect_line((stop_service(), service_->err()), "ended", {"how=clean"});
}

TEST_F(DiskPlace, ThatAnotherServiceUsesIsLeftToIt) {
  ASSERT_NO_FATAL_FAILURE(fill_and_stop());
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto first = connect(Client::Role::admin);
  wait_recovered(*first);
  const TemporaryDir other;
  std::filesystem::create_directory_symlink(disk(), other.path() + "/disk");
  Program second(
      std::vector<std::string>{built("cachesvc"), "serve", "--dir", other.path()},
      {"CACHESVC_DEVICE__BYTES=1MiB", "CACHESVC_HOST__BYTES=2MiB", "CACHESVC_DISK__BYTES=64MiB"});
  ASSERT_TRUE(second.read_lines(1, seconds(30))) << second.err();
  {
    Client::Options options;
    options.dir = other.path();
    options.role = Client::Role::admin;
    options.deadline = in(seconds(20));
    auto client = Client::connect(options);
    ASSERT_TRUE(client);
    wait_for(**client, [](const auto& status) { return status.tiers[2].slots == 0; });
  }
  second.signal(SIGTERM);
  expect_line(second.wait(seconds(30)).err, "disk_failed",
              {"code=busy", "another service uses this directory"});
  // The first one noticed nothing.
  TestRunner runner(connect());
  EXPECT_EQ(runner.run(SequenceId(1), prompt_of(7, 65)).hit_tokens[2], 64U);
}

std::string format_of_version(std::uint32_t version) {
  std::string bytes =
      encode_disk_format({.slab_bytes = std::uint64_t{1} << 30U, .layout = test_layout()});
  constexpr std::size_t kVersionAt = 8;  // after the magic
  for (std::size_t i = 0; i < 4; ++i) {
    bytes[kVersionAt + i] = static_cast<char>((version >> (8 * i)) & 0xFFU);
  }
  const std::size_t body = bytes.size() - 4;
  const std::uint32_t sum = crc32c(std::as_bytes(std::span(bytes).first(body)));
  for (std::size_t i = 0; i < 4; ++i) {
    bytes[body + i] = static_cast<char>((sum >> (8 * i)) & 0xFFU);
  }
  return bytes;
}

TEST_F(DiskPlace, OfAnotherVersionOrOfSomebodyElseIsNamedAndLeftAlone) {
  struct Case {
    std::string bytes, code, reason;
  };
  const std::vector<Case> cases = {
      {format_of_version(kDiskStoreVersion - 1), "unsupported", "written by an older version"},
      {format_of_version(kDiskStoreVersion + 1), "unsupported", "written by a newer version"},
      {"somebody else's file", "corrupt", "not the format file of a disk store"}};
  std::filesystem::create_directory(disk());
  for (const Case& each : cases) {
    SCOPED_TRACE(each.reason);
    std::ofstream(disk() + "/format", std::ios::binary) << each.bytes;
    ASSERT_NO_FATAL_FAILURE(start_service());
    EXPECT_NE(service_->out().find("disk=off reason=" + each.code), std::string::npos);
    expect_served_without_disk();
    expect_line(stop_and_read_log(0), "disk_refused",
                {"code=" + each.code, each.reason, "remedy=\"move " + disk() + " away"});
    std::ifstream file(disk() + "/format", std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), each.bytes);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(disk()), {}), 1);
  }
}

TEST_F(DiskPlace, WithADamagedIndexStartsEmptyWithOneWarning) {
  ASSERT_NO_FATAL_FAILURE(fill_and_stop());
  std::ofstream(disk() + "/index/CURRENT") << "nonsense";
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto admin = connect(Client::Role::admin);
  wait_recovered(*admin);
  EXPECT_EQ(counter(*admin, "damaged_indexes"), 1U);
  EXPECT_EQ(counter(*admin, "recovered_blocks"), 0U);
  TestRunner runner(connect());
  EXPECT_EQ(runner.run(SequenceId(1), prompt_of(7, 65)).hits(), 0U);
  const auto flushed = admin->flush(in(seconds(30)));
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->durable_blocks, 4U) << "the tier works";
  const std::string log = stop_and_read_log(0);
  expect_line(log, "disk_index_damaged", {"level=warning", "index.damaged"});
  expect_line(log, "disk_opened", {"io="});
}

TEST_F(DiskPlace, ThatIsSmallerThanItsBudgetIsUsedToTheFull) {
  if (const std::string refused = own_mounts(); !refused.empty()) {
    GTEST_SKIP() << "no mounts of its own for this test: " << refused;
  }
  std::filesystem::create_directory(disk());
  ASSERT_EQ(::mount("tmpfs", disk().c_str(), "tmpfs", 0, "size=12m,mode=0700"), 0);
  ASSERT_NO_FATAL_FAILURE(start_service());  // 64 MiB are configured
  TestRunner runner(connect());
  const auto admin = connect(Client::Role::admin);
  constexpr std::uint64_t kPrompts = 40;
  const auto prompt = [](std::uint64_t seed) { return prompt_of(1'000 + seed, 961); };
  std::uint64_t durable = 0;
  for (std::uint64_t seed = 0; seed < kPrompts; ++seed) {
    (void)runner.run(SequenceId(seed + 1), prompt(seed));
    const auto flushed = admin->flush(in(seconds(30)));
    ASSERT_TRUE(flushed) << flushed.error().reason;
    durable = flushed->durable_blocks;
  }
  EXPECT_GT(counter(*admin, "no_space_blocks"), 0U);
  EXPECT_GT(counter(*admin, "retried_blocks"), 0U);
  EXPECT_GE(counter(*admin, "evicted_blocks.disk"), counter(*admin, "retried_blocks"));
  EXPECT_GT(durable, 600U) << "most of the 12 MiB";
  EXPECT_LT(durable, 60 * kPrompts);
  // The newest came in for the oldest, and is served from there, each byte checked.
  ASSERT_TRUE(admin->demote(Tier::device, in(seconds(30))));
  ASSERT_TRUE(admin->demote(Tier::host, in(seconds(30))));
  EXPECT_EQ(runner.run(SequenceId(900), prompt(kPrompts - 1)).hit_tokens[2], 960U);
  stop_service();
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto after = connect(Client::Role::admin);
  wait_recovered(*after);
  EXPECT_GT(counter(*after, "recovered_blocks"), 600U);
  EXPECT_EQ(counter(*after, "damaged_indexes"), 0U);
  service_.reset();
  EXPECT_EQ(::umount2(disk().c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace kv::test
