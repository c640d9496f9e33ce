// Names of a store's own files that are something else: nothing behind a symlink is touched, and
// nothing waits at a FIFO (the test would hang).
#include "tiering/stores/plain_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"

namespace kv {
namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PlainFile : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(write_block(*open_store(options_of(store_), layout_), block_), ErrorCode::ok);
    std::ofstream(victim_) << precious_;
  }
  void replace_by_a_symlink(const std::string& name) {
    std::filesystem::remove(store_ + name);
    std::filesystem::create_symlink(victim_, store_ + name);
  }
  void replace_by_a_fifo(const std::string& name) {
    std::filesystem::remove(store_ + name);
    ASSERT_EQ(::mkfifo((store_ + name).c_str(), S_IRUSR | S_IWUSR), 0);
  }
  [[nodiscard]] ErrorCode open_code() const {
    const auto opened = DiskStore::open(options_of(store_), layout_);
    return opened ? ErrorCode::ok : opened.error().code;
  }

  TempDirectory directory_;
  std::string store_ = directory_ / "store";
  std::string victim_ = directory_ / "victim";
  std::string precious_ = std::string(100'000, 'p');
  KvLayout layout_ = page_layout();
  TestBlock block_ = make_block(layout_, 0, 1);
};

TEST_F(PlainFile, BehindASymlinkInThePlaceOfASlabFileStaysAsItIs) {
  replace_by_a_symlink("/slab.0.0");
  EXPECT_EQ(open_code(), ErrorCode::unavailable);
  EXPECT_EQ(bytes_of(victim_), precious_);
  // A smaller budget, so that the file would be shortened.
  DiskStore::Options smaller = options_of(store_);
  smaller.bytes = kPage;
  EXPECT_FALSE(DiskStore::open(smaller, layout_).has_value());
  EXPECT_EQ(bytes_of(victim_), precious_);
}

TEST_F(PlainFile, BehindASymlinkThatComesUnderARunningStoreStaysAsItIs) {
  std::filesystem::remove(store_ + "/slab.0.0");
  const std::unique_ptr<DiskStore> store = open_store(options_of(store_), layout_);
  ASSERT_NE(store, nullptr);
  replace_by_a_symlink("/slab.0.0");
  EXPECT_EQ(write_block(*store, make_block(layout_, 1, 1)), ErrorCode::unavailable);
  EXPECT_EQ(bytes_of(victim_), precious_);
}

TEST_F(PlainFile, IsWhatFormatAndLockMustBe) {
  for (const char* const name : {"/format", "/lock"}) {
    SCOPED_TRACE(name);
    replace_by_a_symlink(name);
    EXPECT_EQ(open_code(), ErrorCode::unavailable);
    replace_by_a_fifo(name);
    EXPECT_EQ(open_code(), ErrorCode::unavailable);
    EXPECT_EQ(bytes_of(victim_), precious_);
  }
}

TEST_F(PlainFile, AFifoAsFormatIsToldAtOnceToWhoLooksAtTheDirectory) {
  replace_by_a_fifo("/format");
  const auto peeked = DiskStore::peek(store_);
  ASSERT_FALSE(peeked.has_value());
  EXPECT_EQ(peeked.error().code, ErrorCode::unavailable);
}

TEST_F(PlainFile, AFifoOrASymlinkInTheIndexIsDamageToIt) {
  for (const bool is_fifo : {true, false}) {
    SCOPED_TRACE(is_fifo);
    if (is_fifo) {
      replace_by_a_fifo("/index/CURRENT");
    } else {
      replace_by_a_symlink("/index/CURRENT");
    }
    const std::unique_ptr<DiskStore> store = open_store(options_of(store_), layout_);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->counters().damaged_indexes, 1U);
    EXPECT_EQ(write_block(*store, block_), ErrorCode::ok);
  }
  EXPECT_EQ(bytes_of(victim_), precious_);
}

TEST_F(PlainFile, AsTheMarkOfAnOpeningIsNotNeededToServe) {
  std::filesystem::create_symlink(victim_, store_ + "/opening");
  const std::unique_ptr<DiskStore> store = open_store(options_of(store_), layout_);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(read_block(*store, block_), ErrorCode::ok);
  EXPECT_EQ(bytes_of(victim_), precious_);
}

// io_uring takes O_NONBLOCK as a wish to fail rather than to wait.
TEST_F(PlainFile, IsOpenedToBeWaitedFor) {
  const FileDescriptor file = open_plain_file(store_ + "/slab.0.0", O_RDWR);
  ASSERT_TRUE(file.is_open());
  EXPECT_EQ(::fcntl(file.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(file.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(open_plain_file(store_, O_RDONLY).is_open());
  EXPECT_EQ(errno, EISDIR);
}

}  // namespace
}  // namespace kv
