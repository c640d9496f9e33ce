// More namespaces than there may be: which one gives way to a new one, what becomes of its blocks,
// and how many one client may hold.
#include <string>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr SequenceId kThird(3);
using DiskEntry = ScriptedTransfers::DiskEntry;

NamespaceFields salted(std::string_view salt) {
  NamespaceFields fields;
  fields.salt = salt;
  return fields;
}

class Namespaces : public testing::Test {
 protected:
  explicit Namespaces(std::uint32_t capacity = 3)
      : driver_(options(capacity)), client_(driver_.attach_with_pool()) {}
  static Engine::Options options(std::uint32_t capacity) {
    Engine::Options options = options_with_slots(16, 16, 16);
    options.root_capacity = capacity;
    return options;
  }
  // Two blocks, on each tier.
  void cache(std::string_view salt) {
    ASSERT_EQ(driver_.admit(client_, kFirst, prompt_, 0, salted(salt)).error.code, ErrorCode::ok);
    driver_.step(client_, StepScript().publish(kFirst, 8).free(kFirst));
  }
  Reply open(ClientId client, SequenceId sequence, std::string_view salt) {
    return driver_.open(client, sequence, prompt_, salted(salt));
  }
  // Only whether: a look-up is no use.
  bool holds(std::string_view salt) {
    return driver_.lookup(client_, prompt_, salted(salt)).hit_tokens == 8;
  }

  EngineDriver driver_;
  ClientId client_;
  std::vector<Token> prompt_ = numbered_tokens(1, 9);
};

TEST_F(Namespaces, TheLeastRecentlyUsedOneGivesWayToANewOne) {
  for (const char* salt : {"a", "b", "c"}) cache(salt);
  cache("a");  // once more
  cache("d");
  EXPECT_TRUE(holds("a"));
  EXPECT_FALSE(holds("b"));
  EXPECT_TRUE(holds("c"));
  EXPECT_TRUE(holds("d"));
  EXPECT_EQ(driver_.status().namespaces, 3U);
  EXPECT_EQ(driver_.status().counters.displaced_blocks, 2U);
  EXPECT_EQ(driver_.status().counters.refused_namespaces, 0U);
  cache("e");
  EXPECT_FALSE(holds("c"));
}

// The end of a long sequence is a use as well as its beginning.
TEST_F(Namespaces, OneWhoseSequenceEndedLastIsTheMostRecentlyUsed) {
  const ClientId other = driver_.attach_with_pool();
  cache("a");
  ASSERT_EQ(open(other, kFirst, "a").error.code, ErrorCode::ok);
  cache("b");
  cache("c");
  driver_.step(other, StepScript().free(kFirst));
  cache("d");
  EXPECT_TRUE(holds("a"));
  EXPECT_FALSE(holds("b"));
}

TEST_F(Namespaces, BlocksOfTheOneThatGaveWayLeaveEveryTier) {
  for (const char* salt : {"a", "b", "c"}) cache(salt);
  ASSERT_EQ(driver_.transfers().disk_index().size(), 6U);
  ASSERT_EQ(open(client_, kFirst, "d").error.code, ErrorCode::ok);
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk}) {
    EXPECT_EQ(driver_.tier(tier).cached, 4U) << tier_name(tier);
    EXPECT_EQ(driver_.tier(tier).free, 12U) << tier_name(tier);
  }
  EXPECT_EQ(driver_.transfers().disk_index().size(), 4U);
  EXPECT_EQ(driver_.status().retired_blocks, 0U);
  EXPECT_EQ(driver_.status().tree_blocks, 4U);
}

TEST_F(Namespaces, OneWithAnOpenSequenceDoesNotGiveWay) {
  const ClientId other = driver_.attach_with_pool();
  cache("a");
  ASSERT_EQ(open(other, kFirst, "a").error.code, ErrorCode::ok);
  cache("b");
  cache("c");
  cache("d");
  EXPECT_TRUE(holds("a"));
  EXPECT_FALSE(holds("b"));
  EXPECT_EQ(driver_.call(other, Admit{.header = {}, .sequence = kFirst}).error.code, ErrorCode::ok);
  EXPECT_EQ(driver_.live(other, kFirst).published_blocks, 2U);
}

TEST_F(Namespaces, WhenSequencesUseThemAllANewOneIsExhaustedUntilOneEnds) {
  std::vector<ClientId> others;
  for (const char* salt : {"a", "b", "c"}) {
    cache(salt);
    others.push_back(driver_.attach_with_pool());
    ASSERT_EQ(open(others.back(), kFirst, salt).error.code, ErrorCode::ok);
  }
  const Reply refused = open(client_, kFirst, "d");
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_EQ(refused.error.field, "fields");
  EXPECT_GT(refused.retry_after_us, 0U);
  EXPECT_EQ(driver_.status().counters.refused_namespaces, 1U);
  EXPECT_EQ(driver_.status().counters.displaced_blocks, 0U);
  EXPECT_EQ(driver_.status().sequences, 3U);
  driver_.step(others[1], StepScript().free(kFirst));
  EXPECT_EQ(open(client_, kFirst, "d").error.code, ErrorCode::ok);
  EXPECT_FALSE(holds("b"));
}

TEST_F(Namespaces, OneThatATransferReadsDoesNotGiveWay) {
  driver_.hold_transfers(true);
  for (const char* salt : {"a", "b", "c"}) cache(salt);
  ASSERT_EQ(driver_.transfers().pending().size(), 3U);  // a save of each
  const Reply refused = open(client_, kFirst, "d");
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_TRUE(holds("a"));
  driver_.hold_transfers(false);
  driver_.settle();
  EXPECT_EQ(open(client_, kFirst, "d").error.code, ErrorCode::ok);
  EXPECT_FALSE(holds("a"));
}

// The slots of its sequences stay fenced, but it reads nothing cached any more.
TEST_F(Namespaces, OneOfAnExpiredClientGivesWay) {
  const ClientId silent = driver_.attach_with_pool();
  ASSERT_EQ(driver_.admit(silent, kFirst, prompt_, 0, salted("a")).error.code, ErrorCode::ok);
  driver_.step(silent, StepScript().publish(kFirst, 8));
  driver_.advance(driver_.engine().options().lease / 2);
  cache("b");
  cache("c");
  driver_.advance(driver_.engine().options().lease / 2 + std::chrono::milliseconds(1));
  driver_.tick();
  driver_.settle();
  ASSERT_EQ(driver_.tier(Tier::device).fenced, 1U);
  cache("d");
  EXPECT_FALSE(holds("a"));
  cache("e");
  driver_.call(silent, Bye{});
  EXPECT_EQ(driver_.tier(Tier::device).fenced, 0U);
  EXPECT_TRUE(holds("d"));
}

TEST_F(Namespaces, ManyMoreThanThereMayBeAreServedOneAfterTheOther) {
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    cache(std::to_string(i));
    ASSERT_TRUE(holds(std::to_string(i)));
    ASSERT_LE(driver_.status().namespaces, 3U);
  }
  EXPECT_EQ(driver_.status().counters.displaced_blocks, 2U * 197);
}

// Also right after a restart, when nothing of the disk was used yet.
TEST_F(Namespaces, RecoveredOnesGiveWay) {
  for (const char* salt : {"a", "b", "c"}) cache(salt);
  EngineDriver next(options(3));
  const KvLayout layout = one_group_layout();
  next.input(DiskFormat{.layout = &layout});
  std::vector<RecoveredEntry> entries;
  std::vector<Token> tokens;
  for (const DiskEntry& found : driver_.transfers().disk_index()) {
    entries.push_back(found.entry);
    tokens.insert(tokens.end(), found.tokens.begin(), found.tokens.end());
  }
  next.input(Recovered{.entries = entries, .tokens = tokens, .last = true});
  ASSERT_EQ(next.status().counters.recovered_blocks, 6U);
  const ClientId client = next.attach_with_pool();
  EXPECT_EQ(next.open(client, kFirst, prompt_, salted("d")).error.code, ErrorCode::ok);
  EXPECT_EQ(next.tier(Tier::disk).cached, 4U);
}

TEST(LongNamespaces, GiveWayInTheBackground) {
  constexpr std::uint32_t kBlocks = 5'000;
  Engine::Options options = options_with_slots(kBlocks + 8, 0, 0, 1);
  options.root_capacity = 1;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool(1);
  driver.cache_prompt(client, numbered_tokens(1, kBlocks));
  const auto prompt = numbered_tokens(1, 8);
  const NamespaceFields fields = salted("new");
  const RequestId id = driver.send(
      client, Open{.header = {}, .sequence = kFirst, .fields = &fields, .tokens = prompt});
  ASSERT_EQ(driver.reply_count(client, id), 1U);
  EXPECT_EQ(driver.reply(client, id).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.status().retired_blocks, kBlocks - kStepBlocksMax / 2);  // look, then drop
  std::uint64_t steps = 1;
  for (; driver.continue_wanted() && steps < 100; ++steps) driver.input(Continue{});
  EXPECT_EQ(driver.status().tree_blocks, 0U);
  EXPECT_GE(steps, kBlocks / kStepBlocksMax + 1);
  EXPECT_EQ(driver.admit(client, kSecond, numbered_tokens(1, kBlocks), 0, fields).error.code,
            ErrorCode::ok);
}

// ---------------------------------------------------------------- a client's part

class NamespacesOfAClient : public Namespaces {
 protected:
  NamespacesOfAClient() : Namespaces(8) {}  // two for each client
};

TEST_F(NamespacesOfAClient, AreAQuarterOfThemAll) {
  ASSERT_EQ(open(client_, kFirst, "a").error.code, ErrorCode::ok);
  ASSERT_EQ(open(client_, kSecond, "b").error.code, ErrorCode::ok);
  const Reply refused = open(client_, kThird, "c");
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_EQ(refused.error.field, "fields");
  EXPECT_GT(refused.retry_after_us, 0U);
  EXPECT_EQ(driver_.status().counters.refused_namespaces, 1U);
  EXPECT_EQ(driver_.status().sequences, 2U);
  EXPECT_EQ(driver_.status().namespaces, 2U);
  // Another client has its own part.
  EXPECT_EQ(open(driver_.attach_with_pool(), kFirst, "c").error.code, ErrorCode::ok);
}

TEST_F(NamespacesOfAClient, MayEachHaveManySequences) {
  ASSERT_EQ(open(client_, kFirst, "a").error.code, ErrorCode::ok);
  ASSERT_EQ(open(client_, kSecond, "b").error.code, ErrorCode::ok);
  for (std::uint64_t i = 10; i < 30; ++i) {
    ASSERT_EQ(open(client_, SequenceId(i), i % 2 == 0 ? "a" : "b").error.code, ErrorCode::ok);
  }
  // It holds a namespace as long as one of its sequences is there.
  StepScript script;
  script.free(kFirst);
  for (std::uint64_t i = 10; i < 28; ++i) script.free(SequenceId(i));
  driver_.step(client_, script);
  EXPECT_EQ(open(client_, kThird, "c").error.code, ErrorCode::exhausted);
  driver_.step(client_, StepScript().free(SequenceId(28)));
  EXPECT_EQ(open(client_, kThird, "c").error.code, ErrorCode::ok);
}

// Known ones too: 256 cached namespaces must not be pinned by one client.
TEST_F(NamespacesOfAClient, CountWhetherTheyAreNewOrKnown) {
  for (const char* salt : {"a", "b", "c"}) cache(salt);
  ASSERT_EQ(open(client_, kFirst, "a").error.code, ErrorCode::ok);
  ASSERT_EQ(open(client_, kSecond, "b").error.code, ErrorCode::ok);
  EXPECT_EQ(open(client_, kThird, "c").error.code, ErrorCode::exhausted);
}

}  // namespace
}  // namespace kv::core
