// New epochs of a namespace, and Clear across a restart: what is older never comes back.
#include <memory>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr NamespaceFields kModel{.weights = "model"};
using DiskEntry = ScriptedTransfers::DiskEntry;

struct Epochs {
  explicit Epochs(const Engine::Options& options = options_with_slots(16, 16, 16))
      : driver(options),
        client(driver.attach_with_pool()),
        admin(driver.attach(ClientRole::admin)) {}

  Reply set(std::uint64_t epoch, const NamespaceFields& fields = kModel) {
    return driver.call(admin, SetEpoch{.header = {}, .fields = &fields, .epoch = epoch});
  }
  void cache(SequenceId sequence, std::span<const Token> tokens) {
    EXPECT_EQ(driver.admit(client, sequence, tokens, 0, kModel).error.code, ErrorCode::ok);
    const auto count = static_cast<std::uint32_t>(tokens.size());
    driver.step(client, StepScript().publish(sequence, count).free(sequence));
  }
  std::uint64_t hit_tokens(std::span<const Token> tokens) {
    return driver.lookup(client, tokens, kModel).hit_tokens;
  }
  EngineDriver driver;
  ClientId client, admin;
};

std::uint64_t epoch_of(const Reply& reply) {
  const auto* body = std::get_if<ClearReply>(&reply.body);
  return body == nullptr ? 0 : body->epoch;
}

// SCENARIOS COR-35
TEST(Epoch, NewOneHitsNothingOlderAndRunningWorkPublishesNothingIntoIt) {
  Epochs test;
  const std::vector<Token> prompt = numbered_tokens(1, 13);
  test.driver.admit(test.client, kFirst, numbered_tokens(1, 12), 8, kModel);
  test.driver.step(test.client, StepScript().publish(kFirst, 12));
  ASSERT_EQ(test.hit_tokens(prompt), 12U);
  const Reply reply = test.set(2);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(epoch_of(reply), 2U);
  EXPECT_EQ(test.hit_tokens(prompt), 0U);
  test.driver.step(
      test.client,
      StepScript().append(kFirst, numbered_tokens(50, 4)).publish(kFirst, 16).free(kFirst));
  EXPECT_EQ(test.hit_tokens(prompt), 0U);
  const TierStatus& device = test.driver.tier(Tier::device);
  EXPECT_EQ(device.free + device.cached, device.slots);
  ASSERT_EQ(test.driver.status().epochs.size(), 1U);
  EXPECT_EQ(test.driver.status().epochs[0].epoch, 2U);
}

TEST(Epoch, RisesByItselfWhenNoNumberIsGiven) {
  Epochs test;
  EXPECT_EQ(epoch_of(test.set(0)), 1U);
  EXPECT_EQ(epoch_of(test.set(0)), 2U);
  EXPECT_EQ(epoch_of(test.set(10)), 10U);
  const Reply cleared = test.driver.call(test.admin, Clear{.header = {}, .fields = &kModel});
  EXPECT_EQ(epoch_of(cleared), 11U);
}

TEST(Epoch, HighestNumbersAreRefusedSoThatTheNextOneIsAlwaysHigher) {
  Epochs test;
  constexpr std::uint64_t kRefused = 9'223'372'036'854'775'808U;  // 2^63
  ASSERT_EQ(epoch_of(test.set(5)), 5U);
  for (const std::uint64_t epoch : {kRefused, ~std::uint64_t{0}}) {
    const Reply reply = test.set(epoch);
    EXPECT_EQ(reply.error.code, ErrorCode::invalid);
    EXPECT_EQ(reply.error.field, "epoch");
  }
  EXPECT_EQ(test.driver.status().epochs[0].epoch, 5U);
  EXPECT_EQ(epoch_of(test.set(kRefused - 1)), kRefused - 1);
  EXPECT_EQ(epoch_of(test.set(0)), kRefused);
}

TEST(Epoch, AskedForOnceMoreClearsNothing) {
  Epochs test;
  test.set(5);
  test.cache(kFirst, numbered_tokens(1, 8));
  const Reply again = test.set(5);
  ASSERT_EQ(again.error.code, ErrorCode::ok);
  EXPECT_EQ(std::get<ClearReply>(again.body).cleared_blocks, 0U);
  EXPECT_EQ(test.hit_tokens(numbered_tokens(1, 9)), 8U);
}

TEST(Epoch, AskedForOnceMoreIsToldNoEarlierThanTheFirst) {
  Epochs test;
  test.cache(kFirst, numbered_tokens(1, 8));
  test.driver.hold_transfers(true);
  test.driver.cache_prompt(test.client, numbered_tokens(1, 4));  // a save of another namespace
  test.cache(kSecond, numbered_tokens(100, 4));                  // and one of this
  test.driver.hold_syncs(true);
  const auto send = [&] {
    return test.driver.send(test.admin, SetEpoch{.header = {}, .fields = &kModel, .epoch = 1});
  };
  const RequestId first = send();
  const RequestId second = send();
  test.driver.settle();
  EXPECT_EQ(test.driver.reply_count(test.admin, first), 0U);
  EXPECT_EQ(test.driver.reply_count(test.admin, second), 0U);
  test.driver.hold_transfers(false);
  test.driver.hold_syncs(false);
  test.driver.settle();
  EXPECT_EQ(test.driver.reply(test.admin, first).error.code, ErrorCode::ok);
  EXPECT_EQ(test.driver.reply(test.admin, second).error.code, ErrorCode::ok);
}

TEST(Epoch, OlderOneIsStale) {
  Epochs test;
  test.set(5);
  const Reply reply = test.set(4);
  EXPECT_EQ(reply.error.code, ErrorCode::stale);
  EXPECT_EQ(reply.error.field, "epoch");
  EXPECT_EQ(test.driver.status().epochs[0].epoch, 5U);
}

TEST(Epoch, IsForAdministratorsOnly) {
  Epochs test;
  const Reply reply =
      test.driver.call(test.client, SetEpoch{.header = {}, .fields = &kModel, .epoch = 2});
  EXPECT_EQ(reply.error.code, ErrorCode::denied);
  EXPECT_TRUE(test.driver.status().epochs.empty());
}

TEST(Epoch, OfOneNamespaceLeavesTheOthers) {
  Epochs test;
  test.cache(kFirst, numbered_tokens(1, 8));
  test.driver.cache_prompt(test.client, numbered_tokens(1, 8));
  test.set(2);
  EXPECT_EQ(test.driver.lookup(test.client, numbered_tokens(1, 9)).hit_tokens, 8U);
}

TEST(Epoch, TableOfNumbersIsBounded) {
  Engine::Options options = options_with_slots(16, 0, 0);
  options.root_capacity = 4;
  Epochs test(options);
  for (const char* weights : {"a", "b", "c", "d", "e", "f"}) {
    const NamespaceFields fields{.weights = weights};
    ASSERT_EQ(epoch_of(test.set(7, fields)), 7U);
  }
  EXPECT_EQ(test.driver.status().epochs.size(), 4U);
}

// ---------------------------------------------------------------- across a restart

void recover(EngineDriver& driver, std::span<const DiskEntry> index, bool last) {
  std::vector<RecoveredEntry> entries;
  std::vector<Token> tokens;
  for (const DiskEntry& found : index) {
    entries.push_back(found.entry);
    tokens.insert(tokens.end(), found.tokens.begin(), found.tokens.end());
  }
  driver.input(Recovered{.entries = entries, .tokens = tokens, .last = last});
  driver.settle();
}

void send_format(EngineDriver& driver) {
  const KvLayout layout = one_group_layout();
  driver.input(DiskFormat{.layout = &layout});
}

TEST(Epoch, OlderBlocksAreNotOnTheDiskOfARestartAfterTheReply) {
  Epochs test;
  test.cache(kFirst, numbered_tokens(1, 8));
  ASSERT_EQ(test.driver.transfers().disk_index().size(), 2U);
  test.set(2);
  test.cache(kSecond, numbered_tokens(1, 4));  // of the new epoch
  const auto index = test.driver.transfers().disk_index();
  ASSERT_EQ(index.size(), 1U);
  EngineDriver next(options_with_slots(16, 16, 16));
  send_format(next);
  recover(next, index, true);
  const ClientId client = next.attach_with_pool();
  EXPECT_EQ(next.lookup(client, numbered_tokens(1, 9), kModel).hit_tokens, 4U);
}

TEST(Clear, RunningSequenceHoldsNothingOnTheDiskBeyondTheReply) {
  Epochs test;
  test.driver.admit(test.client, kFirst, numbered_tokens(1, 8), 8, kModel);
  test.driver.step(test.client, StepScript().publish(kFirst, 8));
  ASSERT_EQ(test.driver.transfers().disk_index().size(), 2U);
  const Reply reply = test.driver.call(test.admin, Clear{});
  EXPECT_EQ(std::get<ClearReply>(reply.body).kept_blocks, 2U);
  EXPECT_TRUE(test.driver.transfers().disk_index().empty());
}

// The rest of the index, read later, is older too.
TEST(Clear, WhileTheDiskIndexIsReadCoversWhatWasNotReadYet) {
  Epochs before;
  before.cache(kFirst, numbered_tokens(1, 12));
  before.driver.cache_prompt(before.client, numbered_tokens(1, 8));
  const auto index = before.driver.transfers().disk_index();
  ASSERT_EQ(index.size(), 5U);
  for (std::size_t i = 0; i < 2 * (index.size() + 1); ++i) {
    const bool all = i % 2 == 0;
    const std::size_t read = i / 2;
    SCOPED_TRACE(std::to_string(read) + (all ? " read, all" : " read, one namespace"));
    EngineDriver driver(options_with_slots(16, 16, 16));
    send_format(driver);
    recover(driver, std::span(index).first(read), false);
    const ClientId client = driver.attach_with_pool();
    const ClientId admin = driver.attach(ClientRole::admin);
    const RequestId id = driver.send(admin, Clear{.header = {}, .fields = all ? nullptr : &kModel});
    driver.settle();
    EXPECT_EQ(driver.reply_count(admin, id), 0U);
    // Computed anew in the meantime: what is read below it is older all the same.
    driver.admit(client, kFirst, numbered_tokens(1, 4), 0, kModel);
    driver.step(client, StepScript().publish(kFirst, 4).free(kFirst));
    recover(driver, std::span(index).subspan(read), true);
    ASSERT_EQ(driver.reply_count(admin, id), 1U);
    EXPECT_EQ(driver.reply(admin, id).error.code, ErrorCode::ok);
    EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 13), kModel).hit_tokens, 4U);
    EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 9)).hit_tokens, all ? 0U : 8U);
  }
}

TEST(Clear, OfTheDiskTierWaitsUntilItsIndexIsRead) {
  Epochs before;
  before.cache(kFirst, numbered_tokens(1, 12));
  const auto index = before.driver.transfers().disk_index();
  EngineDriver driver(options_with_slots(16, 16, 16));
  send_format(driver);
  const ClientId admin = driver.attach(ClientRole::admin);
  const RequestId id =
      driver.send(admin, Clear{.header = {}, .all_tiers = false, .tier = Tier::disk});
  driver.settle();
  EXPECT_EQ(driver.reply_count(admin, id), 0U);
  recover(driver, index, true);
  ASSERT_EQ(driver.reply_count(admin, id), 1U);
  EXPECT_EQ(std::get<ClearReply>(driver.reply(admin, id).body).cleared_blocks, 3U);
  EXPECT_EQ(driver.tier(Tier::disk).free, 16U);
}

}  // namespace
}  // namespace kv::core
