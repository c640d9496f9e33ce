// Wrong bytes in slots and in the format file, one by one: each is a miss or refused, never served.
// disk_damage_test.cc damages every file at random.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/file_descriptor.h"

namespace kv {
namespace {

// Through the kernel, so that both ways of reading see it.
void flip_bit(const std::string& path, std::uint64_t offset, unsigned bit) {
  const FileDescriptor file(::open(path.c_str(), O_RDWR));
  std::uint8_t byte = 0;
  ASSERT_EQ(::pread(file.get(), &byte, 1, static_cast<off_t>(offset)), 1) << path;
  byte = static_cast<std::uint8_t>(byte ^ (1U << bit));
  ASSERT_EQ(::pwrite(file.get(), &byte, 1, static_cast<off_t>(offset)), 1) << path;
}

// A small slab: the tests copy whole stores.
DiskStore::Options small_options(const std::string& directory) {
  DiskStore::Options options = options_of(directory);
  options.bytes = kPage * 5 * 12;
  return options;
}

// Blocks in a table file of the index, others in its log.
std::vector<TestBlock> make_store(const std::string& directory, const KvLayout& layout) {
  std::vector<TestBlock> blocks = make_blocks(layout, 12);
  const std::vector<TestBlock> first(blocks.begin(), blocks.begin() + 6);
  const std::vector<TestBlock> second(blocks.begin() + 6, blocks.end());
  EXPECT_TRUE(all_ok(write_blocks(*open_store(small_options(directory), layout), first)));
  EXPECT_TRUE(all_ok(write_blocks(*open_store(small_options(directory), layout), second)));
  return blocks;
}

TEST(DiskCorruption, EveryFlippedBitOfASlotIsFoundWhenItIsRead) {
  for (const KvLayout& layout : {page_layout(), padded_layout(), small_layout()}) {
    const TempDirectory directory(true);
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    const std::vector<TestBlock> blocks = make_blocks(layout, 5);
    ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
    const std::uint64_t slot_bytes = DiskStore::slot_bytes(layout, GroupId(0));
    const std::uint64_t payload_bytes = blocks[0].payload.size();
    Prng prng(payload_bytes);
    for (int flip = 0; flip < 200; ++flip) {
      const auto slot = static_cast<std::uint32_t>(prng.below(blocks.size()));
      const std::uint64_t offset = prng.below(slot_bytes);
      flip_bit(directory / "store/slab.0.0", slot * slot_bytes + offset,
               static_cast<unsigned>(prng.below(8)));
      // Of the padding only the trailer, its last 64 bytes, means anything.
      const bool matters = offset < payload_bytes || offset >= slot_bytes - 64;
      ASSERT_EQ(read_block(*store, blocks[slot]), matters ? ErrorCode::corrupt : ErrorCode::ok)
          << "byte " << offset << " of " << slot_bytes;
      ASSERT_EQ(write_block(*store, blocks[slot]), ErrorCode::ok);
    }
    for (const TestBlock& block : blocks) EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
  }
}

TEST(DiskCorruption, EveryFlippedBitOfTheFormatFileIsRefused) {
  const TempDirectory directory(true);
  const KvLayout layout = page_layout();
  open_store(options_of(directory / "store"), layout);
  const std::string path = directory / "store/format";
  const std::uint64_t bits = std::filesystem::file_size(path) * 8;
  for (std::uint64_t bit = 0; bit < bits; ++bit) {
    flip_bit(path, bit / 8, static_cast<unsigned>(bit % 8));
    const auto peeked = DiskStore::peek(directory / "store");
    ASSERT_FALSE(peeked.has_value()) << "bit " << bit;
    ASSERT_EQ(peeked.error().code, ErrorCode::corrupt) << "bit " << bit;
    ASSERT_FALSE(DiskStore::open(options_of(directory / "store"), layout).has_value());
    flip_bit(path, bit / 8, static_cast<unsigned>(bit % 8));
  }
  EXPECT_TRUE(DiskStore::open(options_of(directory / "store"), layout).has_value());
}

TEST(DiskCorruption, ASlabFileThatIsGoneIsAMissOnceAndForgotten) {
  const TempDirectory directory;
  const KvLayout layout = small_layout();
  const std::vector<TestBlock> blocks = make_store(directory / "store", layout);
  std::filesystem::remove(directory / "store/slab.0.0");
  {
    const std::unique_ptr<DiskStore> store = open_store(small_options(directory / "store"), layout);
    ASSERT_EQ(scan_all(*store).size(), blocks.size());
    EXPECT_EQ(read_block(*store, blocks[1]), ErrorCode::corrupt);
    EXPECT_EQ(store->counters().corrupt_blocks, 1U);
  }
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  EXPECT_EQ(scan_all(*store).size(), blocks.size() - 1) << "the block that was read is forgotten";
  EXPECT_EQ(write_block(*store, blocks[1]), ErrorCode::ok);
  EXPECT_EQ(read_block(*store, blocks[1]), ErrorCode::ok);
}

// SCENARIOS REC-05: two records swapped
TEST(DiskCorruption, TwoSlotsThatWereSwappedAreBothMisses) {
  const TempDirectory directory;
  const KvLayout layout = padded_layout();
  const std::vector<TestBlock> blocks = make_store(directory / "store", layout);
  {
    const FileDescriptor slab(::open((directory / "store/slab.0.0").c_str(), O_RDWR));
    std::vector<std::byte> first(kPage), second(kPage);
    ASSERT_EQ(::pread(slab.get(), first.data(), kPage, 0), static_cast<ssize_t>(kPage));
    ASSERT_EQ(::pread(slab.get(), second.data(), kPage, kPage), static_cast<ssize_t>(kPage));
    ASSERT_EQ(::pwrite(slab.get(), second.data(), kPage, 0), static_cast<ssize_t>(kPage));
    ASSERT_EQ(::pwrite(slab.get(), first.data(), kPage, kPage), static_cast<ssize_t>(kPage));
  }
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  EXPECT_EQ(read_block(*store, blocks[0]), ErrorCode::corrupt);
  EXPECT_EQ(read_block(*store, blocks[1]), ErrorCode::corrupt);
  EXPECT_EQ(read_block(*store, blocks[2]), ErrorCode::ok);
}

TEST(DiskCorruption, EqualBytesOfAnotherBlockAreStillAMissWhereTheSlotHasATrailer) {
  const TempDirectory directory;
  const KvLayout layout = padded_layout();
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  // The same payload, so the same checksum, under two keys: only the trailer tells them apart.
  const TestBlock first = make_block(layout, 0, 1);
  TestBlock second = first;
  second.identity.slot = SlotId(1);
  second.identity.key = digest_of(99);
  ASSERT_TRUE(all_ok(write_blocks(*store, {first, second})));
  const FileDescriptor slab(::open((directory / "store/slab.0.0").c_str(), O_RDWR));
  std::vector<std::byte> page(kPage);
  ASSERT_EQ(::pread(slab.get(), page.data(), kPage, 0), static_cast<ssize_t>(kPage));
  ASSERT_EQ(::pwrite(slab.get(), page.data(), kPage, kPage), static_cast<ssize_t>(kPage));
  EXPECT_EQ(read_block(*store, first), ErrorCode::ok);
  EXPECT_EQ(read_block(*store, second), ErrorCode::corrupt);
}

}  // namespace
}  // namespace kv
