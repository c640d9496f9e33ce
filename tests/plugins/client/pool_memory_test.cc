#include "plugins/client/pool_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kv::client {
namespace {

class PoolMemoryTest : public testing::Test {
 protected:
  PoolMemoryTest() : file_(memfd_create("kv-test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(ftruncate(file_, 8'192), 0);
  }
  void TearDown() override { close(file_); }
  void seal() const { ASSERT_EQ(fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK), 0); }

  int file_;
};

TEST_F(PoolMemoryTest, IsTheFilesOwnMemory) {
  seal();
  auto pool = PoolMemory::map(file_, 8'192, true);
  ASSERT_TRUE(pool);
  ASSERT_EQ(pool->bytes().size(), 8'192U);
  pool->bytes()[5'000] = std::byte{0x5A};
  std::byte read{};
  ASSERT_EQ(pread(file_, &read, 1, 5'000), 1);
  EXPECT_EQ(read, std::byte{0x5A});
}

TEST_F(PoolMemoryTest, RefusesAFileThatCouldShrinkUnderIt) {
  EXPECT_EQ(PoolMemory::map(file_, 8'192, true).error().code, ErrorCode::invalid);
}

TEST_F(PoolMemoryTest, RefusesAFileThatIsSmallerThanSaidOrNoMemoryFile) {
  seal();
  EXPECT_EQ(PoolMemory::map(file_, 8'193, true).error().code, ErrorCode::invalid);
  EXPECT_EQ(PoolMemory::map(file_, 0, true).error().code, ErrorCode::invalid);
  EXPECT_EQ(PoolMemory::map(STDIN_FILENO, 1, true).error().code, ErrorCode::invalid);
  EXPECT_EQ(PoolMemory::map(-1, 1, true).error().code, ErrorCode::invalid);
}

TEST_F(PoolMemoryTest, MovesWithoutMappingAgain) {
  seal();
  auto made = PoolMemory::map(file_, 8'192, true);
  ASSERT_TRUE(made);
  const std::byte* base = made->bytes().data();
  PoolMemory moved = std::move(*made);
  EXPECT_EQ(moved.bytes().data(), base);
  PoolMemory assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes().data(), base);
}

}  // namespace
}  // namespace kv::client
