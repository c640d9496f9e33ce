// Single flipped bits and cut files, spread over everything that a store keeps. After each, the
// store is opened and everything is read: a block is right or a miss, never wrong, and the tier
// works again. KV_DISK_DAMAGES sets their number (1,000).
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/tiering/stores/lean_environment.h"
#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/disk_store_seams.h"
#include "tiering/stores/file_descriptor.h"

namespace kv {
namespace {

constexpr std::uint32_t kBlocks = 24;
constexpr std::uint64_t kTrailerBytes = 64;

enum class Place : std::uint8_t {
  payload,
  trailer,
  format,
  table,
  log,
  manifest,
  current,
  options
};
constexpr std::array<std::string_view, 8> kPlaceNames = {"payload",     "slot trailer", "format",
                                                         "index table", "index log",    "MANIFEST",
                                                         "CURRENT",     "OPTIONS"};

// Where the bytes of a place lie: its file, and for slabs which part of each slot.
std::string file_of(const std::string& directory, Place place) {
  if (place == Place::payload || place == Place::trailer) return directory + "/slab.0.0";
  if (place == Place::format) return directory + "/format";
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/index")) {
    const std::string name = entry.path().filename();
    const bool wanted = (place == Place::table && name.ends_with(".sst")) ||
                        (place == Place::log && name.ends_with(".log")) ||
                        (place == Place::manifest && name.starts_with("MANIFEST")) ||
                        (place == Place::current && name == "CURRENT") ||
                        (place == Place::options && name.starts_with("OPTIONS"));
    // Of two option files the newer one is read.
    if (wanted && entry.path().string() > found) found = entry.path();
  }
  return found;
}

struct Damage {
  Place place = Place::payload;
  bool cut = false;
  std::uint64_t offset = 0;  // of the byte, or what is left of the file
  unsigned bit = 0;
};

void harm(const Damage& damage, const std::string& path) {
  if (damage.cut) {
    std::filesystem::resize_file(path, damage.offset);
    return;
  }
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  std::uint8_t byte = 0;
  ASSERT_EQ(::pread(file.get(), &byte, 1, static_cast<off_t>(damage.offset)), 1) << path;
  byte = static_cast<std::uint8_t>(byte ^ (1U << damage.bit));
  ASSERT_EQ(::pwrite(file.get(), &byte, 1, static_cast<off_t>(damage.offset)), 1) << path;
}

struct Outcome {
  bool refused = false;    // nothing could be opened
  bool set_aside = false;  // a new index was started
  std::uint64_t wrong = 0;
  std::vector<bool> right = std::vector<bool>(kBlocks);
  [[nodiscard]] std::uint64_t right_count() const {
    return static_cast<std::uint64_t>(std::ranges::count(right, true));
  }
};

struct Split {
  std::uint64_t damages = 0, harmless = 0, some_missed = 0, all_missed = 0, set_aside = 0;
  std::uint64_t refused = 0, blocks_right = 0, blocks_missed = 0;
};

class DiskDamage : public testing::Test {
 protected:
  // Blocks in a table of the index, the others in its log.
  void SetUp() override {
    blocks_ = make_blocks(layout_, kBlocks);
    const std::vector<TestBlock> first(blocks_.begin(), blocks_.begin() + kBlocks / 2);
    const std::vector<TestBlock> second(blocks_.begin() + kBlocks / 2, blocks_.end());
    ASSERT_TRUE(all_ok(write_blocks(*open_store(options(store_), layout_), first)));
    ASSERT_TRUE(all_ok(write_blocks(*open_store(options(store_), layout_), second)));
  }
  static DiskStore::Options options(const std::string& directory) {
    DiskStore::Options options = options_of(directory);
    options.bytes = kPage * (kBlocks + 1);
    return options;
  }
  Damage choose(Place place, bool cut) {
    const std::uint64_t bytes = std::filesystem::file_size(file_of(store_, place));
    Damage damage{.place = place, .cut = cut, .bit = static_cast<unsigned>(prng_.below(8))};
    const std::uint64_t slot = kPage * prng_.below(kBlocks);
    if (place == Place::payload) {
      damage.offset = slot + prng_.below(blocks_[0].payload.size());
    } else if (place == Place::trailer) {
      damage.offset = slot + kPage - kTrailerBytes + prng_.below(kTrailerBytes);
    } else {
      damage.offset = prng_.below(bytes);
    }
    return damage;
  }
  Outcome serve_after(const Damage& damage) {
    std::filesystem::remove_all(damaged_);
    std::filesystem::copy(store_, damaged_, std::filesystem::copy_options::recursive);
    harm(damage, file_of(damaged_, damage.place));
    Outcome outcome;
    Result<std::unique_ptr<DiskStore>> store =
        DiskStore::open(options(damaged_), layout_,
                        DiskStoreSeams{.wrap_io = {}, .index_environment = environment_.get()});
    if (!store) {
      outcome.refused = true;
      return outcome;
    }
    outcome.set_aside = (*store)->counters().damaged_indexes > 0;
    for (const BlobStore::Scanned& entry : scan_all(**store)) {
      const std::uint32_t slot = entry.identity.slot.value;
      const bool known = slot < kBlocks && same_identity(entry.identity, blocks_[slot].identity) &&
                         entry.tokens == blocks_[slot].tokens;
      const ErrorCode code = known ? read_block(**store, blocks_[slot]) : ErrorCode::invalid;
      if (code == ErrorCode::ok) outcome.right[slot] = true;
      if (code == ErrorCode::invalid) ++outcome.wrong;
    }
    // Whatever was lost: the tier works again.
    const TestBlock fresh = make_block(layout_, kBlocks, 7);
    if (write_block(**store, fresh) != ErrorCode::ok) ++outcome.wrong;
    if (read_block(**store, fresh) != ErrorCode::ok) ++outcome.wrong;
    return outcome;
  }
  // Damage to slots costs exactly the blocks that it touches.
  void expect_exact(const Damage& damage, const Outcome& outcome) {
    for (std::uint32_t slot = 0; slot < kBlocks; ++slot) {
      const bool touched =
          damage.cut ? (slot + 1) * kPage > damage.offset : damage.offset / kPage == slot;
      ASSERT_EQ(outcome.right[slot], !touched) << "slot " << slot;
    }
  }
  static void add(const Outcome& outcome, Split& split) {
    ++split.damages;
    const std::uint64_t right = outcome.right_count();
    split.blocks_right += right;
    split.blocks_missed += kBlocks - right;
    if (outcome.refused) {
      ++split.refused;
    } else if (outcome.set_aside) {
      ++split.set_aside;
    } else if (right == kBlocks) {
      ++split.harmless;
    } else {
      ++(right == 0 ? split.all_missed : split.some_missed);
    }
  }
  static void report(Place place, const Split& split) {
    std::cout << "[  REPORT  ] " << kPlaceNames[static_cast<std::size_t>(place)] << ": "
              << split.damages << " damages: " << split.harmless << " harmless, "
              << split.some_missed << " cost some blocks, " << split.all_missed << " all, "
              << split.set_aside << " a new index, " << split.refused
              << " refused; blocks: " << split.blocks_right << " right, " << split.blocks_missed
              << " missed, 0 wrong\n";
  }

  std::unique_ptr<rocksdb::Env> environment_ = make_lean_environment();
  TempDirectory directory_{true};
  std::string store_ = directory_ / "store";
  std::string damaged_ = directory_ / "damaged";
  KvLayout layout_ = padded_layout();
  std::vector<TestBlock> blocks_;
  Prng prng_{20'261'129};
};

// SCENARIOS REC-05: flipped, truncated: a miss, removed; no wrong byte.
TEST_F(DiskDamage, OfOneBitOrOneCutIsAMissNeverAWrongByteAndTheTierWorksAgain) {
  const char* const wanted = std::getenv("KV_DISK_DAMAGES");
  const std::uint64_t count = wanted == nullptr ? 1'000 : std::strtoull(wanted, nullptr, 10);
  std::array<Split, kPlaceNames.size()> splits;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto place = static_cast<Place>(i % kPlaceNames.size());
    const Damage damage = choose(place, i / kPlaceNames.size() % 4 == 3);
    SCOPED_TRACE(std::string(kPlaceNames[i % kPlaceNames.size()]) +
                 (damage.cut ? " cut to " : " flipped at ") + std::to_string(damage.offset));
    const Outcome outcome = serve_after(damage);
    ASSERT_EQ(outcome.wrong, 0U);
    ASSERT_EQ(outcome.refused, place == Place::format);
    if (place == Place::payload || place == Place::trailer) expect_exact(damage, outcome);
    add(outcome, splits[i % kPlaceNames.size()]);
    if (HasFatalFailure()) return;
  }
  for (std::size_t i = 0; i < kPlaceNames.size(); ++i) report(static_cast<Place>(i), splits[i]);
  // The damages did hit something.
  const auto split = [&splits](Place place) { return splits[static_cast<std::size_t>(place)]; };
  EXPECT_GT(split(Place::table).set_aside, 0U);
  EXPECT_GT(split(Place::log).some_missed, 0U);
  EXPECT_GT(split(Place::manifest).set_aside, 0U);
  EXPECT_GT(split(Place::current).set_aside, 0U);
}

TEST_F(DiskDamage, OfEveryFileOfTheIndexIsSurvivedWhenTheFileIsGone) {
  for (const Place place :
       {Place::table, Place::log, Place::manifest, Place::current, Place::options}) {
    SCOPED_TRACE(kPlaceNames[static_cast<std::size_t>(place)]);
    std::filesystem::remove_all(damaged_);
    std::filesystem::copy(store_, damaged_, std::filesystem::copy_options::recursive);
    std::filesystem::remove(file_of(damaged_, place));
    const std::unique_ptr<DiskStore> store = open_store(options(damaged_), layout_);
    ASSERT_NE(store, nullptr);
    for (const TestBlock& block : blocks_) {
      const ErrorCode code = read_block(*store, block);
      ASSERT_TRUE(code == ErrorCode::ok || code == ErrorCode::corrupt);
    }
    ASSERT_TRUE(all_ok(write_blocks(*store, blocks_)));
    for (const TestBlock& block : blocks_) ASSERT_EQ(read_block(*store, block), ErrorCode::ok);
  }
}

TEST_F(DiskDamage, OfTheIndexKeepsTheLastDamagedOneOnlyAndStartsEmpty) {
  for (std::uint64_t round = 1; round <= 3; ++round) {
    SCOPED_TRACE(round);
    const std::string current = store_ + "/index/CURRENT";
    std::ofstream(current) << "round " << round;
    {
      const std::unique_ptr<DiskStore> store = open_store(options(store_), layout_);
      ASSERT_NE(store, nullptr);
      EXPECT_EQ(store->counters().damaged_indexes, 1U);
      EXPECT_EQ(store->counters().foreign_files, 0U);
      EXPECT_TRUE(scan_all(*store).empty());
      EXPECT_EQ(read_block(*store, blocks_[0]), ErrorCode::corrupt);
      ASSERT_TRUE(all_ok(write_blocks(*store, blocks_))) << "the slots are free again";
    }
    std::string kept;
    std::getline(std::ifstream(store_ + "/index.damaged/CURRENT"), kept);
    EXPECT_EQ(kept, "round " + std::to_string(round));
    EXPECT_FALSE(std::filesystem::exists(store_ + "/index.damaged.damaged"));
    const std::unique_ptr<DiskStore> store = open_store(options(store_), layout_);
    EXPECT_EQ(store->counters().damaged_indexes, 0U);
    EXPECT_EQ(store->counters().foreign_files, 0U) << "index.damaged is one of ours";
    EXPECT_EQ(scan_all(*store).size(), kBlocks);
  }
}

}  // namespace
}  // namespace kv
