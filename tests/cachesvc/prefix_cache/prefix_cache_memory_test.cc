// Memory of PrefixCache by counted allocation: this program's operator new counts.
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/block_key.h"
#include "cachesvc/core/prefix_cache.h"

namespace {

std::size_t allocations = 0;      // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
std::size_t bytes_allocated = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

// The array forms, too: a sanitizer brings its own, which would not come here.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  bytes_allocated += bytes;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return operator new(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace kv::core {
namespace {

constexpr GroupId kGroup{0};
constexpr std::uint32_t kBlockTokens = 16;

class FilledCache {
 public:
  explicit FilledCache(std::uint32_t slots) : cache_(options(slots)) {
    root_ = cache_.open_root(Digest{}).value();
  }
  PrefixCache& cache() { return cache_; }
  static std::uint64_t bytes_max(std::uint32_t slots) {
    return PrefixCache::bytes_max(options(slots));
  }

  // A prompt of blocks that nobody has; evicts where nothing is free.
  void add_prompt(std::uint32_t block_count) {
    BlockId parent;
    for (std::uint32_t i = 0; i < block_count; ++i) {
      const Token tokens[kBlockTokens] = {static_cast<Token>(number_++)};
      Digest key = next_block_key(Digest{}, tokens);
      if (cache_.pool(Tier::device, kGroup).count(SlotState::free) == 0) {
        cache_.drop_copy(cache_.victim(Tier::device), kGroup, Tier::device);
      }
      const BlockId block =
          cache_.insert_pinned(root_, parent, tokens, key, block_count - 1 - i).value();
      cache_.add_copy(block, kGroup, Tier::device, cache_.take_slot(Tier::device, kGroup).value());
      if (!parent.is_none()) cache_.unpin(parent);
      parent = block;
    }
    cache_.touch(parent);
    cache_.unpin(parent);
  }

 private:
  static PrefixCache::Options options(std::uint32_t slots) {
    PrefixCache::Options options;
    options.layout.block_tokens = kBlockTokens;
    options.layout.groups.resize(1);
    options.slot_count = {slots, 0, 0};
    return options;
  }
  PrefixCache cache_;
  RootId root_;
  std::uint32_t number_ = 0;
};

// Bytes beyond the tokens, for each block of a full cache.
std::uint64_t bytes_per_block(std::uint32_t blocks, std::uint32_t prompt_blocks) {
  const std::size_t before = bytes_allocated;
  FilledCache filled(blocks);
  for (std::uint32_t i = 0; i < blocks; i += prompt_blocks) filled.add_prompt(prompt_blocks);
  EXPECT_EQ(filled.cache().tree().block_count(), blocks);
  const std::size_t counted = bytes_allocated - before;
  // What the cache says of itself is what was allocated, but for a few small vectors.
  EXPECT_NEAR(static_cast<double>(filled.cache().metadata_bytes()), static_cast<double>(counted),
              0.001 * static_cast<double>(counted));
  EXPECT_LE(counted, FilledCache::bytes_max(blocks));
  EXPECT_GE(counted, FilledCache::bytes_max(blocks) / 2);
  return (counted - std::uint64_t{blocks} * kBlockTokens * sizeof(Token)) / blocks;
}

TEST(PrefixCacheMemory, IsAtMost128BytesABlockInLongNodes) {
  EXPECT_LE(bytes_per_block(1U << 19U, 512), 128U);
}

TEST(PrefixCacheMemory, IsAtMost160BytesABlockInOneBlockNodes) {
  EXPECT_LE(bytes_per_block(1U << 19U, 1), 160U);
}

TEST(PrefixCacheMemory, IsNotAllocatedOnceTheCacheIsFull) {
  FilledCache filled(4096);
  for (int i = 0; i < 128; ++i) filled.add_prompt(64);
  const std::size_t before = allocations;
  for (int i = 0; i < 200; ++i) filled.add_prompt(64);
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace kv::core
