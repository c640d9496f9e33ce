// What the disk store may take of the disk, and files and directories that vanish under it.
#include <cerrno>
#include <filesystem>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/tiering/stores/fault_io.h"
#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/disk_store_seams.h"

namespace kv {
namespace {

// Bytes that the slab files really take.
std::uint64_t bytes_on_disk(const std::string& directory) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with("slab.")) continue;
    struct stat status{};
    EXPECT_EQ(::stat(entry.path().c_str(), &status), 0);
    bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

// SCENARIOS LEAK-26: entries with two parts
TEST(DiskLimits, TheBudgetIsThatOfAllLayerGroupsTogether) {
  const TempDirectory directory;
  KvLayout layout = page_layout();
  layout.groups.push_back(layout.groups[0]);
  DiskStore::Options options = options_of(directory / "store");
  options.bytes = 10 * kPage;
  const std::unique_ptr<DiskStore> store = open_store(options, layout);
  std::uint32_t stored = 0;
  for (std::uint32_t slot = 0; slot < 10; ++slot) {
    const std::vector<TestBlock> parts = {make_block(layout, slot, 1, 0, 0),
                                          make_block(layout, slot, 1, 0, 1)};
    const std::vector<ErrorCode> outcomes = write_blocks(*store, parts);
    EXPECT_EQ(outcomes[0], outcomes[1]);
    if (all_ok(outcomes)) {
      ++stored;
    } else {
      EXPECT_EQ(outcomes[0], ErrorCode::exhausted);
    }
  }
  EXPECT_EQ(stored, 5U);
  EXPECT_LE(bytes_on_disk(directory / "store"), 10 * kPage);
}

class VanishingFiles : public testing::Test {
 protected:
  // Each slot in a file of its own.
  std::unique_ptr<DiskStore> open_here() {
    DiskStore::Options options = options_of(directory_ / "store");
    options.slab_bytes_max = kPage;
    Result<std::unique_ptr<DiskStore>> store = DiskStore::open(options, layout_, seams_of(plan_));
    EXPECT_TRUE(store.has_value()) << store.error().reason;
    return store ? std::move(store).value() : nullptr;
  }
  TempDirectory directory_;
  KvLayout layout_ = page_layout();
  FaultPlan plan_;
};

// SCENARIOS REC-08
TEST_F(VanishingFiles, ABlockWhoseFileIsGoneIsForgottenAtTheFirstRead) {
  const std::vector<TestBlock> blocks = make_blocks(layout_, 3);
  ASSERT_TRUE(all_ok(write_blocks(*open_here(), blocks)));
  std::filesystem::remove(directory_ / "store/slab.0.1");
  std::unique_ptr<DiskStore> store = open_here();
  ASSERT_EQ(scan_all(*store).size(), 3U) << "promised";
  const std::vector<ErrorCode> expected = {ErrorCode::ok, ErrorCode::corrupt, ErrorCode::ok};
  EXPECT_EQ(read_blocks(*store, blocks).outcomes, expected);
  const std::uint64_t before = plan_.requests;
  EXPECT_EQ(read_block(*store, blocks[1]), ErrorCode::corrupt);
  EXPECT_EQ(plan_.requests, before) << "no further read";
  store.reset();
  EXPECT_EQ(scan_all(*open_here()).size(), 2U);
}

TEST_F(VanishingFiles, NothingIsDurableInADirectoryThatWasRemoved) {
  const std::unique_ptr<DiskStore> store = open_here();
  const std::vector<TestBlock> blocks = make_blocks(layout_, 3);
  ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
  ASSERT_TRUE(store->sync().has_value());
  std::filesystem::remove_all(directory_ / "store");
  EXPECT_EQ(store->sync().error().code, ErrorCode::unavailable);
  EXPECT_EQ(write_block(*store, make_block(layout_, 4, 1)), ErrorCode::unavailable);
  // What is open can still be read, and is right.
  EXPECT_NE(read_block(*store, blocks[0]), ErrorCode::invalid);
  // Another directory of this name is not ours.
  std::filesystem::create_directory(directory_ / "store");
  EXPECT_FALSE(store->sync().has_value());
  EXPECT_EQ(write_block(*store, make_block(layout_, 4, 1)), ErrorCode::unavailable);
  EXPECT_TRUE(std::filesystem::is_empty(directory_ / "store"));
}

TEST_F(VanishingFiles, NothingIsDurableInASlabFileThatWasRemoved) {
  const std::unique_ptr<DiskStore> store = open_here();
  ASSERT_TRUE(all_ok(write_blocks(*store, make_blocks(layout_, 3))));
  ASSERT_TRUE(store->sync().has_value());
  std::filesystem::remove(directory_ / "store/slab.0.1");
  EXPECT_EQ(store->sync().error().code, ErrorCode::unavailable);
}

TEST_F(VanishingFiles, AReadOnlyDiskIsAnErrorForEveryWrite) {
  const std::unique_ptr<DiskStore> store = open_here();
  const TestBlock block = make_block(layout_, 0, 1);
  ASSERT_EQ(write_block(*store, block), ErrorCode::ok);
  plan_.request_fault = [](std::uint64_t, const FileRequest& request) {
    return request.kind == FileRequest::Kind::write ? std::optional<std::int64_t>(-EROFS)
                                                    : std::nullopt;
  };
  EXPECT_EQ(write_block(*store, make_block(layout_, 1, 1)), ErrorCode::unavailable);
  EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
}

}  // namespace
}  // namespace kv
