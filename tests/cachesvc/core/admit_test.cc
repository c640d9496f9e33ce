// Admit: match, reservation of the whole need, and what a refusal leaves as it was.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);
constexpr SequenceId kSecond(2);
constexpr SequenceId kThird(3);

const AdmitReply& body_of(const Reply& reply) { return std::get<AdmitReply>(reply.body); }

std::uint64_t device_hits(const Reply& reply) { return body_of(reply).account.hit_tokens[0]; }

// Tokens of `prompt`, then others up to `count`.
std::vector<Token> continued(std::span<const Token> prompt, std::size_t count) {
  std::vector<Token> tokens(prompt.begin(), prompt.end());
  while (tokens.size() < count) tokens.push_back(static_cast<Token>(900'000 + tokens.size()));
  return tokens;
}

TEST(Admit, ColdPromptReservesAllBlocksOfPromptAndNewTokens) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const Reply reply = driver.admit(client, kFirst, numbered_tokens(1, 9), 3);  // 12 tokens
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_TRUE(body_of(reply).ready);
  EXPECT_EQ(body_of(reply).block_count, 3U);
  EXPECT_EQ(body_of(reply).account.prompt_tokens, 9U);
  EXPECT_EQ(body_of(reply).account.computed_tokens, 9U);
  EXPECT_EQ(device_hits(reply), 0U);
  const std::vector<SlotId>& slots = body_of(reply).slots;
  EXPECT_EQ(std::set<SlotId>(slots.begin(), slots.end()).size(), 3U);
  EXPECT_TRUE(std::ranges::all_of(slots, [](SlotId slot) { return slot.value < 8; }));
  EXPECT_EQ(driver.tier(Tier::device).held, 3U);
  const Reply more = driver.admit(client, kSecond, numbered_tokens(1, 9), 4);  // 13 tokens
  EXPECT_EQ(body_of(more).block_count, 4U);
  EXPECT_EQ(driver.tier(Tier::device).free, 1U);
  EXPECT_EQ(driver.status().counters.computed_tokens, 18U);
  EXPECT_EQ(driver.status().counters.prompt_tokens, 18U);
}

TEST(Admit, UnknownEmptyAndAdmittedSequencesAreRefused) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const Admit admit{.header = {}, .sequence = kFirst, .max_new_tokens = 4};
  EXPECT_EQ(driver.call(client, admit).error.code, ErrorCode::not_found);
  driver.open(client, kFirst, {});
  EXPECT_EQ(driver.call(client, admit).error.code, ErrorCode::invalid);
  EXPECT_EQ(driver.admit(client, kSecond, numbered_tokens(1, 4)).error.code, ErrorCode::ok);
  EXPECT_EQ(driver.call(client, Admit{.header = {}, .sequence = kSecond}).error.code,
            ErrorCode::invalid);
  EXPECT_EQ(driver.tier(Tier::device).held, 1U);
}

TEST(Admit, MoreThanTheWholePoolIsTooLarge) {
  EngineDriver driver(options_with_slots(4, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const Reply refused = driver.admit(client, kFirst, numbered_tokens(1, 16), 1);
  EXPECT_EQ(refused.error.code, ErrorCode::too_large);
  EXPECT_EQ(refused.error.field, "max_new_tokens") << "the prompt alone fits";
  EXPECT_EQ(driver.tier(Tier::device).free, 4U);
  EXPECT_FALSE(driver.live(client, kFirst).admitted);
  EXPECT_EQ(driver.call(client, Admit{.header = {}, .sequence = kFirst}).error.code, ErrorCode::ok);
}

TEST(Admit, APromptThatAloneIsLongerThanThePoolIsTooLargeAndItsTokensAreToBlame) {
  EngineDriver driver(options_with_slots(4, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const Reply refused = driver.admit(client, kFirst, numbered_tokens(1, 17), 1);
  EXPECT_EQ(refused.error.code, ErrorCode::too_large);
  EXPECT_EQ(refused.error.field, "tokens");
  EXPECT_EQ(driver.tier(Tier::device).free, 4U);
}

TEST(Admit, MoreTokensThanASequenceMayHaveAreTooLargeHoweverLargeThePoolIs) {
  Engine::Options options = options_with_slots(8, 0, 0);
  options.sequence_tokens_max = 20;
  EngineDriver driver(options);
  const ClientId client = driver.attach_with_pool();
  const Reply refused = driver.admit(client, kFirst, numbered_tokens(1, 20), 1);
  EXPECT_EQ(refused.error.code, ErrorCode::too_large);
  EXPECT_EQ(refused.error.reason, "too many tokens in a sequence");
  EXPECT_EQ(refused.error.field, "max_new_tokens");
}

TEST(Admit, ExhaustedLeavesTheStateAsItWas) {
  EngineDriver driver(options_with_slots(5, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 4));      // 1 cached, evictable
  driver.admit(client, kFirst, numbered_tokens(100, 12));  // 3 held, 1 free
  driver.open(client, kSecond, numbered_tokens(200, 12));  // needs 3, can get 2
  const StatusReply before = driver.status();
  const Reply refused =
      driver.call(client, Admit{.header = {}, .sequence = kSecond, .max_new_tokens = 0});
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_GT(refused.retry_after_us, 0U);
  const StatusReply after = driver.status();
  EXPECT_EQ(after.tiers, before.tiers);
  EXPECT_EQ(after.tree_blocks, 1U);
  EXPECT_EQ(after.counters.exhausted, before.counters.exhausted + 1);
  EXPECT_EQ(after.counters.evicted_blocks, before.counters.evicted_blocks);
  EXPECT_EQ(after.counters.admissions, before.counters.admissions);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 5)).hit_tokens, 4U);
  // The same request succeeds once there is room.
  driver.step(client, StepScript().free(kFirst));
  EXPECT_EQ(driver.call(client, Admit{.header = {}, .sequence = kSecond}).error.code,
            ErrorCode::ok);
  EXPECT_EQ(driver.tier(Tier::device).held, 3U);
}

TEST(Admit, HitIsWholeBlocksAndLeavesOneTokenToCompute) {
  EngineDriver driver(options_with_slots(16, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 12);
  driver.cache_prompt(client, prompt);
  const Reply same = driver.admit(client, kFirst, prompt);  // floor(11 / 4) = 2 blocks
  EXPECT_EQ(device_hits(same), 8U);
  EXPECT_EQ(body_of(same).account.computed_tokens, 4U);
  const Reply longer = driver.admit(client, kSecond, continued(prompt, 13));
  EXPECT_EQ(device_hits(longer), 12U);
  EXPECT_EQ(body_of(longer).account.computed_tokens, 1U);
  std::vector<Token> diverging = prompt;
  diverging[5] = 77;
  const Reply shorter = driver.admit(client, kThird, diverging);
  EXPECT_EQ(device_hits(shorter), 4U);
  EXPECT_EQ(body_of(shorter).account.computed_tokens, 8U);
  EXPECT_EQ(driver.status().counters.hit_tokens[0], 24U);
  EXPECT_EQ(driver.status().counters.prompt_tokens, 12U + 12 + 13 + 12);
}

TEST(Admit, TableOfAHitHoldsTheCachedSlots) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 8);
  const Reply cold = driver.admit(client, kFirst, prompt);
  driver.step(client, StepScript().publish(kFirst, 8));
  const Reply warm = driver.admit(client, kSecond, continued(prompt, 9));
  ASSERT_EQ(body_of(warm).slots.size(), 3U);
  EXPECT_EQ(body_of(warm).slots[0], body_of(cold).slots[0]);
  EXPECT_EQ(body_of(warm).slots[1], body_of(cold).slots[1]);
  EXPECT_EQ(driver.tier(Tier::device).held, 1U);
  EXPECT_EQ(driver.tier(Tier::device).cached, 2U);
  EXPECT_EQ(driver.tier(Tier::device).covered, 2U);
  const Engine::SequenceView view = driver.live(client, kSecond);
  EXPECT_EQ(std::vector<std::uint8_t>(view.owned.begin(), view.owned.end()),
            (std::vector<std::uint8_t>{0, 0, 1}));
  EXPECT_EQ(view.published_blocks, 2U);
}

TEST(Admit, SkipReadComputesEverything) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 9);
  driver.cache_prompt(client, prompt);
  const NamespaceFields fields;
  driver.call(client, Open{.header = {},
                           .sequence = kFirst,
                           .first = true,
                           .fields = &fields,
                           .tokens = prompt,
                           .skip_read = true});
  const Reply reply = driver.call(client, Admit{.header = {}, .sequence = kFirst});
  EXPECT_EQ(device_hits(reply), 0U);
  EXPECT_EQ(body_of(reply).account.computed_tokens, 9U);
  EXPECT_EQ(driver.tier(Tier::device).held, 3U);
}

TEST(Admit, OtherNamespacesShareNothing) {
  EngineDriver driver(options_with_slots(16, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const ClientId stranger = driver.attach_with_pool(4, "another tenant");
  const ClientId colleague = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 9);
  driver.cache_prompt(client, prompt);
  EXPECT_EQ(device_hits(driver.admit(client, kFirst, prompt, 0, {.salt = "salt"})), 0U);
  // The tenant is the connection's, whatever the message says.
  EXPECT_EQ(device_hits(driver.admit(stranger, kFirst, prompt, 0, {.tenant = "tenant"})), 0U);
  EXPECT_EQ(device_hits(driver.admit(colleague, kFirst, prompt, 0, {.tenant = "elsewhere"})), 8U);
}

TEST(Admit, BlocksThatItPinsDoNotCountAsEvictable) {
  EngineDriver driver(options_with_slots(5, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 12);
  driver.cache_prompt(client, prompt);                    // 3 evictable
  driver.admit(client, kFirst, numbered_tokens(100, 4));  // 1 held, 1 free
  // 3 hits and 2 private blocks: free 1 + evictable 3 - 3 pinned.
  const Reply refused = driver.admit(client, kSecond, continued(prompt, 13), 7);
  EXPECT_EQ(refused.error.code, ErrorCode::exhausted);
  EXPECT_EQ(driver.tier(Tier::device).evictable, 3U);
  EXPECT_EQ(driver.tier(Tier::device).free, 1U);
  const Reply fits =
      driver.call(client, Admit{.header = {}, .sequence = kSecond, .max_new_tokens = 3});
  ASSERT_EQ(fits.error.code, ErrorCode::ok);
  EXPECT_EQ(device_hits(fits), 12U);
  EXPECT_EQ(driver.tier(Tier::device).free, 0U);
  EXPECT_EQ(driver.tier(Tier::device).evictable, 0U);
}

TEST(Admit, RefusalForWhatItWouldPinEvictsNothing) {
  EngineDriver driver(options_with_slots(6, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 12);
  driver.cache_prompt(client, numbered_tokens(500, 4));   // 1 evictable, the oldest
  driver.cache_prompt(client, prompt);                    // 3 evictable
  driver.admit(client, kFirst, numbered_tokens(100, 4));  // 1 held, 1 free
  // 3 hits and 3 private blocks: free 1 + evictable 4 - 3 pinned.
  EXPECT_EQ(driver.admit(client, kSecond, continued(prompt, 13), 11).error.code,
            ErrorCode::exhausted);
  EXPECT_EQ(driver.status().counters.evicted_blocks[0], 0U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(500, 5)).hit_tokens, 4U);
}

// PERF-11 of the scenarios: look up and pin first, then evict the leaf that is no hit.
TEST(Admit, SamePromptInAFullPoolEvictsOnlyTheLastBlock) {
  EngineDriver driver(options_with_slots(4, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 16);
  driver.cache_prompt(client, prompt);
  const Reply reply = driver.admit(client, kFirst, prompt);
  ASSERT_EQ(reply.error.code, ErrorCode::ok);
  EXPECT_EQ(device_hits(reply), 12U);
  EXPECT_EQ(body_of(reply).account.computed_tokens, 4U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[0], 1U);
  EXPECT_EQ(driver.status().counters.dropped_unsaved_blocks, 1U);
  EXPECT_EQ(driver.tier(Tier::device).held, 1U);
  EXPECT_EQ(driver.tier(Tier::device).cached, 3U);
}

TEST(Admit, SamePromptWithASpareSlotEvictsNothing) {
  EngineDriver driver(options_with_slots(5, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> prompt = numbered_tokens(1, 16);
  driver.cache_prompt(client, prompt);
  EXPECT_EQ(device_hits(driver.admit(client, kFirst, prompt)), 12U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[0], 0U);
  EXPECT_EQ(driver.tier(Tier::device).cached, 4U);
}

TEST(Admit, LeastRecentlyUsedPromptGoesFirst) {
  EngineDriver driver(options_with_slots(5, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<Token> older = numbered_tokens(1, 9);
  const std::vector<Token> newer = numbered_tokens(100, 9);
  driver.cache_prompt(client, numbered_tokens(1, 8));
  driver.cache_prompt(client, numbered_tokens(100, 8));
  driver.admit(client, kFirst, older);  // uses the older one again; free 0 after that
  driver.step(client, StepScript().free(kFirst));
  driver.admit(client, kSecond, numbered_tokens(200, 12));  // 3 of 5: 1 free and 2 evicted
  EXPECT_EQ(driver.lookup(client, older).hit_tokens, 8U);
  EXPECT_EQ(driver.lookup(client, newer).hit_tokens, 0U);
  EXPECT_EQ(driver.status().counters.evicted_blocks[0], 2U);
  EXPECT_EQ(driver.status().tree_blocks, 2U);
}

TEST(Admit, LookupTellsHitsByTierAndChangesNothing) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 12));
  const StatusReply before = driver.status();
  const LookupReply found = driver.lookup(client, continued(numbered_tokens(1, 12), 40));
  EXPECT_EQ(found.hit_tokens, 12U);
  EXPECT_EQ(found.hit_tokens_by_tier[0], 12U);
  EXPECT_EQ(found.hit_tokens_by_tier[1], 0U);
  EXPECT_EQ(found.known_tokens, 12U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 3)).hit_tokens, 0U);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(500, 40), {.salt = "x"}).hit_tokens, 0U);
  const StatusReply after = driver.status();
  EXPECT_EQ(after.tiers, before.tiers);
  EXPECT_EQ(after.namespaces, before.namespaces);
  EXPECT_EQ(after.tree_blocks, before.tree_blocks);
  EXPECT_EQ(after.counters.lookups, before.counters.lookups + 3);
}

}  // namespace
}  // namespace kv::core
