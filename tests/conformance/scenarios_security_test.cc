// Rows SEC of the scenarios: identities that cannot be aimed at, tenants that cannot be guessed.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "allocator/block_key.h"
#include "tests/cachesvc/core/engine_driver.h"
#include "tests/tiering/stores/store_support.h"

namespace kv {
namespace {

using core::EngineDriver;

// SCENARIOS SEC-01: a million random blocks, all in one namespace.
TEST(Scenarios, Sec01AMillionRandomBlocksHaveAMillionKeys) {
  constexpr std::size_t kBlocks = 1'000'000;
  const Digest start = namespace_digest({.weights = "w"});
  std::vector<Digest> keys;
  keys.reserve(kBlocks);
  Prng prng(1);
  std::vector<Token> tokens(16);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    for (Token& token : tokens) token = static_cast<Token>(prng.next());
    keys.push_back(next_block_key(start, tokens));
  }
  std::ranges::sort(keys);
  EXPECT_EQ(std::ranges::adjacent_find(keys), keys.end());
}

// The index of a disk whose keys have 8 bits: of the blocks that share them it knows the last one.
class TruncatedIndex {
 public:
  void add(const BlobIdentity& identity) { places_[identity.key.bytes.back()] = identity; }
  // Where the block with this key would be read: its own key, at the place that was found.
  [[nodiscard]] BlobIdentity find(const Digest& key) const {
    BlobIdentity found = places_.at(key.bytes.back());
    found.key = key;
    return found;
  }

 private:
  std::map<std::byte, BlobIdentity> places_;
};

// SCENARIOS SEC-01: whatever place an index gives, the store compares the whole stored identity.
TEST(Scenarios, Sec01KeysCutTo8BitsCollideAndNeverHitAnotherBlock) {
  for (const KvLayout& layout : {page_layout(), padded_layout()}) {
    const TempDirectory directory(true);
    const auto store = open_store(options_of(directory / "store"), layout);
    ASSERT_NE(store, nullptr);
    const std::vector<TestBlock> blocks = make_blocks(layout, 1'000);
    ASSERT_TRUE(all_ok(write_blocks(*store, blocks)));
    TruncatedIndex index;
    for (const TestBlock& block : blocks) index.add(block.identity);
    std::size_t hits = 0, collisions = 0;
    for (const TestBlock& block : blocks) {
      TestBlock wanted = block;
      wanted.identity = index.find(block.identity.key);
      const bool is_there = same_identity(wanted.identity, block.identity);
      // `invalid`: other bytes than the block's, said to be in order.
      const ErrorCode outcome = read_block(*store, wanted);
      EXPECT_EQ(outcome, is_there ? ErrorCode::ok : ErrorCode::corrupt);
      ++(outcome == ErrorCode::ok ? hits : collisions);
    }
    EXPECT_LE(hits, 256U);
    EXPECT_GE(collisions, 744U);
    EXPECT_EQ(store->counters().corrupt_blocks, collisions) << "each is counted";
  }
}

// SCENARIOS SEC-01: an index that was written with such keys gives nothing back after a restart.
TEST(Scenarios, Sec01KeysCutTo8BitsOnDiskAreRefusedAndErasedAtRecovery) {
  EngineDriver driver(core::options_with_slots(4, 4, 300));
  const KvLayout layout = core::one_group_layout();
  driver.input(core::DiskFormat{.layout = &layout});
  const Digest start = namespace_digest({.tenant = "tenant", .block_tokens = 4});
  std::vector<core::RecoveredEntry> entries;
  std::vector<Token> tokens;
  for (std::uint32_t slot = 0; slot < 300; ++slot) {
    const std::vector<Token> block = core::numbered_tokens(1 + 4 * slot, 4);
    core::RecoveredEntry entry;
    entry.key.bytes.back() = next_block_key(start, block).bytes.back();
    entry.parent_key = entry.namespace_digest = start;
    entry.group = GroupId(0);
    entry.slot = SlotId(slot);
    entry.generation = 1;
    entries.push_back(entry);
    tokens.insert(tokens.end(), block.begin(), block.end());
  }
  driver.input(core::Recovered{.entries = entries, .tokens = tokens, .last = true});
  driver.settle();
  EXPECT_EQ(driver.status().counters.recovered_blocks, 0U);
  EXPECT_EQ(driver.status().counters.orphaned_blocks, 300U);
  EXPECT_EQ(driver.transfers().erases().size(), 300U);
  const ClientId client = driver.attach_with_pool();
  for (std::uint32_t slot = 0; slot < 300; ++slot) {
    EXPECT_EQ(driver.lookup(client, core::numbered_tokens(1 + 4 * slot, 5)).hit_tokens, 0U);
  }
}

// SCENARIOS SEC-02
TEST(Scenarios, Sec02AnAdaptersNameIsNobodysSalt) {
  EngineDriver driver(core::options_with_slots(64, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = core::numbered_tokens(1, 5);
  // adapter, its revision, salt, model configuration: each "x" or nothing.
  const auto fields_of = [](unsigned set) {
    const auto value = [&](unsigned bit) {
      return (set >> bit & 1U) != 0 ? std::string_view("x") : std::string_view();
    };
    return NamespaceFields{.model_config = value(3),
                           .adapter = value(0),
                           .adapter_revision = value(1),
                           .salt = value(2)};
  };
  for (unsigned stored = 0; stored < 16; ++stored) {
    EXPECT_EQ(driver.lookup(client, prompt, fields_of(stored)).hit_tokens, 0U) << stored;
    const SequenceId sequence(1 + stored);
    EXPECT_EQ(driver.admit(client, sequence, prompt, 0, fields_of(stored)).error.code,
              ErrorCode::ok);
    driver.step(client, core::StepScript().publish(sequence, 5).free(sequence));
    EXPECT_EQ(driver.lookup(client, prompt, fields_of(stored)).hit_tokens, 4U) << stored;
  }
  EXPECT_EQ(driver.status().namespaces, 16U);
  EXPECT_EQ(driver.status().tree_blocks, 16U);
}

std::string hex_of(const Digest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest.bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

// SCENARIOS SEC-03: the vector is kept; derived with Python's hashlib from the written encoding.
TEST(Scenarios, Sec03PartsAreNeverGluedTogether) {
  const Digest parted = namespace_digest({.tenant = "org_1", .salt = "2345"});
  const Digest glued = namespace_digest({.tenant = "org_12345", .salt = ""});
  EXPECT_NE(parted, glued);
  EXPECT_EQ(hex_of(parted), "3fc39f7be0164dfdb6581630e81ac205dfdfef817cfe4a509e5d0f249352d819");
  EXPECT_EQ(hex_of(glued), "3f61756f8013fa545329f07931bff602f94b9da3db00f3a9fc987a609e07afa8");
}

// SCENARIOS SEC-05
TEST(Scenarios, Sec05ATenantIsWhoItConnectedAsWhateverItClaims) {
  EngineDriver driver(core::options_with_slots(16, 8, 0));
  const ClientId a = driver.attach_with_pool(4, "a");
  const ClientId b = driver.attach_with_pool(4, "b");
  const std::vector<Token> prompt = core::numbered_tokens(1, 17);
  const NamespaceFields of_a{.weights = "w", .tenant = "a", .salt = "secret of a"};
  const SequenceId sequence(1);
  ASSERT_EQ(driver.admit(a, sequence, prompt, 0, of_a).error.code, ErrorCode::ok);
  driver.step(a, core::StepScript().publish(sequence, 17).free(sequence));
  // The same fields, the claimed tenant with them: the tenant of the connection counts.
  EXPECT_EQ(driver.lookup(b, prompt, of_a).hit_tokens, 0U);
  EXPECT_EQ(driver.lookup(b, prompt, of_a).known_tokens, 0U);
  const core::Reply reply = driver.admit(b, sequence, prompt, 0, of_a);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  const auto& admitted = std::get<core::AdmitReply>(reply.body);
  EXPECT_EQ(admitted.account.computed_tokens, 17U);
  EXPECT_TRUE(admitted.ready) << "nor does it wait for anything of the other's";
  EXPECT_EQ(driver.lookup(a, prompt, of_a).hit_tokens, 16U);
}

}  // namespace
}  // namespace kv
