#include "tiering/stores/disk_store.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/tiering/stores/store_support.h"

namespace kv {
namespace {

struct SizeCase {
  const char* name;
  KvLayout (*layout)();
  std::uint64_t slot_bytes;  // by hand
};
class DiskStoreSizes : public testing::TestWithParam<std::tuple<SizeCase, DiskStore::Io>> {
 protected:
  // Null, with the reason printed, where this machine refuses io_uring or O_DIRECT.
  std::unique_ptr<DiskStore> open_here() {
    DiskStore::Options options = options_of(directory_ / "store");
    options.io = std::get<1>(GetParam());
    Result<std::unique_ptr<DiskStore>> store = DiskStore::open(options, layout_);
    if (store) return std::move(store).value();
    reason_ = store.error().reason;
    EXPECT_EQ(options.io, DiskStore::Io::io_uring_direct) << reason_;
    return nullptr;
  }
  TempDirectory directory_;
  KvLayout layout_ = std::get<0>(GetParam()).layout();
  std::string reason_;
};

TEST_P(DiskStoreSizes, GivesBackWhatWasWrittenAlsoAfterReopening) {
  std::unique_ptr<DiskStore> store = open_here();
  if (store == nullptr) GTEST_SKIP() << "not on this machine: " << reason_;
  EXPECT_EQ(store->io(), std::get<1>(GetParam()));
  EXPECT_EQ(DiskStore::slot_bytes(layout_, GroupId(0)), std::get<0>(GetParam()).slot_bytes);
  std::vector<TestBlock> blocks;
  std::uint32_t slot = 0;
  for (const std::uint32_t count : {1U, 2U, 31U, 64U, 200U}) {
    std::vector<TestBlock> batch;
    for (std::uint32_t i = 0; i < count; ++i, ++slot) {
      batch.push_back(make_block(layout_, slot, 5, slot % 7));
    }
    ASSERT_TRUE(all_ok(write_blocks(*store, batch))) << count;
    const ReadBack back = read_blocks(*store, batch);
    ASSERT_TRUE(all_ok(back.outcomes)) << count;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      ASSERT_EQ(back.payloads[i], batch[i].payload) << "block " << i << " of " << count;
    }
    blocks.insert(blocks.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(store->counters().written_blocks, 298U);
  EXPECT_EQ(store->counters().read_blocks, 298U);
  store.reset();
  store = open_here();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(scan_all(*store).size(), 298U);
  for (const TestBlock& block : blocks) ASSERT_EQ(read_block(*store, block), ErrorCode::ok);
}

std::string case_name(const testing::TestParamInfo<DiskStoreSizes::ParamType>& parameters) {
  const bool ring = std::get<1>(parameters.param) == DiskStore::Io::io_uring_direct;
  return std::string(std::get<0>(parameters.param).name) + (ring ? "OnIoUring" : "OnPlainIo");
}
INSTANTIATE_TEST_SUITE_P(
    Sizes, DiskStoreSizes,
    testing::Combine(testing::Values(SizeCase{"Small", small_layout, 20'480},
                                     SizeCase{"OnePage", page_layout, 4'096},
                                     SizeCase{"Large", large_layout, 102'400},
                                     SizeCase{"WithTrailer", padded_layout, 4'096},
                                     SizeCase{"PaddedWithoutTrailer", tight_layout, 4'096}),
                     testing::Values(DiskStore::Io::io_uring_direct, DiskStore::Io::plain)),
    case_name);

TEST(DiskStore, MovesAlignedPayloadsInPlaceAndOthersThroughACopyAlike) {
  const TempDirectory directory;
  const KvLayout layout = small_layout();
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  const TestBlock block = make_block(layout, 0, 1);
  std::vector<std::byte> memory(block.payload.size() + 8192);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(memory.data()) % 4096;
  for (const std::size_t shift : {std::size_t{4096} - misaligned, std::size_t{4097} - misaligned}) {
    const std::span<std::byte> payload = std::span(memory).subspan(shift, block.payload.size());
    std::ranges::copy(block.payload, payload.begin());
    const BlobWrite write = {
        .identity = block.identity, .tokens = block.tokens, .payload = payload};
    ErrorCode outcome = ErrorCode::invalid;
    store->write({&write, 1}, {&outcome, 1});
    ASSERT_EQ(outcome, ErrorCode::ok);
    std::ranges::fill(payload, std::byte{0xEE});
    const BlobRead read = {.identity = block.identity, .payload = payload};
    store->read({&read, 1}, {&outcome, 1});
    ASSERT_EQ(outcome, ErrorCode::ok);
    ASSERT_TRUE(std::ranges::equal(payload, block.payload));
  }
}

TEST(DiskStore, ScansParentsBeforeChildrenWithEveryField) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  std::map<std::uint32_t, TestBlock> by_slot;
  {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    std::vector<TestBlock> blocks;
    for (std::uint32_t slot = 0; slot < 150; ++slot) {
      // Depths above 255 and 65,535 would sort wrong as little endian.
      const std::uint32_t depth = slot * 977 % 70'000;
      blocks.push_back(make_block(layout, slot, slot + 9, depth));
      by_slot.emplace(slot, blocks.back());
    }
    ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
    ASSERT_TRUE(store->sync().has_value());
    EXPECT_TRUE(scan_all(*store).empty()) << "what this run wrote is no news to it";
  }
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  const std::vector<BlobStore::Scanned> entries = scan_all(*store, 7);
  ASSERT_EQ(entries.size(), by_slot.size());
  std::uint32_t depth = 0;
  for (const BlobStore::Scanned& entry : entries) {
    EXPECT_GE(entry.identity.depth, depth);
    depth = entry.identity.depth;
    const auto found = by_slot.find(entry.identity.slot.value);
    ASSERT_NE(found, by_slot.end());
    EXPECT_TRUE(same_identity(entry.identity, found->second.identity));
    EXPECT_EQ(entry.tokens, found->second.tokens);
    by_slot.erase(found);
  }
  EXPECT_TRUE(by_slot.empty());
}

TEST(DiskStore, ReadsNothingButTheGenerationAndKeyThatAreInTheSlot) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  const TestBlock block = make_block(layout, 3, 7);
  ASSERT_EQ(write_block(*store, block), ErrorCode::ok);
  TestBlock other = block;
  other.identity.generation = 8;
  EXPECT_EQ(read_block(*store, other), ErrorCode::corrupt);
  other = block;
  other.identity.key = digest_of(12345);
  EXPECT_EQ(read_block(*store, other), ErrorCode::corrupt);
  other = block;
  other.identity.slot = SlotId(4);
  EXPECT_EQ(read_block(*store, other), ErrorCode::corrupt);
  EXPECT_EQ(store->counters().corrupt_blocks, 3U);
  EXPECT_EQ(read_block(*store, block), ErrorCode::ok);
}

TEST(DiskStore, ReusesASlotAfterItsBlockWasErased) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  const TestBlock first = make_block(layout, 2, 1);
  const TestBlock second = make_block(layout, 2, 2);
  {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    ASSERT_EQ(write_block(*store, first), ErrorCode::ok);
    const BlobErase erase = first.to_erase();
    store->erase({&erase, 1});
    EXPECT_EQ(read_block(*store, first), ErrorCode::corrupt);
    ASSERT_EQ(write_block(*store, second), ErrorCode::ok);
    store->erase({&erase, 1});  // repeated late: names the old block, so nothing happens
    EXPECT_EQ(read_block(*store, second), ErrorCode::ok);
    EXPECT_EQ(store->counters().erased_blocks, 1U);
  }
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  const std::vector<BlobStore::Scanned> entries = scan_all(*store);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(same_identity(entries[0].identity, second.identity));
}

TEST(DiskStore, OverwritingASlotRemovesTheEntryOfItsOldBlock) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    ASSERT_EQ(write_block(*store, make_block(layout, 2, 1)), ErrorCode::ok);
    ASSERT_EQ(write_block(*store, make_block(layout, 2, 2)), ErrorCode::ok);
  }
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  const std::vector<BlobStore::Scanned> entries = scan_all(*store);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].identity.generation, 2U);
}

TEST(DiskStore, ErasingTheOldPlaceOfAMovedBlockKeepsTheNewOne) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  const TestBlock here = make_block(layout, 1, 1);
  TestBlock there = here;
  there.identity.slot = SlotId(9);
  there.identity.generation = 4;
  {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    ASSERT_EQ(write_block(*store, here), ErrorCode::ok);
    ASSERT_EQ(write_block(*store, there), ErrorCode::ok);
    const BlobErase erase = here.to_erase();
    store->erase({&erase, 1});
    EXPECT_EQ(read_block(*store, there), ErrorCode::ok);
  }
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  const std::vector<BlobStore::Scanned> entries = scan_all(*store);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].identity.slot, SlotId(9));
  EXPECT_EQ(read_block(*store, there), ErrorCode::ok);
}

TEST(DiskStore, RefusesAPayloadThatDoesNotHaveItsChecksum) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  TestBlock block = make_block(layout, 0, 1);
  block.payload[100] ^= std::byte{1};
  const TestBlock good = make_block(layout, 1, 1);
  EXPECT_EQ(write_blocks(*store, {block, good}),
            (std::vector<ErrorCode>{ErrorCode::corrupt, ErrorCode::ok}));
  EXPECT_EQ(store->counters().failed_writes, 1U);
  EXPECT_EQ(read_block(*store, block), ErrorCode::corrupt);
  EXPECT_EQ(read_block(*store, good), ErrorCode::ok);
}

TEST(DiskStore, HasAsManySlotsAsTheBudgetAllows) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  DiskStore::Options options = options_of(directory / "store");
  options.bytes = 10 * kPage + 4095;
  const std::unique_ptr<DiskStore> store = open_store(options, layout);
  EXPECT_EQ(write_block(*store, make_block(layout, 9, 1)), ErrorCode::ok);
  EXPECT_EQ(write_block(*store, make_block(layout, 10, 1)), ErrorCode::exhausted);
  EXPECT_EQ(read_block(*store, make_block(layout, 10, 1)), ErrorCode::corrupt);
  EXPECT_LE(std::filesystem::file_size(directory / "store/slab.0.0"), 10U * 4096U);
}

TEST(DiskStore, SpreadsSlotsOverFilesAndKeepsTheirSizeWhenReopenedWithAnother) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  DiskStore::Options options = options_of(directory / "store");
  options.bytes = 40 * kPage;
  options.slab_bytes_max = 16 * kPage;
  const std::vector<TestBlock> blocks = make_blocks(layout, 40);
  {
    const std::unique_ptr<DiskStore> store = open_store(options, layout);
    ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
  }
  EXPECT_EQ(std::filesystem::file_size(directory / "store/slab.0.0"), 16U * 4096U);
  EXPECT_EQ(std::filesystem::file_size(directory / "store/slab.0.1"), 16U * 4096U);
  EXPECT_EQ(std::filesystem::file_size(directory / "store/slab.0.2"), 8U * 4096U);
  options.slab_bytes_max = 4 * kPage;
  const std::unique_ptr<DiskStore> store = open_store(options, layout);
  for (const TestBlock& block : blocks) ASSERT_EQ(read_block(*store, block), ErrorCode::ok);
}

TEST(DiskStore, ReopenedWithASmallerBudgetGivesTheRestBack) {
  const TempDirectory directory;
  const KvLayout layout = page_layout();
  DiskStore::Options options = options_of(directory / "store");
  options.bytes = 40 * kPage;
  options.slab_bytes_max = 16 * kPage;
  const std::vector<TestBlock> blocks = make_blocks(layout, 40);
  {
    const std::unique_ptr<DiskStore> store = open_store(options, layout);
    ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
  }
  options.bytes = 20 * kPage;
  for (const std::uint64_t dropped : {20U, 0U}) {
    const std::unique_ptr<DiskStore> store = open_store(options, layout);
    EXPECT_EQ(scan_all(*store).size(), 20U);
    EXPECT_EQ(store->counters().out_of_budget_entries, dropped);
    EXPECT_EQ(store->counters().damaged_entries, 0U);
    EXPECT_EQ(read_block(*store, blocks[19]), ErrorCode::ok);
  }
  EXPECT_EQ(std::filesystem::file_size(directory / "store/slab.0.1"), 4U * 4096U);
  EXPECT_FALSE(std::filesystem::exists(directory / "store/slab.0.2"));
}

TEST(DiskStore, KeepsTheGroupsOfALayoutApart) {
  const TempDirectory directory;
  KvLayout layout = small_layout();
  layout.groups.push_back(page_layout().groups[0]);
  std::vector<TestBlock> blocks;
  for (std::uint32_t slot = 0; slot < 8; ++slot) {
    blocks.push_back(make_block(layout, slot, 1, slot, 0));
    blocks.push_back(make_block(layout, slot, 1, slot, 1));
  }
  {
    const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
    ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
  }
  const std::unique_ptr<DiskStore> store = open_store(options_of(directory / "store"), layout);
  EXPECT_EQ(scan_all(*store).size(), 16U);
  for (const TestBlock& block : blocks) ASSERT_EQ(read_block(*store, block), ErrorCode::ok);
}

TEST(DiskStore, HoldsExactlyWhatAModelHoldsAfterRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const TempDirectory directory;
    const KvLayout layout = seed % 2 == 0 ? page_layout() : padded_layout();
    DiskStore::Options options = options_of(directory / "store");
    options.slab_bytes_max = 10 * kPage;
    options.io = seed % 3 == 0 ? DiskStore::Io::plain : DiskStore::Io::automatic;
    std::unique_ptr<DiskStore> store = open_store(options, layout);
    std::map<std::uint32_t, TestBlock> model;  // by slot
    Prng prng(seed);
    std::uint32_t generation = 0;
    for (int step = 0; step < 150; ++step) {
      const std::uint64_t kind = prng.below(20);
      if (kind == 0) {
        store.reset();
        store = open_store(options, layout);
        ASSERT_EQ(scan_all(*store, 5).size(), model.size());
      } else if (kind < 7 && !model.empty()) {
        const auto chosen = std::next(model.begin(), static_cast<int>(prng.below(model.size())));
        const BlobErase erase = chosen->second.to_erase();
        store->erase({&erase, 1});
        model.erase(chosen);
      } else if (kind < 15) {
        std::map<std::uint32_t, TestBlock> batch;
        for (std::uint64_t i = prng.below(6); i < 6; ++i) {
          const auto slot = static_cast<std::uint32_t>(prng.below(60));
          batch.insert_or_assign(slot, make_block(layout, slot, ++generation,
                                                  static_cast<std::uint32_t>(prng.below(300))));
        }
        std::vector<TestBlock> blocks;
        for (const auto& [slot, block] : batch) {
          blocks.push_back(block);
          model.insert_or_assign(slot, block);
        }
        ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
      } else {
        for (const auto& [slot, block] : model) {
          ASSERT_EQ(read_block(*store, block), ErrorCode::ok) << "slot " << slot;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kv
