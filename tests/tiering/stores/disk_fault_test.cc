// What the disk store does when the system fails it: an error code a block, never a crash, never
// wrong bytes, and service again once the fault is over.
#include <cerrno>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tiering/stores/fault_environment.h"
#include "tests/tiering/stores/fault_io.h"
#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/disk_store_seams.h"

namespace kv {
namespace {

class DiskFaults : public testing::TestWithParam<DiskStore::Io> {
 protected:
  std::unique_ptr<DiskStore> open_here() {
    DiskStore::Options options = options_of(directory_ / "store");
    options.io = GetParam();
    DiskStoreSeams seams = seams_of(plan_);
    seams.index_environment = environment_.get();
    Result<std::unique_ptr<DiskStore>> store = DiskStore::open(options, layout_, seams);
    EXPECT_TRUE(store.has_value()) << store.error().reason;
    return store ? std::move(store).value() : nullptr;
  }
  TempDirectory directory_;
  KvLayout layout_ = small_layout();
  FaultPlan plan_;
  IndexFaults index_faults_;
  std::unique_ptr<rocksdb::Env> environment_ = make_fault_environment(index_faults_);
};

TEST_P(DiskFaults, AFailedPayloadWriteIsUnavailableAndLeavesNoEntry) {
  {
    const std::unique_ptr<DiskStore> store = open_here();
    const std::vector<TestBlock> blocks = make_blocks(layout_, 10);
    const auto first = plan_.requests;
    plan_.request_fault = [first](std::uint64_t number, const FileRequest&) {
      return number == first + 4 ? std::optional<std::int64_t>(-EIO) : std::nullopt;
    };
    std::vector<ErrorCode> expected(10, ErrorCode::ok);
    expected[4] = ErrorCode::unavailable;
    EXPECT_EQ(write_blocks(*store, blocks), expected);
    EXPECT_EQ(store->counters().failed_writes, 1U);
    EXPECT_EQ(store->counters().written_blocks, 9U);
    EXPECT_EQ(read_block(*store, blocks[4]), ErrorCode::corrupt);
    EXPECT_EQ(read_block(*store, blocks[5]), ErrorCode::ok);
  }
  plan_ = {};
  EXPECT_EQ(scan_all(*open_here()).size(), 9U);
}

TEST_P(DiskFaults, ADiskThatIsFullIsExhaustedAndServesAgainWhenItIsNot) {
  const std::unique_ptr<DiskStore> store = open_here();
  const std::vector<TestBlock> blocks = make_blocks(layout_, 4);
  plan_.request_fault = [](std::uint64_t, const FileRequest& request) {
    return request.kind == FileRequest::Kind::write ? std::optional<std::int64_t>(-ENOSPC)
                                                    : std::nullopt;
  };
  EXPECT_EQ(write_blocks(*store, blocks), std::vector<ErrorCode>(4, ErrorCode::exhausted));
  plan_.request_fault = nullptr;
  EXPECT_TRUE(all_ok(write_blocks(*store, blocks)));
  for (const TestBlock& block : blocks) EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
}

TEST_P(DiskFaults, TheLastRoomOnTheDiskIsUsedSlotBySlot) {
  const std::unique_ptr<DiskStore> store = open_here();
  const std::uint64_t room = 3 * DiskStore::slot_bytes(layout_, GroupId(0));
  plan_.reserve_fault = [room](std::uint64_t bytes) { return bytes > room ? ENOSPC : 0; };
  const std::vector<ErrorCode> expected = {ErrorCode::ok, ErrorCode::ok, ErrorCode::ok,
                                           ErrorCode::exhausted, ErrorCode::exhausted};
  EXPECT_EQ(write_blocks(*store, make_blocks(layout_, 5)), expected);
}

TEST_P(DiskFaults, AFailedReadIsUnavailableAndTheBlockIsThereNextTime) {
  const std::unique_ptr<DiskStore> store = open_here();
  const TestBlock block = make_block(layout_, 0, 1);
  ASSERT_EQ(write_block(*store, block), ErrorCode::ok);
  plan_.request_fault = [](std::uint64_t, const FileRequest&) { return -EIO; };
  EXPECT_EQ(read_block(*store, block), ErrorCode::unavailable);
  EXPECT_EQ(store->counters().failed_reads, 1U);
  plan_.request_fault = nullptr;
  EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
}

TEST_P(DiskFaults, ShortWritesAndReadsAreGoneOnWith) {
  const std::unique_ptr<DiskStore> store = open_here();
  const std::vector<TestBlock> blocks = make_blocks(layout_, 20);
  // 20,480 bytes in pieces of at most 8,192: three pieces each.
  plan_.request_fault = [](std::uint64_t, const FileRequest&) { return 8'192; };
  const std::uint64_t before = plan_.requests;
  EXPECT_TRUE(all_ok(write_blocks(*store, blocks)));
  EXPECT_EQ(plan_.requests - before, 60U);
  for (const TestBlock& block : blocks) EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
  EXPECT_EQ(plan_.requests - before, 120U);
}

TEST_P(DiskFaults, ADiskThatMovesNothingIsAnErrorNotALoop) {
  const std::unique_ptr<DiskStore> store = open_here();
  const TestBlock block = make_block(layout_, 0, 1);
  plan_.request_fault = [](std::uint64_t, const FileRequest&) { return 0; };
  EXPECT_EQ(write_block(*store, block), ErrorCode::unavailable);
  plan_.request_fault = nullptr;
  ASSERT_EQ(write_block(*store, block), ErrorCode::ok);
  plan_.request_fault = [](std::uint64_t, const FileRequest&) { return 0; };
  EXPECT_EQ(read_block(*store, block), ErrorCode::corrupt);
}

TEST_P(DiskFaults, AnInterruptedRequestIsRepeated) {
  const std::unique_ptr<DiskStore> store = open_here();
  plan_.request_fault = [](std::uint64_t number, const FileRequest&) {
    return number % 2 == 0 ? std::optional<std::int64_t>(-EINTR) : std::nullopt;
  };
  EXPECT_TRUE(all_ok(write_blocks(*store, make_blocks(layout_, 5))));
}

TEST_P(DiskFaults, AfterAFailedFlushNothingIsCalledDurable) {
  {
    const std::unique_ptr<DiskStore> store = open_here();
    ASSERT_TRUE(all_ok(write_blocks(*store, make_blocks(layout_, 3))));
    plan_.flush_fault = [] { return EIO; };
    const Result<void> failed = store->sync();
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code, ErrorCode::unavailable);
    plan_.flush_fault = nullptr;
    EXPECT_FALSE(store->sync().has_value())
        << "the kernel may have dropped what it could not flush";
    EXPECT_EQ(read_block(*store, make_block(layout_, 2, 1, 2)), ErrorCode::ok);
  }
  EXPECT_TRUE(open_here()->sync().has_value());
}

TEST_P(DiskFaults, AFailedIndexWriteIsReportedAndLeavesNoEntry) {
  using Kind = IndexFaults::Kind;
  for (const Kind kind : {Kind::io_error, Kind::no_space}) {
    std::unique_ptr<DiskStore> store = open_here();
    const std::vector<TestBlock> before = make_blocks(layout_, 3);
    ASSERT_TRUE(all_ok(write_blocks(*store, before)));
    const TestBlock block = make_block(layout_, 8, 1, 8);
    index_faults_.append = kind;
    EXPECT_EQ(write_block(*store, block),
              kind == Kind::io_error ? ErrorCode::unavailable : ErrorCode::exhausted);
    EXPECT_EQ(read_block(*store, block), ErrorCode::corrupt);
    EXPECT_EQ(read_block(*store, before[0]), ErrorCode::ok);
    EXPECT_NE(write_block(*store, block), ErrorCode::ok);
    index_faults_.append = Kind::none;
    EXPECT_EQ(write_block(*store, block), ErrorCode::ok) << "serves again without a restart";
    EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
    EXPECT_TRUE(store->sync().has_value());
    store.reset();
    store = open_here();
    EXPECT_EQ(scan_all(*store).size(), 4U);
    EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
  }
}

TEST_P(DiskFaults, ASlotWhoseEntryCannotBeErasedIsNotOverwritten) {
  std::unique_ptr<DiskStore> store = open_here();
  const TestBlock old_block = make_block(layout_, 0, 1);
  const TestBlock new_block = make_block(layout_, 0, 2);
  ASSERT_EQ(write_block(*store, old_block), ErrorCode::ok);
  index_faults_.append = IndexFaults::Kind::io_error;
  const BlobErase erase = old_block.to_erase();
  store->erase({&erase, 1});
  EXPECT_EQ(read_block(*store, old_block), ErrorCode::corrupt) << "erased for readers at once";
  const std::uint64_t before = plan_.requests;
  EXPECT_EQ(write_block(*store, new_block), ErrorCode::unavailable);
  EXPECT_EQ(plan_.requests, before) << "the payload was not touched";
  store.reset();  // the entry survived, and so did its bytes
  index_faults_.append = IndexFaults::Kind::none;
  store = open_here();
  ASSERT_EQ(scan_all(*store).size(), 1U);
  EXPECT_EQ(read_block(*store, old_block), ErrorCode::ok);
}

TEST_P(DiskFaults, AnIndexThatCannotBeFlushedIsNotDurable) {
  const std::unique_ptr<DiskStore> store = open_here();
  ASSERT_TRUE(all_ok(write_blocks(*store, make_blocks(layout_, 3))));
  index_faults_.sync = IndexFaults::Kind::io_error;
  EXPECT_FALSE(store->sync().has_value());
  index_faults_.sync = IndexFaults::Kind::none;
  EXPECT_TRUE(all_ok(write_blocks(*store, make_blocks(layout_, 3))));
  EXPECT_TRUE(store->sync().has_value());
}

TEST_P(DiskFaults, RandomFaultsNeverGiveWrongBytes) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    std::unique_ptr<DiskStore> store = open_here();
    Prng prng(seed);
    plan_.request_fault = [&prng](std::uint64_t,
                                  const FileRequest& request) -> std::optional<std::int64_t> {
      switch (prng.below(12)) {
        case 0:
          return -EIO;
        case 1:
          return -ENOSPC;
        case 2:
          return static_cast<std::int64_t>(1 + prng.below(request.bytes.size()));
        default:
          return {};
      }
    };
    std::vector<TestBlock> blocks = make_blocks(layout_, 16);
    std::vector<bool> written(16);
    std::uint64_t right = 0;
    for (std::uint32_t step = 0; step < 300; ++step) {
      const auto slot = static_cast<std::uint32_t>(prng.below(16));
      index_faults_.append =
          prng.chance(1, 40) ? IndexFaults::Kind::io_error : IndexFaults::Kind::none;
      if (prng.chance(1, 2)) {
        blocks[slot] = make_block(layout_, slot, static_cast<std::uint32_t>(seed * 1000) + step);
        written[slot] = write_block(*store, blocks[slot]) == ErrorCode::ok;
      } else {
        const ErrorCode code = read_block(*store, blocks[slot]);
        ASSERT_NE(code, ErrorCode::invalid) << "wrong bytes";
        ASSERT_TRUE(written[slot] || code != ErrorCode::ok);
        if (code == ErrorCode::ok) ++right;
      }
    }
    EXPECT_GT(right, 20U);
    index_faults_.append = IndexFaults::Kind::none;
    plan_.request_fault = nullptr;
    store.reset();
    std::filesystem::remove_all(directory_ / "store");
  }
}

std::string io_name(const testing::TestParamInfo<DiskStore::Io>& parameters) {
  return parameters.param == DiskStore::Io::plain ? "PlainIo" : "Automatic";
}
INSTANTIATE_TEST_SUITE_P(Io, DiskFaults,
                         testing::Values(DiskStore::Io::automatic, DiskStore::Io::plain), io_name);

}  // namespace
}  // namespace kv
