// What the disk store's tests share: folders of their own, layouts of chosen sizes, blocks whose
// every byte follows from a number.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "allocator/base/prng.h"
#include "allocator/kv_layout.h"
#include "tiering/stores/checksum.h"
#include "tiering/stores/disk_store.h"

namespace kv {

class TempDirectory {
 public:
  // `in_memory`: where opening a store a thousand times waits for no disk.
  explicit TempDirectory(bool in_memory = false) {
    static std::atomic<int> count = 0;
    const std::filesystem::path memory = "/dev/shm";
    const bool use_memory = in_memory && ::access(memory.c_str(), W_OK) == 0;
    path_ = (use_memory ? memory : std::filesystem::temp_directory_path()) /
            ("kv_store_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  TempDirectory(TempDirectory&&) = delete;
  TempDirectory& operator=(TempDirectory&&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// One full group with blocks of 16 * layers * heads * (dim_k + dim_v) * 4 bytes.
inline KvLayout layout_of(std::uint32_t layers, std::uint32_t heads, std::uint32_t dim_k,
                          std::uint32_t dim_v, DType dtype = DType::f32) {
  return {.block_tokens = 16,
          .groups = {{.layer_count = layers,
                      .kv_head_count = heads,
                      .head_dim_k = dim_k,
                      .head_dim_v = dim_v,
                      .k_dtype = dtype,
                      .v_dtype = dtype}}};
}
inline KvLayout small_layout() { return layout_of(5, 4, 8, 8); }     // 20,480 bytes, 5 units
inline KvLayout page_layout() { return layout_of(1, 1, 32, 32); }    // 4,096 bytes, one unit
inline KvLayout large_layout() { return layout_of(1, 25, 32, 32); }  // 102,400 bytes, 25 units
inline KvLayout padded_layout() {
  return layout_of(1, 1, 20, 20);
}  // 2,560 bytes: room for a trailer
// 4,064 bytes: padding, but too little for a trailer
inline KvLayout tight_layout() { return layout_of(1, 1, 64, 63, DType::f16); }

struct TestBlock {
  BlobIdentity identity;
  std::vector<Token> tokens;
  std::vector<std::byte> payload;
  [[nodiscard]] BlobWrite to_write() const {
    return {.identity = identity, .tokens = tokens, .payload = payload};
  }
  [[nodiscard]] BlobErase to_erase() const {
    return {.key = identity.key,
            .depth = identity.depth,
            .group = identity.group,
            .slot = identity.slot,
            .generation = identity.generation};
  }
};

inline Digest digest_of(std::uint64_t seed) {
  Prng prng(seed);
  Digest digest;
  for (std::byte& byte : digest.bytes) byte = static_cast<std::byte>(prng.next());
  return digest;
}

// The block of this slot and generation; its contents follow from the two.
inline TestBlock make_block(const KvLayout& layout, std::uint32_t slot, std::uint32_t generation,
                            std::uint32_t depth = 0, std::uint32_t group = 0) {
  const std::uint64_t seed =
      (std::uint64_t{slot} << 32U) ^ (std::uint64_t{generation} << 8U) ^ group;
  TestBlock block;
  block.identity = {.key = digest_of(seed * 3 + 1),
                    .parent_key = digest_of(seed * 3 + 2),
                    .namespace_digest = digest_of(77),
                    .depth = depth,
                    .group = GroupId(group),
                    .slot = SlotId(slot),
                    .generation = generation,
                    .checksum = 0};
  Prng prng(seed);
  for (std::uint32_t i = 0; i < layout.block_tokens; ++i) {
    block.tokens.push_back(static_cast<Token>(prng.below(50'000)));
  }
  block.payload.resize(block_bytes(layout, GroupId(group)));
  for (std::byte& byte : block.payload) byte = static_cast<std::byte>(prng.next() >> 56U);
  block.identity.checksum = crc32c(block.payload);
  return block;
}

// Slots 0 to count - 1 in generation 1, each one deeper.
inline std::vector<TestBlock> make_blocks(const KvLayout& layout, std::uint32_t count) {
  std::vector<TestBlock> blocks;
  blocks.reserve(count);
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    blocks.push_back(make_block(layout, slot, 1, slot));
  }
  return blocks;
}

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::uint64_t kBudget = std::uint64_t{64} << 20U;

inline DiskStore::Options options_of(const std::string& directory) {
  return {.directory = directory, .bytes = kBudget};
}
inline std::unique_ptr<DiskStore> open_store(const DiskStore::Options& options,
                                             const KvLayout& layout) {
  Result<std::unique_ptr<DiskStore>> store = DiskStore::open(options, layout);
  EXPECT_TRUE(store.has_value()) << store.error().reason;
  return store ? std::move(store).value() : nullptr;
}
inline bool all_ok(const std::vector<ErrorCode>& outcomes) {
  return std::ranges::all_of(outcomes, [](ErrorCode code) { return code == ErrorCode::ok; });
}

inline std::vector<ErrorCode> write_blocks(BlobStore& store, const std::vector<TestBlock>& blocks) {
  std::vector<BlobWrite> writes;
  writes.reserve(blocks.size());
  for (const TestBlock& block : blocks) writes.push_back(block.to_write());
  std::vector<ErrorCode> outcomes(blocks.size(), ErrorCode::invalid);
  store.write(writes, outcomes);
  return outcomes;
}

struct ReadBack {
  std::vector<ErrorCode> outcomes;
  std::vector<std::vector<std::byte>> payloads;
};
inline ReadBack read_blocks(BlobStore& store, const std::vector<TestBlock>& blocks) {
  ReadBack back;
  back.outcomes.assign(blocks.size(), ErrorCode::invalid);
  std::vector<BlobRead> reads;
  back.payloads.reserve(blocks.size());
  reads.reserve(blocks.size());
  for (const TestBlock& block : blocks) back.payloads.emplace_back(block.payload.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    reads.push_back({.identity = blocks[i].identity, .payload = back.payloads[i]});
  }
  store.read(reads, back.outcomes);
  return back;
}
inline ErrorCode write_block(BlobStore& store, const TestBlock& block) {
  return write_blocks(store, {block}).front();
}
// `ok` only when the bytes are right as well; `invalid` for bytes that are wrong and said to be ok.
inline ErrorCode read_block(BlobStore& store, const TestBlock& block) {
  const ReadBack back = read_blocks(store, {block});
  const bool lied =
      back.outcomes.front() == ErrorCode::ok && back.payloads.front() != block.payload;
  return lied ? ErrorCode::invalid : back.outcomes.front();
}

inline std::vector<BlobStore::Scanned> scan_all(BlobStore& store, std::uint32_t limit = 100) {
  std::vector<BlobStore::Scanned> all;
  while (true) {
    auto part = store.scan_next(limit);
    if (!part.has_value() || part->empty()) return all;
    for (BlobStore::Scanned& entry : *part) all.push_back(std::move(entry));
  }
}

inline bool same_identity(const BlobIdentity& a, const BlobIdentity& b) {
  return a.key == b.key && a.parent_key == b.parent_key &&
         a.namespace_digest == b.namespace_digest && a.depth == b.depth && a.group == b.group &&
         a.slot == b.slot && a.generation == b.generation && a.checksum == b.checksum;
}

}  // namespace kv
