#include "tiering/stores/host_arena.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tiering/stores/file_descriptor.h"

namespace kv {
namespace {

constexpr std::uint64_t kPage = 4096;

HostArena arena_of(std::uint64_t bytes, bool populate = false) {
  Result<HostArena> arena = HostArena::make({.bytes = bytes, .populate = populate});
  EXPECT_TRUE(arena.has_value());
  return std::move(arena).value();
}

TEST(HostArena, RoundsUpToWholePagesAndIsZeroAtFirst) {
  const HostArena arena = arena_of(kPage + 1);
  EXPECT_GE(arena.bytes().size(), kPage + 1);
  EXPECT_EQ(arena.bytes().size() % kPage, 0U);
  for (const std::byte byte : arena.bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST(HostArena, OfZeroBytesIsInvalid) {
  const Result<HostArena> arena = HostArena::make({.bytes = 0});
  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().code, ErrorCode::invalid);
  EXPECT_EQ(arena.error().field, "bytes");
}

TEST(HostArena, LargerThanAnyMachineIsExhausted) {
  const Result<HostArena> arena = HostArena::make({.bytes = std::uint64_t{1} << 62U});
  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().code, ErrorCode::exhausted);
}

TEST(HostArena, FallsBackToSmallPagesWhenHugePagesAreNotThere) {
  // More than any test machine has reserved as huge pages, and never touched.
  const HostArena arena = arena_of(std::uint64_t{3} << 30U);
  arena.bytes().back() = std::byte{42};
  EXPECT_EQ(arena.bytes().back(), std::byte{42});
  struct stat status{};
  ASSERT_EQ(::fstat(arena.descriptor(), &status), 0);
  EXPECT_EQ(arena.is_huge(), status.st_blksize > static_cast<blksize_t>(kPage));
}

TEST(HostArena, CanNeitherShrinkNorGrow) {
  const HostArena arena = arena_of(8 * kPage);
  EXPECT_EQ(::ftruncate(arena.descriptor(), static_cast<off_t>(kPage)), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(arena.descriptor(), static_cast<off_t>(64 * kPage << 10U)), -1);
  EXPECT_EQ(errno, EPERM);
  const int seals = ::fcntl(arena.descriptor(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST(HostArena, PopulatedMemoryIsResidentAtOnce) {
  const HostArena arena = arena_of(64 * kPage, true);
  struct stat status{};
  ASSERT_EQ(::fstat(arena.descriptor(), &status), 0);
  EXPECT_GE(static_cast<std::uint64_t>(status.st_blocks) * 512, arena.bytes().size());
}

TEST(HostArena, KeepsItsMemoryWhenMoved) {
  HostArena first = arena_of(kPage);
  std::byte* const base = first.bytes().data();
  base[7] = std::byte{9};
  HostArena second = std::move(first);
  EXPECT_EQ(second.bytes().data(), base);
  HostArena third = arena_of(2 * kPage);
  third = std::move(second);
  ASSERT_EQ(third.bytes().data(), base);
  EXPECT_EQ(third.bytes()[7], std::byte{9});
}

TEST(MappedArena, SeesWhatTheOwnerWritesAndTheOwnerSeesItsWrites) {
  const HostArena arena = arena_of(4 * kPage);
  const Result<MappedArena> mapped = MappedArena::map(arena.descriptor(), 4 * kPage, true);
  ASSERT_TRUE(mapped.has_value());
  arena.bytes()[5] = std::byte{17};
  EXPECT_EQ(mapped->bytes()[5], std::byte{17});
  mapped->bytes()[4 * kPage - 1] = std::byte{99};
  EXPECT_EQ(arena.bytes()[4 * kPage - 1], std::byte{99});
}

TEST(MappedArena, OutlivesTheOwner) {
  Result<MappedArena> mapped = Error{ErrorCode::not_found, "", {}};
  {
    const HostArena arena = arena_of(kPage);
    arena.bytes()[0] = std::byte{3};
    mapped = MappedArena::map(arena.descriptor(), kPage, false);
  }
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->bytes()[0], std::byte{3});
}

TEST(MappedArena, OfAReadOnlyDescriptorCannotBeWritable) {
  const HostArena arena = arena_of(kPage);
  const Result<int> reopened = arena.read_only_descriptor();
  ASSERT_TRUE(reopened.has_value());
  const FileDescriptor descriptor(*reopened);
  EXPECT_EQ(::fcntl(descriptor.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_TRUE(MappedArena::map(descriptor.get(), kPage, false).has_value());
  const Result<MappedArena> writable = MappedArena::map(descriptor.get(), kPage, true);
  ASSERT_FALSE(writable.has_value());
  EXPECT_EQ(writable.error().code, ErrorCode::invalid);
}

TEST(MappedArena, LargerThanTheFileIsInvalid) {
  const HostArena arena = arena_of(kPage);
  const Result<MappedArena> mapped =
      MappedArena::map(arena.descriptor(), arena.bytes().size() + 1, false);
  ASSERT_FALSE(mapped.has_value());
  EXPECT_EQ(mapped.error().code, ErrorCode::invalid);
  EXPECT_EQ(mapped.error().field, "bytes");
}

// A descriptor that leads to the same memory, by whatever way a client of the same user finds.
FileDescriptor reopen_for_writing(int descriptor) {
  EXPECT_EQ(::fchmod(descriptor, S_IRUSR | S_IWUSR), 0);
  return FileDescriptor(::open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDWR));
}

TEST(HostArena, OfASoleWriterCannotBeWrittenByOthersWhateverTheyReopen) {
  Result<HostArena> made =
      HostArena::make({.bytes = 1U << 20U, .huge_pages = false, .sole_writer = true});
  ASSERT_TRUE(made.has_value());
  if (!made->is_write_sealed()) GTEST_SKIP() << "this kernel has no such seal";
  const Result<int> given = made->read_only_descriptor();
  ASSERT_TRUE(given.has_value());
  const FileDescriptor reader(*given);
  const FileDescriptor writer = reopen_for_writing(reader.get());
  ASSERT_TRUE(writer.is_open());
  EXPECT_EQ(::mmap(nullptr, 4'096, PROT_READ | PROT_WRITE, MAP_SHARED, writer.get(), 0),
            MAP_FAILED);
  EXPECT_EQ(::pwrite(writer.get(), "evil", 4, 0), -1);
  // The owner still writes, and others read what it wrote.
  made->bytes()[5] = std::byte{42};
  const Result<MappedArena> mapped = MappedArena::map(reader.get(), 1U << 20U, false);
  ASSERT_TRUE(mapped.has_value());
  EXPECT_EQ(mapped->bytes()[5], std::byte{42});
  EXPECT_EQ(mapped->bytes()[0], std::byte{0});
}

TEST(HostArena, OfManyWritersCanBeMappedForWriting) {
  Result<HostArena> made = HostArena::make({.bytes = 1U << 20U, .huge_pages = false});
  ASSERT_TRUE(made.has_value());
  EXPECT_FALSE(made->is_write_sealed());
  EXPECT_TRUE(MappedArena::map(made->descriptor(), 1U << 20U, true).has_value());
}

TEST(MappedArena, OfAnUnsealedFileIsInvalid) {
  const FileDescriptor memory(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), static_cast<off_t>(kPage)), 0);
  const Result<MappedArena> mapped = MappedArena::map(memory.get(), kPage, false);
  ASSERT_FALSE(mapped.has_value());
  EXPECT_EQ(mapped.error().code, ErrorCode::invalid);
  EXPECT_EQ(mapped.error().field, "descriptor");
  EXPECT_FALSE(MappedArena::map(-1, kPage, false).has_value());
}

}  // namespace
}  // namespace kv
