#include <csignal>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_index.h"
#include "tiering/stores/disk_record.h"
#include "tiering/stores/disk_store.h"

namespace kv {
namespace {

TEST(DiskStore, TellsTheLayoutOfADirectoryWithoutOpeningIt) {
  const TempDirectory directory;
  const Result<std::optional<KvLayout>> none = DiskStore::peek(directory / "store");
  ASSERT_TRUE(none.has_value());
  EXPECT_FALSE(none->has_value());
  const std::unique_ptr<DiskStore> store =
      open_store(options_of(directory / "store"), small_layout());
  const Result<std::optional<KvLayout>> peeked = DiskStore::peek(directory / "store");
  ASSERT_TRUE(peeked.has_value());
  EXPECT_EQ(*peeked, std::optional(small_layout()));
}

TEST(DiskStore, RefusesADirectoryOfAnotherLayoutAndNamesTheField) {
  const TempDirectory directory;
  open_store(options_of(directory / "store"), layout_of(2, 4, 8, 8));
  const auto store = DiskStore::open(options_of(directory / "store"), layout_of(2, 8, 8, 8));
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::mismatch);
  EXPECT_EQ(store.error().field, "kv_head_count");
  EXPECT_TRUE(DiskStore::open(options_of(directory / "store"), layout_of(2, 4, 8, 8)).has_value());
}

// SCENARIOS LEAK-26: two instances on one directory
TEST(DiskStore, IsOpenOnceAtATime) {
  const TempDirectory directory;
  std::unique_ptr<DiskStore> first = open_store(options_of(directory / "store"), page_layout());
  ASSERT_EQ(write_block(*first, make_block(page_layout(), 0, 1)), ErrorCode::ok);
  const auto second = DiskStore::open(options_of(directory / "store"), page_layout());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::busy);
  EXPECT_EQ(read_block(*first, make_block(page_layout(), 0, 1)), ErrorCode::ok);
  first.reset();
  EXPECT_TRUE(DiskStore::open(options_of(directory / "store"), page_layout()).has_value());
}

// SCENARIOS REC-03
TEST(DiskStore, RemovesItsOwnTempFilesAndLeavesForeignFilesAlone) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    ASSERT_TRUE(all_ok(write_blocks(
        *store, {make_block(layout, 0, 1), make_block(layout, 1, 1), make_block(layout, 2, 1)})));
  }
  std::ofstream(directory / "store/format.17.tmp") << "half";
  std::ofstream(directory / "store/format.18.tmp") << "";
  std::ofstream(directory / "store/notes.txt") << "mine";
  std::ofstream(directory / "store/slab.0.00") << "no name of ours";
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  EXPECT_EQ(scan_all(*store).size(), 3U);
  EXPECT_EQ(store->counters().temp_files_removed, 2U);
  EXPECT_EQ(store->counters().foreign_files, 2U);
  EXPECT_FALSE(std::filesystem::exists(directory / "store/format.17.tmp"));
  EXPECT_FALSE(std::filesystem::exists(directory / "store/format.18.tmp"));
  std::string text;
  std::ifstream(directory / "store/notes.txt") >> text;
  EXPECT_EQ(text, "mine");
  EXPECT_TRUE(std::filesystem::exists(directory / "store/slab.0.00"));
}

TEST(DiskStore, IsReadableByItsUserOnly) {
  const TempDirectory directory;
  const std::unique_ptr<DiskStore> store =
      open_store(options_of(directory / "store"), page_layout());
  ASSERT_EQ(write_block(*store, make_block(page_layout(), 0, 1)), ErrorCode::ok);
  const auto mode = [&](const std::string& name) {
    struct stat status{};
    EXPECT_EQ(::stat((directory / name).c_str(), &status), 0) << name;
    return status.st_mode & 0777U;
  };
  EXPECT_EQ(mode("store"), 0700U);
  EXPECT_EQ(mode("store/index"), 0700U);
  EXPECT_EQ(mode("store/format"), 0600U);
  EXPECT_EQ(mode("store/lock"), 0600U);
  EXPECT_EQ(mode("store/slab.0.0"), 0600U);
}

TEST(DiskStore, RefusesBlocksWithoutAFormatFile) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  ASSERT_EQ(
      write_block(*open_store(options_of(directory / "store"), layout), make_block(layout, 0, 1)),
      ErrorCode::ok);
  std::filesystem::remove(directory / "store/format");
  const auto store = DiskStore::open(options_of(directory / "store"), layout);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::corrupt);
}

TEST(DiskStore, WithoutABudgetIsInvalid) {
  const TempDirectory directory;
  const auto store = DiskStore::open({.directory = directory / "store"}, page_layout());
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::invalid);
}

// SCENARIOS DEAD-10: the path in use is known; the service logs it
TEST(DiskStore, SaysWhyItDoesNotUseIoUring) {
  const TempDirectory directory;
  DiskStore::Options options = options_of(directory / "store");
  {
    const std::unique_ptr<DiskStore> store = open_store(options, page_layout());
    EXPECT_EQ(store->plain_reason().empty(), store->io() == DiskStore::Io::io_uring_direct);
  }
  options.io = DiskStore::Io::plain;
  const std::unique_ptr<DiskStore> store = open_store(options, page_layout());
  EXPECT_EQ(store->io(), DiskStore::Io::plain);
  EXPECT_EQ(store->plain_reason(), "configured");
}

void put_entry(const std::string& index_directory, const std::string& key,
               const std::string& value) {
  Result<std::unique_ptr<DiskIndex>> index = DiskIndex::open(index_directory, nullptr);
  ASSERT_TRUE(index.has_value());
  const DiskIndex::Entry entry = {.key = key, .value = value};
  ASSERT_TRUE((*index)->write({&entry, 1}, {}).has_value());
}
void put_entry(const std::string& index_directory, const TestBlock& block) {
  put_entry(index_directory,
            disk_key(block.identity.key, block.identity.depth, block.identity.group),
            disk_value(block.identity, block.tokens));
}

TEST(DiskStore, OfTwoEntriesForOneSlotTheHigherGenerationWins) {
  for (const std::uint32_t ghost_generation : {4U, 6U}) {
    const TempDirectory directory;
    const KvLayout layout = page_layout();
    const TestBlock written = make_block(layout, 3, 5, 1);
    const TestBlock ghost = make_block(layout, 3, ghost_generation, 2);
    ASSERT_EQ(write_block(*open_store(options_of(directory / "store"), layout), written),
              ErrorCode::ok);
    put_entry(directory / "store/index", ghost);
    for (const std::uint64_t damaged : {1U, 0U}) {
      const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
      EXPECT_EQ(store->counters().damaged_entries, damaged);
      const std::vector<BlobStore::Scanned> entries = scan_all(*store);
      ASSERT_EQ(entries.size(), 1U);
      const bool ghost_wins = ghost_generation == 6;
      EXPECT_TRUE(same_identity(entries[0].identity, (ghost_wins ? ghost : written).identity));
    }
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    // The ghost never had a payload.
    EXPECT_EQ(read_block(*store, ghost), ErrorCode::corrupt);
    EXPECT_EQ(read_block(*store, written),
              ghost_generation == 4 ? ErrorCode::ok : ErrorCode::corrupt);
  }
}

TEST(DiskStore, SkipsErasesAndCountsEntriesThatAreDamaged) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  const TestBlock good = make_block(layout, 0, 1);
  const TestBlock other = make_block(layout, 1, 1);
  ASSERT_EQ(write_block(*open_store(options_of(directory / "store"), layout), good), ErrorCode::ok);
  const std::string index = directory / "store/index";
  const std::string key = disk_key(other.identity.key, 0, GroupId(0));
  put_entry(index, key, disk_value(good.identity, good.tokens));  // the value of another key
  put_entry(index, "short", "x");
  TestBlock no_such_group = make_block(layout, 4, 1);
  no_such_group.identity.group = GroupId(1);
  put_entry(index, no_such_group);
  TestBlock few_tokens = make_block(layout, 5, 1);
  few_tokens.tokens.pop_back();
  put_entry(index, few_tokens);
  for (const std::uint64_t damaged : {4U, 0U}) {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    EXPECT_EQ(store->counters().damaged_entries, damaged);
    const std::vector<BlobStore::Scanned> entries = scan_all(*store, 1);
    ASSERT_EQ(entries.size(), 1U);
    EXPECT_TRUE(same_identity(entries[0].identity, good.identity));
  }
}

// No file of this process can grow beyond `bytes` from here on: a disk that is full, to RocksDB.
void fill_the_disk(rlim_t bytes) {
  (void)std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST(DiskStoreDeathTest, OpensOrRefusesOnAFullDiskButNeverCrashes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    ASSERT_EQ(write_block(*store, make_block(layout, 0, 1)), ErrorCode::ok);
  }
  for (const rlim_t bytes : {0U, 64U, 1'024U, 4'096U, 65'536U}) {
    const auto open_and_exit = [&] {
      fill_the_disk(bytes);
      (void)DiskStore::open(options_of(directory / "store"), layout);
      std::_Exit(7);
    };
    EXPECT_EXIT(open_and_exit(), testing::ExitedWithCode(7), "") << bytes;
  }
  EXPECT_EQ(scan_all(*open_store(options_of(directory / "store"), layout)).size(), 1U);
}

TEST(DiskStoreDeathTest, ADiskThatFillsUpWhileItServesNeverCrashesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const KvLayout layout = page_layout();
  for (const rlim_t bytes : {0U, 64U, 1'024U, 4'096U, 65'536U}) {
    const TempDirectory directory;
    const auto serve_and_exit = [&] {
      const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
      ASSERT_EQ(write_block(*store, make_block(layout, 0, 1)), ErrorCode::ok);
      fill_the_disk(bytes);
      for (std::uint32_t i = 1; i < 40; ++i) {
        (void)write_block(*store, make_block(layout, i % 8, i));
        if (i % 4 == 0) (void)store->sync();
      }
      std::_Exit(read_block(*store, make_block(layout, 0, 1)) == ErrorCode::invalid ? 1 : 7);
    };
    EXPECT_EXIT(serve_and_exit(), testing::ExitedWithCode(7), "") << bytes;
  }
}

}  // namespace
}  // namespace kv
