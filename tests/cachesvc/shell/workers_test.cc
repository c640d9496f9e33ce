#include <algorithm>
#include <variant>

#include <gtest/gtest.h>
#include <poll.h>

#include "cachesvc/shell/copy_workers.h"
#include "cachesvc/shell/disk_worker.h"
#include "tests/cachesvc/shell/memory_store.h"

namespace kv::shell {
namespace {

using core::BlockOutcome;

// CRC32C bit by bit, as RFC 3720 defines it: not the code under test.
std::uint32_t reference_crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

KvLayout two_groups() {
  KvLayout layout;
  layout.block_tokens = 4;
  layout.groups = {{.layer_count = 1, .kv_head_count = 1, .head_dim_k = 2, .head_dim_v = 2},
                   {.layer_count = 3, .kv_head_count = 1, .head_dim_k = 2, .head_dim_v = 2}};
  return layout;
}
constexpr std::uint64_t kFirstBytes =
    std::uint64_t{4} * 1 * 4 * 4;  // tokens, layers, channels, f32
constexpr std::uint64_t kSecondBytes = std::uint64_t{4} * 3 * 4 * 4;

Digest key_of(std::uint8_t number) {
  Digest key;
  key.bytes[0] = std::byte{number};
  return key;
}

class WorkersTest : public testing::Test {
 protected:
  void SetUp() override {
    auto memory = BlockMemory::make(1U << 16U, 1U << 16U);
    ASSERT_TRUE(memory.has_value());
    memory_ = std::make_unique<BlockMemory>(*std::move(memory));
    memory_->define(two_groups(), 8, 8);
    auto queue = CompletionQueue::make();
    ASSERT_TRUE(queue.has_value());
    completions_ = *std::move(queue);
  }
  void TearDown() override { gate_.open(); }

  void fill(Tier tier, GroupId group, SlotId slot, std::uint8_t with) const {
    std::uint8_t value = with;
    for (std::byte& byte : memory_->block(tier, group, slot)) byte = std::byte{value++};
  }
  static TransferTask task_of(Tier from, Tier to, GroupId group,
                              const std::vector<core::TransferBlock>& blocks) {
    TransferTask task;
    task.transfer.id = TransferId(77);
    task.transfer.from = from;
    task.transfer.to = to;
    task.transfer.group = group;
    task.blocks = blocks;
    if (to == Tier::disk) task.tokens.assign(4 * blocks.size(), 9);
    return task;
  }
  core::TransferBlock block_of(std::uint32_t from, std::uint32_t to, std::uint32_t checksum) {
    core::TransferBlock block;
    block.from_slot = SlotId(from);
    block.to_slot = SlotId(to);
    block.checksum = checksum;
    block.key = key_of(static_cast<std::uint8_t>(from + 1));
    return block;
  }
  // Waits on the eventfd, as the loop does.
  Completion next() {
    if (waiting_.empty()) {
      pollfd wait{.fd = completions_->descriptor(), .events = POLLIN, .revents = 0};
      EXPECT_EQ(poll(&wait, 1, 10'000), 1);
      completions_->drain(waiting_);
    }
    Completion first = waiting_.empty() ? Completion() : std::move(waiting_.front());
    if (!waiting_.empty()) waiting_.erase(waiting_.begin());
    return first;
  }
  DiskWorker::Opener memory_opener() {
    return [this](const KvLayout&) -> Result<std::unique_ptr<BlobStore>> {
      return std::unique_ptr<BlobStore>(std::make_unique<tests::MemoryStore>(gate_, log_));
    };
  }
  bool nothing_waits() {
    pollfd wait{.fd = completions_->descriptor(), .events = POLLIN, .revents = 0};
    return waiting_.empty() && poll(&wait, 1, 0) == 0;
  }

  std::unique_ptr<BlockMemory> memory_;
  std::unique_ptr<CompletionQueue> completions_;
  std::vector<Completion> waiting_;
  tests::Gate gate_;
  tests::StoreLog log_;
};

TEST_F(WorkersTest, TheGroupsOfATierFollowEachOther) {
  const std::byte* const base = memory_->arena(Tier::device)->bytes().data();
  EXPECT_EQ(memory_->block(Tier::device, GroupId(0), SlotId(3)).data(), base + 3 * kFirstBytes);
  EXPECT_EQ(memory_->block(Tier::device, GroupId(0), SlotId(3)).size(), kFirstBytes);
  EXPECT_EQ(memory_->block(Tier::device, GroupId(1), SlotId(2)).data(),
            base + 8 * kFirstBytes + 2 * kSecondBytes);
  EXPECT_EQ(memory_->block(Tier::device, GroupId(1), SlotId(2)).size(), kSecondBytes);
}

TEST_F(WorkersTest, ACopyOutOfTheDeviceReportsTheChecksumOfEachBlock) {
  CopyWorkers workers(2, *memory_, *completions_);
  fill(Tier::device, GroupId(1), SlotId(5), 40);
  fill(Tier::device, GroupId(1), SlotId(6), 90);
  workers.start(
      task_of(Tier::device, Tier::host, GroupId(1), {block_of(5, 0, 0), block_of(6, 7, 0)}));
  const auto done = std::get<TransferCompletion>(next());
  EXPECT_EQ(done.id, TransferId(77));
  EXPECT_EQ(done.outcomes, (std::vector{BlockOutcome::ok, BlockOutcome::ok}));
  const auto first = memory_->block(Tier::host, GroupId(1), SlotId(0));
  EXPECT_TRUE(std::ranges::equal(first, memory_->block(Tier::device, GroupId(1), SlotId(5))));
  ASSERT_EQ(done.checksums.size(), 2U);
  EXPECT_EQ(done.checksums[0], reference_crc32c(first));
  EXPECT_EQ(done.checksums[1], reference_crc32c(memory_->block(Tier::host, GroupId(1), SlotId(7))));
  EXPECT_NE(done.checksums[0], done.checksums[1]);
}

TEST_F(WorkersTest, ACopyIntoTheDeviceWithOtherBytesIsCorruptAndTheOthersAreNot) {
  CopyWorkers workers(1, *memory_, *completions_);
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    fill(Tier::host, GroupId(0), SlotId(slot), static_cast<std::uint8_t>(10 * slot));
  }
  std::vector<core::TransferBlock> blocks;
  blocks.reserve(3);
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    blocks.push_back(block_of(
        slot, slot + 4, reference_crc32c(memory_->block(Tier::host, GroupId(0), SlotId(slot)))));
  }
  memory_->block(Tier::host, GroupId(0), SlotId(1))[17] ^= std::byte{1};  // one bit
  workers.start(task_of(Tier::host, Tier::device, GroupId(0), blocks));
  const auto done = std::get<TransferCompletion>(next());
  EXPECT_EQ(done.outcomes,
            (std::vector{BlockOutcome::ok, BlockOutcome::corrupt, BlockOutcome::ok}));
  EXPECT_TRUE(done.checksums.empty());
  EXPECT_TRUE(std::ranges::equal(memory_->block(Tier::host, GroupId(0), SlotId(2)),
                                 memory_->block(Tier::device, GroupId(0), SlotId(6))));
}

TEST_F(WorkersTest, EveryTransferIsReportedOnceByAnyNumberOfThreads) {
  constexpr std::uint64_t kTransfers = 500;
  CopyWorkers workers(4, *memory_, *completions_);
  for (std::uint64_t i = 0; i < kTransfers; ++i) {
    const auto slot = static_cast<std::uint32_t>(i % 8);
    TransferTask task = task_of(Tier::device, Tier::host, GroupId(0), {block_of(slot, slot, 0)});
    // Slots of one transfer are no other's at the same time in the service; here they may be equal
    // only one after another.
    task.transfer.id = TransferId(i);
    workers.start(std::move(task));
    if (slot == 7) {
      while (waiting_.size() < i + 1) {
        pollfd wait{.fd = completions_->descriptor(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(poll(&wait, 1, 10'000), 1);
        completions_->drain(waiting_);
      }
    }
  }
  ASSERT_TRUE(workers.finish(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  completions_->drain(waiting_);
  std::vector<std::uint64_t> ids;
  ids.reserve(waiting_.size());
  for (const Completion& done : waiting_)
    ids.push_back(std::get<TransferCompletion>(done).id.value);
  std::ranges::sort(ids);
  ASSERT_EQ(ids.size(), kTransfers);
  for (std::uint64_t i = 0; i < kTransfers; ++i) EXPECT_EQ(ids[i], i);
}

TEST_F(WorkersTest, BlocksGoToTheDiskAndComeBackTheSame) {
  DiskWorker disk(memory_opener(), *memory_, *completions_);
  disk.open(two_groups());
  EXPECT_EQ(std::get<DiskOpened>(next()).error.code, ErrorCode::ok);
  fill(Tier::host, GroupId(0), SlotId(1), 3);
  const auto source = memory_->block(Tier::host, GroupId(0), SlotId(1));
  const std::vector<std::byte> before(source.begin(), source.end());
  core::TransferBlock saved = block_of(1, 30, reference_crc32c(source));
  saved.to_generation = 6;
  disk.start(task_of(Tier::host, Tier::disk, GroupId(0), {saved}));
  EXPECT_EQ(std::get<TransferCompletion>(next()).outcomes, (std::vector{BlockOutcome::ok}));

  core::TransferBlock loaded = block_of(30, 2, saved.checksum);
  loaded.key = saved.key;
  loaded.from_generation = 6;
  disk.start(task_of(Tier::disk, Tier::host, GroupId(0), {loaded}));
  EXPECT_EQ(std::get<TransferCompletion>(next()).outcomes, (std::vector{BlockOutcome::ok}));
  EXPECT_TRUE(std::ranges::equal(memory_->block(Tier::host, GroupId(0), SlotId(2)), before));

  loaded.from_generation = 7;
  disk.start(task_of(Tier::disk, Tier::host, GroupId(0), {loaded}));
  EXPECT_EQ(std::get<TransferCompletion>(next()).outcomes, (std::vector{BlockOutcome::corrupt}));
}

TEST_F(WorkersTest, AWrongBlockIsNotWrittenToTheDisk) {
  DiskWorker disk(memory_opener(), *memory_, *completions_);
  disk.open(two_groups());
  (void)next();
  fill(Tier::host, GroupId(0), SlotId(0), 1);
  fill(Tier::host, GroupId(0), SlotId(1), 2);
  const std::uint32_t first = reference_crc32c(memory_->block(Tier::host, GroupId(0), SlotId(0)));
  const std::uint32_t second = reference_crc32c(memory_->block(Tier::host, GroupId(0), SlotId(1)));
  disk.start(task_of(Tier::host, Tier::disk, GroupId(0),
                     {block_of(0, 0, first ^ 1U), block_of(1, 1, second)}));
  EXPECT_EQ(std::get<TransferCompletion>(next()).outcomes,
            (std::vector{BlockOutcome::corrupt, BlockOutcome::ok}));
  disk.scan(10);
  const auto scanned = std::get<DiskScanned>(next());
  ASSERT_EQ(scanned.entries.size(), 1U);
  EXPECT_EQ(scanned.entries[0].identity.key, key_of(2));
  EXPECT_EQ(scanned.entries[0].tokens, std::vector<Token>(4, 9));
  EXPECT_FALSE(scanned.last);
  disk.scan(10);
  EXPECT_TRUE(std::get<DiskScanned>(next()).last);
}

TEST_F(WorkersTest, TheDiskWorksInTheOrderItWasTold) {
  DiskWorker disk(memory_opener(), *memory_, *completions_);
  gate_.close();
  disk.open(two_groups());
  disk.erase({BlobErase{}, BlobErase{}});
  disk.start(task_of(
      Tier::host, Tier::disk, GroupId(0),
      {block_of(0, 0, reference_crc32c(memory_->block(Tier::host, GroupId(0), SlotId(0))))}));
  disk.sync(5);
  gate_.open();
  (void)next();
  (void)next();
  const auto synced = std::get<DiskSyncCompletion>(next());
  EXPECT_EQ(synced.id, 5U);
  EXPECT_TRUE(synced.ok);
  EXPECT_EQ(log_.verbs, (std::vector<std::string>{"erase 2", "write 1", "sync"}));
}

TEST_F(WorkersTest, ADiskThatCannotBeOpenedFailsTransfersAndTheServiceGoesOn) {
  DiskWorker disk(
      [](const KvLayout&) -> Result<std::unique_ptr<BlobStore>> {
        return Error{ErrorCode::busy, "another service has it", {}};
      },
      *memory_, *completions_);
  disk.open(two_groups());
  EXPECT_EQ(std::get<DiskOpened>(next()).error.code, ErrorCode::busy);
  disk.erase({BlobErase{}});
  disk.start(task_of(Tier::disk, Tier::host, GroupId(0), {block_of(0, 0, 0), block_of(1, 1, 0)}));
  EXPECT_EQ(std::get<TransferCompletion>(next()).outcomes,
            (std::vector{BlockOutcome::io_error, BlockOutcome::io_error}));
  disk.sync(1);
  EXPECT_FALSE(std::get<DiskSyncCompletion>(next()).ok);
  disk.scan(10);
  EXPECT_TRUE(std::get<DiskScanned>(next()).last);
}

TEST_F(WorkersTest, AHungDiskHoldsNobodyUpAndItsEndIsNotAwaited) {
  DiskWorker disk(memory_opener(), *memory_, *completions_);
  disk.open(two_groups());
  (void)next();
  gate_.close();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < 100; ++i) disk.sync(i);  // returns at once
  EXPECT_FALSE(disk.finish(start + std::chrono::milliseconds(50)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_TRUE(nothing_waits());
  gate_.open();
  EXPECT_TRUE(disk.finish(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  completions_->drain(waiting_);
  EXPECT_EQ(waiting_.size(), 100U);
}

}  // namespace
}  // namespace kv::shell
