// The whole service on a disk that fails it: faults are put between the disk store and its files,
// clients come over the real sockets and check every byte that they are served. After each fault
// the service serves on, and nothing is left held, pinned or on its way.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "tests/cachesvc/shell/memory_store.h"
#include "tests/cachesvc/shell/running_service.h"
#include "tests/end_to_end/service_fixture.h"
#include "tests/tiering/stores/fault_io.h"
#include "tiering/stores/disk_store.h"

namespace kv::test {
namespace {

enum class Fault : std::uint8_t { none, io_error, unsupported, no_space, moves_nothing, slow };

// Set by the test, read by the disk worker.
struct Switches {
  std::atomic<Fault> writes = Fault::none;
  std::atomic<Fault> reads = Fault::none;
  std::atomic<int> writes_left = -1;  // faults of writes before they are over; -1: for ever
  std::atomic<bool> flush_fails = false;
  std::atomic<int> waiting = 0;  // requests that hang
  tests::Gate gate;
};

std::optional<std::int64_t> answer(Switches& switches, const FileRequest& request) {
  ++switches.waiting;
  switches.gate.pass();
  --switches.waiting;
  const bool is_write = request.kind == FileRequest::Kind::write;
  const Fault fault = is_write ? switches.writes : switches.reads;
  if (fault == Fault::none) return {};
  if (is_write && switches.writes_left == 0) return {};
  if (is_write && switches.writes_left > 0) --switches.writes_left;
  if (fault == Fault::io_error) return -EIO;
  if (fault == Fault::unsupported) return -EOPNOTSUPP;
  if (fault == Fault::no_space) return -ENOSPC;
  if (fault == Fault::moves_nothing) return 0;
  (void)poll(nullptr, 0, 100);  // the fault itself; nothing waits for it
  return {};
}

class BadDisk : public ServiceTest {
 protected:
  explicit BadDisk(std::uint64_t device_blocks = 128, std::uint64_t host_blocks = 256)
      : device_blocks_(device_blocks), host_blocks_(host_blocks) {}
  void SetUp() override {
    plan_.request_fault = [this](std::uint64_t, const FileRequest& request) {
      return answer(switches_, request);
    };
    plan_.flush_fault = [this] { return switches_.flush_fails ? EIO : 0; };
    start();
  }
  void start() {
    shell::Service::Options options = tests::options_in(dir_.path());
    options.config.device_bytes = device_blocks_ * kBlockBytes;
    options.config.host_bytes = host_blocks_ * kBlockBytes;
    options.config.disk_bytes = std::uint64_t{64} * 4'096;
    options.opener = [this, dir = options.config.dir](
                         const KvLayout& layout) -> Result<std::unique_ptr<BlobStore>> {
      KV_TRY(std::unique_ptr<DiskStore> store,
             DiskStore::open({.directory = dir + "/disk",
                              .bytes = std::uint64_t{64} * 4'096,
                              .slab_bytes_max = 4'096},  // a file for each slot
                             layout, seams_of(plan_)));
      return std::unique_ptr<BlobStore>(std::move(store));
    };
    running_ = std::make_unique<tests::RunningService>(options);
    runner_ = std::make_unique<TestRunner>(connect());
    admin_ = connect(Client::Role::admin);
    ASSERT_NE(admin_, nullptr);
  }
  void TearDown() override { switches_.gate.open(); }
  void stop() {
    EXPECT_EQ(running_->end(), shell::Service::Ended::clean);
    runner_.reset();
    admin_.reset();
    running_.reset();
  }

  static std::vector<Token> prompt(std::uint64_t seed) { return prompt_of(seed, 65); }  // 4 blocks
  client::Account run(std::uint64_t seed) { return runner_->run(SequenceId(++id_), prompt(seed)); }
  static std::uint64_t hits(const client::Account& account, Tier tier) {
    return account.hit_tokens[tier_index(tier)];
  }
  std::uint64_t count(const std::string& name) { return counter(*admin_, name); }
  void wait_until(const std::string& name, std::uint64_t value) {
    wait_for(*admin_, [&](const client::ServiceStatus& status) {
      return std::ranges::any_of(status.counters, [&](const auto& entry) {
        return entry.name == name && entry.value >= value;
      });
    });
  }
  void demote(Tier tier) { ASSERT_TRUE(admin_->demote(tier, in(seconds(30)))); }
  // What was cached is on the disk only.
  void leave_on_disk_only() {
    demote(Tier::device);
    demote(Tier::host);
  }
  // The slab file that begins with these bytes; empty when there is none.
  [[nodiscard]] std::filesystem::path file_with(const std::vector<std::byte>& block) const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path() + "/disk")) {
      if (!entry.path().filename().string().starts_with("slab.")) continue;
      std::vector<char> bytes(block.size());
      std::ifstream(entry.path(), std::ios::binary)
          .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      if (std::memcmp(bytes.data(), block.data(), block.size()) == 0) return entry.path();
    }
    return {};
  }
  // The numbers of a service that does nothing.
  void expect_idle() {
    wait_for(*admin_, [](const auto& status) { return status.transfers_in_flight == 0; });
    const auto status = admin_->status(in(seconds(20)));
    ASSERT_TRUE(status);
    EXPECT_EQ(status->sequences, 0U);
    for (const auto& tier : status->tiers) {
      EXPECT_EQ(tier.held, 0U);
      EXPECT_EQ(tier.fenced, 0U);
      EXPECT_EQ(tier.covered, 0U);
      EXPECT_EQ(tier.arriving, 0U);
      EXPECT_EQ(tier.free + tier.cached, tier.slots);
    }
  }
  // Saves, demotes and loads as if nothing had been.
  void expect_whole(std::uint64_t seed) {
    (void)run(seed);
    const auto flushed = admin_->flush(in(seconds(30)));
    ASSERT_TRUE(flushed) << flushed.error().reason;
    EXPECT_EQ(flushed->unsaved_blocks, 0U);
    leave_on_disk_only();
    EXPECT_EQ(hits(run(seed), Tier::disk), 64U);
    expect_idle();
  }

  std::uint64_t device_blocks_, host_blocks_;
  Switches switches_;
  FaultPlan plan_;
  std::unique_ptr<tests::RunningService> running_;
  std::unique_ptr<TestRunner> runner_;
  std::unique_ptr<Client> admin_;
  std::uint64_t id_ = 0;
};

TEST_F(BadDisk, AWriteErrorCostsThatCopyAndNothingElse) {
  switches_.writes = Fault::io_error;
  (void)run(1);
  wait_until("failed_blocks.disk", 1);
  EXPECT_EQ(hits(run(1), Tier::device), 64U);
  demote(Tier::device);
  EXPECT_EQ(hits(run(1), Tier::host), 64U);
  EXPECT_EQ(count("saved_blocks.disk"), 0U);
  expect_idle();
  switches_.writes = Fault::none;
  expect_whole(1);
}

TEST_F(BadDisk, AReadErrorIsAMissAndTheBlocksAreComputedAgain) {
  (void)run(1);
  ASSERT_TRUE(admin_->flush(in(seconds(30))));
  leave_on_disk_only();
  switches_.reads = Fault::io_error;
  const client::Account account = run(1);
  EXPECT_EQ(account.hits(), 0U);
  EXPECT_EQ(account.computed_tokens, 65U);
  EXPECT_EQ(count("failed_blocks.disk"), 4U);
  EXPECT_EQ(count("corrupt_blocks.disk"), 0U);
  expect_idle();
  switches_.reads = Fault::none;
  expect_whole(1);
}

// SCENARIOS DEAD-10
TEST_F(BadDisk, ReadsThatItDoesNotSupportAreAMissAndNobodyWaitsForThem) {
  (void)run(1);
  ASSERT_TRUE(admin_->flush(in(seconds(30))));
  leave_on_disk_only();
  switches_.reads = Fault::unsupported;
  EXPECT_EQ(run(1).computed_tokens, 65U);
  EXPECT_EQ(count("failed_blocks.disk"), 4U);
  expect_idle();
}

// SCENARIOS CRASH-04
TEST_F(BadDisk, AFileThatIsGoneOrUnreadableOrShortIsAMissFromThereOn) {
  using Harm = void (*)(const std::filesystem::path&);
  const std::vector<std::pair<const char*, Harm>> harms = {
      {"gone", [](const auto& file) { std::filesystem::remove(file); }},
      // Mode bits mean nothing to root; a directory in its place cannot be opened by anybody.
      {"unreadable",
       [](const auto& file) {
         std::filesystem::remove(file);
         std::filesystem::create_directory(file);
       }},
      {"short", [](const auto& file) { std::filesystem::resize_file(file, 100); }}};
  std::uint64_t seed = 20;
  for (const auto& [name, harm] : harms) {
    SCOPED_TRACE(name);
    (void)run(++seed);
    ASSERT_TRUE(admin_->flush(in(seconds(30))));
    stop();
    const std::vector<Token> tokens = prompt(seed);
    const auto block = block_bytes_of(std::span(tokens).first(32));  // the second of four
    const std::filesystem::path file = file_with(block);
    ASSERT_FALSE(file.empty());
    harm(file);
    ASSERT_NO_FATAL_FAILURE(start());
    wait_recovered(*admin_);
    const client::Account account = run(seed);
    EXPECT_EQ(account.hits(), 16U);
    EXPECT_EQ(account.computed_tokens, 49U);
    // Its slot may be the one that is tried for the block computed anew.
    EXPECT_GE(count("corrupt_blocks.disk") + count("failed_blocks.disk"), 1U);
    EXPECT_LE(count("corrupt_blocks.disk") + count("failed_blocks.disk"), 2U);
    expect_idle();
    if (std::filesystem::is_directory(file)) std::filesystem::remove(file);
    expect_whole(seed);
  }
}

TEST_F(BadDisk, ADiskThatMovesNothingIsAnErrorAndNotALoop) {
  switches_.writes = Fault::moves_nothing;
  (void)run(1);
  wait_until("failed_blocks.disk", 1);
  expect_idle();
  switches_.writes = Fault::none;
  (void)run(2);
  ASSERT_TRUE(admin_->flush(in(seconds(30))));
  leave_on_disk_only();
  switches_.reads = Fault::moves_nothing;
  EXPECT_EQ(run(2).hits(), 0U);
  expect_idle();
  switches_.reads = Fault::none;
  expect_whole(2);
}

TEST_F(BadDisk, NoSpaceOnceCostsVictimsAndTheNewBlocksAreSaved) {
  (void)run(1);
  wait_until("saved_blocks.disk", 4);
  switches_.writes_left = 4;
  switches_.writes = Fault::no_space;
  (void)run(2);
  wait_until("saved_blocks.disk", 8);
  EXPECT_GE(count("no_space_blocks"), 1U);
  EXPECT_LE(count("no_space_blocks"), 4U);
  EXPECT_GE(count("retried_blocks"), count("no_space_blocks"));
  EXPECT_GE(count("evicted_blocks.disk"), count("no_space_blocks"));
  EXPECT_EQ(count("failed_blocks.disk"), 0U);
  switches_.writes = Fault::none;
  leave_on_disk_only();
  EXPECT_EQ(hits(run(2), Tier::disk), 64U);
  expect_idle();
}

TEST_F(BadDisk, NoSpaceForEverStopsTheSavesUntilThereIsSome) {
  (void)run(1);
  wait_until("saved_blocks.disk", 4);
  switches_.writes = Fault::no_space;
  (void)run(2);
  wait_until("failed_blocks.disk", 1);
  for (std::uint64_t seed = 3; seed < 8; ++seed) (void)run(seed);
  const auto flushed = admin_->flush(in(seconds(30)));
  ASSERT_TRUE(flushed) << "a full disk is no error of the flush";
  EXPECT_LE(flushed->durable_blocks, 3U);
  EXPECT_GE(flushed->unsaved_blocks, 4U);
  EXPECT_LE(count("evicted_blocks.disk"), 4U) << "not one victim for each block that comes";
  EXPECT_EQ(hits(run(7), Tier::device), 64U);
  expect_idle();
  // Without being asked: time passes, one block finds out, and the rest follows.
  const std::uint64_t before = count("saved_blocks.disk");
  switches_.writes = Fault::none;
  wait_until("saved_blocks.disk", before + 1);
  expect_whole(8);
}

TEST_F(BadDisk, AfterAFailedFlushNothingIsCalledDurableAndTheServiceServesOn) {
  (void)run(1);
  wait_until("saved_blocks.disk", 4);
  switches_.flush_fails = true;
  const auto failed = admin_->flush(in(seconds(30)));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::unavailable);
  switches_.flush_fails = false;
  EXPECT_FALSE(admin_->flush(in(seconds(30)))) << "the kernel may have dropped what it could not";
  EXPECT_EQ(hits(run(1), Tier::device), 64U);
  leave_on_disk_only();
  EXPECT_EQ(hits(run(1), Tier::disk), 64U);
  expect_idle();
  EXPECT_EQ(running_->end(), shell::Service::Ended::unsaved);
}

TEST_F(BadDisk, ASlowOneIsOnlySlow) {
  switches_.writes = switches_.reads = Fault::slow;
  (void)run(1);
  ASSERT_TRUE(admin_->flush(in(seconds(30))));
  leave_on_disk_only();
  EXPECT_EQ(hits(run(1), Tier::disk), 64U);
  EXPECT_EQ(count("failed_blocks.disk"), 0U);
  expect_idle();
}

// Ten prompts on a device that holds seven: each in its turn comes from the host.
class HungDisk : public BadDisk {
 protected:
  HungDisk() : BadDisk(32, 64) {}
};

TEST_F(HungDisk, DelaysNoLookUpAndNoHitOfDeviceOrHost) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    (void)run(seed);
    ASSERT_TRUE(admin_->flush(in(seconds(30))));
  }
  const std::uint64_t saved = count("saved_blocks.disk");
  switches_.gate.close();
  (void)run(99);  // its save to the disk hangs
  wait_for(*admin_, [this](const auto&) { return switches_.waiting > 0; });
  std::uint64_t look_ups = 0, device_hits = 0, host_hits = 0;
  for (std::uint64_t round = 0; round < 50; ++round) {
    const std::uint64_t seed = 1 + round % 10;
    const auto found = admin_->lookup(test_namespace(), prompt(seed), in(seconds(20)));
    ASSERT_TRUE(found);
    look_ups += found->hit_tokens == 64 ? 1 : 0;
    // Open, admit, step; each byte of the hit is checked.
    host_hits += hits(run(seed), Tier::host) == 64 ? 1 : 0;
    device_hits += hits(run(seed), Tier::device) == 64 ? 1 : 0;
    ASSERT_TRUE(admin_->status(in(seconds(20))));
  }
  EXPECT_EQ(look_ups, 50U);
  EXPECT_EQ(device_hits, 50U);
  EXPECT_GE(host_hits, 40U);
  // All that while the disk did nothing.
  EXPECT_GT(switches_.waiting, 0);
  EXPECT_EQ(count("saved_blocks.disk"), saved);
  switches_.gate.open();
  wait_until("saved_blocks.disk", saved + 4);
  expect_idle();
  expect_whole(99);
}

TEST_F(BadDisk, AHungReadHoldsUpItsOwnSequenceOnly) {
  (void)run(1);
  ASSERT_TRUE(admin_->flush(in(seconds(30))));
  leave_on_disk_only();
  (void)run(2);
  switches_.gate.close();
  // A runner of its own waits for the blocks that are on the disk.
  std::thread waiting([this] {
    TestRunner other(connect());
    EXPECT_EQ(hits(other.run(SequenceId(1), prompt(1)), Tier::disk), 64U);
  });
  wait_for(*admin_, [this](const auto&) { return switches_.waiting > 0; });
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(hits(run(2), Tier::device), 64U);
    const auto hits = admin_->lookup(test_namespace(), prompt(1), in(seconds(20)));
    ASSERT_TRUE(hits);
    EXPECT_EQ(hits->hit_tokens, 64U);
  }
  EXPECT_GT(switches_.waiting, 0);
  switches_.gate.open();
  waiting.join();
  expect_idle();
}

}  // namespace
}  // namespace kv::test
