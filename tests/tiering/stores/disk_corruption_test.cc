// Flipped bits and cut files: each is a miss, an error or harmless, never wrong bytes and never a
// crash.
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

struct Outcome {
  std::uint64_t right = 0, refused = 0, wrong = 0;
};

// What a service gets from this directory: it opens, scans, and reads what the scan promised.
Outcome serve(const std::string& directory, const KvLayout& layout,
              const std::vector<TestBlock>& blocks) {
  Outcome outcome;
  Result<std::unique_ptr<DiskStore>> store = DiskStore::open(small_options(directory), layout);
  if (!store) {
    outcome.refused = 1;
    return outcome;
  }
  for (const BlobStore::Scanned& entry : scan_all(**store)) {
    const std::uint32_t slot = entry.identity.slot.value;
    const bool known = slot < blocks.size() &&
                       same_identity(entry.identity, blocks[slot].identity) &&
                       entry.tokens == blocks[slot].tokens;
    const ErrorCode code = known ? read_block(**store, blocks[slot]) : ErrorCode::invalid;
    if (code == ErrorCode::ok) ++outcome.right;
    if (code == ErrorCode::invalid) ++outcome.wrong;
  }
  return outcome;
}

std::vector<std::string> files_of(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const bool no_data = name == "LOCK" || name == "lock" || name.starts_with("LOG");
    if (entry.is_regular_file() && !no_data && entry.file_size() > 0) {
      files.push_back(std::filesystem::relative(entry.path(), directory));
    }
  }
  std::ranges::sort(files);
  return files;
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

TEST(DiskCorruption, AFlippedBitAnywhereElseIsAMissOrAnErrorNeverWrongBytes) {
  const TempDirectory directory(true);
  const KvLayout layout = padded_layout();
  const std::vector<TestBlock> blocks = make_store(directory / "store", layout);
  const std::vector<std::string> files = files_of(directory / "store");
  Prng prng(1);
  Outcome sum;
  std::uint64_t harmed = 0;
  constexpr int kFlips = 400;
  for (int flip = 0; flip < kFlips; ++flip) {
    std::filesystem::remove_all(directory / "flipped");
    std::filesystem::copy(directory / "store", directory / "flipped",
                          std::filesystem::copy_options::recursive);
    const std::string& file = files[prng.below(files.size())];
    const std::string path = directory / ("flipped/" + file);
    const std::uint64_t bytes = std::min<std::uint64_t>(std::filesystem::file_size(path), 48 << 10);
    const std::uint64_t offset = prng.below(bytes);
    flip_bit(path, offset, static_cast<unsigned>(prng.below(8)));
    const Outcome outcome = serve(directory / "flipped", layout, blocks);
    ASSERT_EQ(outcome.wrong, 0U) << file << " byte " << offset;
    sum.right += outcome.right;
    sum.refused += outcome.refused;
    harmed += outcome.right < blocks.size() ? 1 : 0;
  }
  RecordProperty("harmed", static_cast<int>(harmed));
  RecordProperty("refused", static_cast<int>(sum.refused));
  // The flips did hit something, and not all damage costs the store.
  EXPECT_GT(harmed, static_cast<std::uint64_t>(kFlips / 10));
  EXPECT_GT(sum.right, static_cast<std::uint64_t>(kFlips) * blocks.size() / 4);
}

TEST(DiskCorruption, AFileCutShortIsAMissOrAnErrorNeverWrongBytes) {
  const TempDirectory directory(true);
  const KvLayout layout = small_layout();
  const std::vector<TestBlock> blocks = make_store(directory / "store", layout);
  for (const std::string& file : files_of(directory / "store")) {
    const std::uint64_t bytes = std::filesystem::file_size(directory / ("store/" + file));
    for (const std::uint64_t left : {std::uint64_t{0}, std::uint64_t{100}, bytes / 2, bytes - 1}) {
      std::filesystem::remove_all(directory / "cut");
      std::filesystem::copy(directory / "store", directory / "cut",
                            std::filesystem::copy_options::recursive);
      std::filesystem::resize_file(directory / ("cut/" + file), std::min(left, bytes));
      const Outcome outcome = serve(directory / "cut", layout, blocks);
      ASSERT_EQ(outcome.wrong, 0U) << file << " cut to " << left;
    }
    std::filesystem::remove_all(directory / "cut");
    std::filesystem::copy(directory / "store", directory / "cut",
                          std::filesystem::copy_options::recursive);
    std::filesystem::remove(directory / ("cut/" + file));
    ASSERT_EQ(serve(directory / "cut", layout, blocks).wrong, 0U) << file << " removed";
  }
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
