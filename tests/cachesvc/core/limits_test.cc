// Limits of the core: each reached, its error and its counter, and room again afterwards.
#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"
#include "tests/cachesvc/core/step_script.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr SequenceId kThird(3);

Open more(SequenceId sequence, std::span<const Token> tokens) {
  return {.header = {}, .sequence = sequence, .first = false, .fields = nullptr, .tokens = tokens};
}

// A layout of tiny blocks would want more memory for its index than for its payload.
TEST(IndexBytes, OfALayoutOfWhichTooManyBlocksFitTheTiersAreRefusedAndALargerOneIsServed) {
  Engine::Options options;
  options.tier_bytes = {64U << 20U, 256U << 20U, 0, 0};
  options.index_bytes_max = 64U << 20U;
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  const KvLayout tiny = one_group_layout(1);  // 32 bytes a block: ten million of them
  const Reply refused = driver.call(client, AttachPool{.header = {}, .layout = &tiny});
  EXPECT_EQ(refused.error.code, ErrorCode::too_large);
  EXPECT_EQ(refused.error.field, "block_tokens");
  EXPECT_EQ(driver.engine().cache(), nullptr);
  const KvLayout large = one_group_layout(512);
  EXPECT_EQ(driver.call(client, AttachPool{.header = {}, .layout = &large}).error.code,
            ErrorCode::ok);
  EXPECT_LE(driver.status().metadata_bytes, options.index_bytes_max);
}

// What a prompt takes before it is admitted is bounded.
TEST(PromptTokens, OfOneClientAreBoundedWhileItsSequencesLast) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.client_prompt_tokens_max = 100;
  options.prompt_tokens_max = 1'000;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(1, 60)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.open(client, kSecond, numbered_tokens(1, 40)).error.code, ErrorCode::ok);
  const Reply third = driver.open(client, kThird, numbered_tokens(1, 1));
  EXPECT_EQ(third.error.code, ErrorCode::exhausted);
  EXPECT_EQ(third.error.field, "tokens");
  EXPECT_GT(third.retry_after_us, 0U);
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(61, 1))).error.code,
            ErrorCode::exhausted);
  EXPECT_EQ(driver.live(client, kFirst).tokens.size(), 60U);
  EXPECT_EQ(driver.status().sequences, 2U);
  EXPECT_EQ(driver.status().counters.refused_prompt_tokens, 2U);
  // Another client is not concerned.
  const ClientId other = driver.attach_with_pool();
  EXPECT_EQ(driver.open(other, kFirst, numbered_tokens(1, 100)).error.code, ErrorCode::ok);
  driver.step(client, StepScript().free(kSecond));
  EXPECT_EQ(driver.open(client, kThird, numbered_tokens(1, 40)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.open(client, kSecond, numbered_tokens(1, 1)).error.code, ErrorCode::exhausted);
}

TEST(PromptTokens, OfAllClientsAreBoundedAndADeadOneGivesThemBack) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.client_prompt_tokens_max = 100;
  options.prompt_tokens_max = 150;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  const ClientId other = driver.attach_with_pool();
  ASSERT_EQ(driver.open(client, kFirst, numbered_tokens(1, 100)).error.code, ErrorCode::ok);
  const Reply refused = driver.open(other, kFirst, numbered_tokens(1, 51));
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_EQ(refused.error.reason, "as many prompt tokens as limits.prompt_tokens");
  EXPECT_EQ(driver.open(other, kFirst, numbered_tokens(1, 50)).error.code, ErrorCode::ok);
  driver.input(ClientGone{.client = client});
  driver.settle();
  EXPECT_EQ(driver.open(other, kSecond, numbered_tokens(1, 50)).error.code, ErrorCode::ok);
  const ClientId next = driver.attach_with_pool();
  EXPECT_EQ(driver.open(next, kFirst, numbered_tokens(1, 50)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.open(next, kSecond, numbered_tokens(1, 1)).error.code, ErrorCode::exhausted);
}

TEST(PromptTokens, OfAnExpiredClientCountUntilItIsGone) {
  Engine::Options options = options_with_slots(25, 0, 0);
  options.prompt_tokens_max = 100;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  ASSERT_EQ(driver.admit(client, kFirst, numbered_tokens(1, 100)).error.code, ErrorCode::ok);
  driver.advance(options.lease * 2);
  const ClientId other = driver.attach_with_pool();
  driver.tick();
  driver.settle();
  ASSERT_EQ(driver.status().counters.expired_clients, 1U);
  EXPECT_EQ(driver.open(other, kFirst, numbered_tokens(1, 1)).error.code, ErrorCode::exhausted);
  driver.input(ClientGone{.client = client});
  driver.settle();
  EXPECT_EQ(driver.open(other, kFirst, numbered_tokens(1, 100)).error.code, ErrorCode::ok);
}

TEST(PromptTokens, ThatNoClientMayEverHaveAreTooLarge) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.client_prompt_tokens_max = 100;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  EXPECT_EQ(driver.open(client, kFirst, numbered_tokens(1, 101)).error.code, ErrorCode::too_large);
  EXPECT_EQ(driver.status().counters.too_large_requests, 1U);
  EXPECT_EQ(driver.status().counters.refused_prompt_tokens, 1U);
  EXPECT_EQ(driver.status().sequences, 0U);
}

// Admitted sequences share the slots of a prefix, but each has its tokens.
TEST(PromptTokens, OfAdmittedSequencesThatShareAPrefixCountEach) {
  Engine::Options options = options_with_slots(16, 0, 0);
  options.client_prompt_tokens_max = 64;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  const auto tokens = numbered_tokens(1, 32);
  driver.cache_prompt(client, tokens);
  EXPECT_EQ(driver.admit(client, SequenceId(7), tokens).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.admit(client, SequenceId(8), tokens).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.open(client, SequenceId(9), tokens).error.code, ErrorCode::exhausted);
}

TEST(Limits, SequencesOverTheCapacityAreExhaustedAndCounted) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.sequence_capacity = 2;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.open(client, kFirst, numbered_tokens(1, 4));
  driver.open(client, kSecond, numbered_tokens(1, 4));
  EXPECT_EQ(driver.open(client, kThird, numbered_tokens(1, 4)).error.code, ErrorCode::exhausted);
  EXPECT_EQ(driver.status().counters.refused_sequences, 1U);
  EXPECT_EQ(driver.status().sequences, 2U);
}

TEST(Limits, TokensOfOneMessageAndOfOneSequenceAreTooLargeAndCounted) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.sequence_tokens_max = 70'000;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  const NamespaceFields fields;
  const auto open = [&](std::uint32_t count) {
    const auto tokens = numbered_tokens(1, count);
    return driver.call(
        client,
        Open{.header = {}, .sequence = kFirst, .first = true, .fields = &fields, .tokens = tokens});
  };
  EXPECT_EQ(open(kTokensPerMessageMax + 1).error.code, ErrorCode::too_large);
  EXPECT_EQ(open(kTokensPerMessageMax).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(1, 4'465))).error.code,
            ErrorCode::too_large);
  EXPECT_EQ(driver.call(client, more(kFirst, numbered_tokens(1, 4'464))).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.status().counters.too_large_requests, 2U);
}

TEST(Limits, NamespacesOverTheCapacityAreExhaustedAndCounted) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.root_capacity = 2;
  EngineDriver driver(options);
  const auto open = [&](std::string_view salt) {
    NamespaceFields fields;
    fields.salt = salt;
    return driver.open(driver.attach_with_pool(), kFirst, numbered_tokens(1, 4), fields).error.code;
  };
  ASSERT_EQ(open("a"), ErrorCode::ok);
  ASSERT_EQ(open("b"), ErrorCode::ok);
  EXPECT_EQ(open("c"), ErrorCode::exhausted);
  EXPECT_EQ(driver.status().counters.refused_namespaces, 1U);
}

TEST(Limits, RequestsOverTheCreditsAreBusyAndCounted) {
  Engine::Options options = options_with_slots(8, 8, 8);
  options.credits_per_client = 3;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 5));
  driver.hold_transfers(true);
  driver.hold_syncs(true);
  for (int i = 0; i < 3; ++i) driver.send(client, Flush{});  // each waits for its sync
  for (int i = 0; i < 10; ++i) {
    const Reply refused = driver.call(client, Status{});
    EXPECT_EQ(refused.error.code, ErrorCode::busy);
    EXPECT_GT(refused.retry_after_us, 0U);
  }
  EXPECT_EQ(driver.status().counters.busy_requests, 10U);
  const ClientId other = driver.attach();
  EXPECT_EQ(driver.call(other, Status{}).error.code, ErrorCode::ok);
}

TEST(Limits, ATransferHasNoMoreBlocksThanItsMapOfFailures) {
  constexpr std::uint32_t kBlocks = 200;
  EngineDriver driver(options_with_slots(kBlocks + 8, kBlocks + 8, 0));
  const ClientId client = driver.attach_with_pool();
  driver.hold_transfers(true);
  driver.cache_prompt(client, numbered_tokens(1, 4 * kBlocks));
  std::uint32_t largest = 0;
  for (std::uint32_t i = 0; i < driver.engine().transfer_count(); ++i) {
    largest =
        std::max(largest, static_cast<std::uint32_t>(driver.engine().transfer(i).blocks.size()));
  }
  EXPECT_EQ(largest, kTransferBlocksMax);
}

TEST(Limits, ARecoveredChunkOverItsEntriesIsNotTaken) {
  EngineDriver driver(options_with_slots(8, 8, 2'048));
  const KvLayout layout = one_group_layout();
  driver.input(DiskFormat{.layout = &layout});
  const std::vector<RecoveredEntry> entries(kRecoveredEntriesMax + 1);
  const std::vector<Token> tokens(entries.size() * 4);
  driver.input(Recovered{.entries = entries, .tokens = tokens, .last = false});
  EXPECT_EQ(driver.status().counters.recovered_blocks, 0U);
  EXPECT_EQ(driver.status().counters.orphaned_blocks, 0U);
  // One fewer is looked at: these hang on nothing.
  driver.input(Recovered{.entries = std::span(entries).first(kRecoveredEntriesMax),
                         .tokens = std::span(tokens).first(std::size_t{4} * kRecoveredEntriesMax),
                         .last = true});
  EXPECT_EQ(driver.status().counters.orphaned_blocks, kRecoveredEntriesMax);
}

TEST(Limits, NoticesThatNobodyAcknowledgesAreKeptUpToTheirNumber) {
  Engine::Options options = options_with_slots(8, 8, 0);
  options.notices_per_client = 4;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  const auto tokens = numbered_tokens(1, 5);
  driver.cache_prompt(client, tokens);
  for (std::uint64_t i = 0; i < 10; ++i) {
    driver.call(client, Demote{.header = {}, .tier = Tier::device});
    const SequenceId sequence(100 + i);
    driver.admit(client, sequence, tokens);  // its load is told by a notice
    driver.step(client, StepScript().free(sequence));
  }
  const auto kept = driver.engine().unacknowledged(client);
  ASSERT_EQ(kept.size(), 4U);
  EXPECT_EQ(kept.back().number, 10U);  // the newest ones
}

}  // namespace
}  // namespace kv::core
