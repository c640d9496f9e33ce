// Cold, warm, shared and demoted prefixes through the client library and the real service.
#include <cerrno>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/end_to_end/service_fixture.h"

namespace kv::test {
namespace {

TEST_F(ServiceTest, ASecondSequenceReadsTheBytesThatTheFirstOneWrote) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto prompt = prompt_of(1, 100);
  const auto cold = runner.run(SequenceId(1), prompt);
  EXPECT_EQ(cold.prompt_tokens, 100U);
  EXPECT_EQ(cold.hits(), 0U);
  EXPECT_EQ(cold.computed_tokens, 100U);
  const auto warm = runner.run(SequenceId(2), prompt);
  EXPECT_EQ(warm.hit_tokens[0], 96U);  // 16 x floor(99 / 16)
  EXPECT_EQ(warm.computed_tokens, 4U);
}

TEST_F(ServiceTest, OneTokenIsAlwaysComputed) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto prompt = prompt_of(2, 96);
  (void)runner.run(SequenceId(1), prompt);
  EXPECT_EQ(runner.run(SequenceId(2), prompt).hits(), 80U);  // 16 x floor(95 / 16)
}

TEST_F(ServiceTest, TwoClientsShareWhatEitherPublished) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner first(connect());
  TestRunner second(connect());
  const auto prompt = prompt_of(3, 64);
  (void)first.run(SequenceId(1), prompt);
  auto longer = prompt;
  for (const Token token : prompt_of(4, 40)) longer.push_back(token);
  const auto account = second.run(SequenceId(1), longer);
  EXPECT_EQ(account.hit_tokens[0], 64U);
  EXPECT_EQ(account.computed_tokens, 40U);
  // 104 tokens are 6 full blocks, 4 of them shared: the pool holds each once.
  const auto status = first.client().status(in(seconds(20)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->tiers[0].cached, 6U);
  EXPECT_EQ(status->tiers[0].held, 0U);
}

TEST_F(ServiceTest, ABlockThatBothComputedIsKeptOnceAndTheLaterTableIsRewritten) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner first(connect());
  TestRunner second(connect());
  const auto prompt = prompt_of(5, 33);
  const auto one = first.begin(SequenceId(1), prompt);
  const auto two = second.begin(SequenceId(1), prompt);
  EXPECT_EQ(one.account.hits() + two.account.hits(), 0U);
  first.compute(one, prompt);
  second.compute(two, prompt);
  EXPECT_TRUE(first.publish(SequenceId(1), prompt.size()).deltas.empty());
  const auto outcome = second.publish(SequenceId(1), prompt.size());
  std::vector<SlotId> rewritten;
  std::uint32_t version = 0;
  for (const auto& delta : outcome.deltas) {
    rewritten.insert(rewritten.end(), delta.slots.begin(), delta.slots.end());
    version = std::max(version, delta.version);
  }
  EXPECT_EQ(rewritten, (std::vector{one.slots[0], one.slots[1]}));
  client::StepRequest acknowledge;
  acknowledge.acknowledge = {{SequenceId(1), version}};
  (void)second.step(acknowledge);
  const auto status = first.client().status(in(seconds(20)));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->tiers[0].cached, 2U);
  EXPECT_EQ(status->tiers[0].held, 2U) << "each sequence's partial block";
}

TEST_F(ServiceTest, ADemotedPrefixComesBackFromTheHostTierWithItsBytes) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto prompt = prompt_of(6, 200);
  (void)runner.run(SequenceId(1), prompt);
  const auto demoted = connect(Client::Role::admin)->demote(Tier::device, in(seconds(30)));
  ASSERT_TRUE(demoted) << demoted.error().reason;
  EXPECT_EQ(demoted->dropped_blocks, 12U);
  EXPECT_EQ(demoted->kept_blocks, 0U);
  const auto account = runner.run(SequenceId(2), prompt);
  EXPECT_EQ(account.hit_tokens[1], 192U);
  EXPECT_EQ(account.hit_tokens[0], 0U);
  EXPECT_EQ(runner.run(SequenceId(3), prompt).hit_tokens[0], 192U) << "loaded copies stay";
}

TEST_F(ServiceTest, TheHostArenaCanBeReadButNeverWrittenByAClient) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto prompt = prompt_of(11, 2 * kBlockTokens + 1);
  (void)runner.run(SequenceId(1), prompt);
  ASSERT_TRUE(connect(Client::Role::admin)->demote(Tier::device, in(seconds(30))));

  const auto arena = runner.client().attach_arena(in(seconds(20)));
  ASSERT_TRUE(arena) << arena.error().reason;
  EXPECT_EQ(arena->size(), 2U << 20U);  // host.bytes of the fixture
  const auto first = block_bytes_of(std::span(prompt).first(kBlockTokens));
  std::size_t found = 0;
  for (std::size_t at = 0; at + kBlockBytes <= arena->size(); at += kBlockBytes) {
    if (std::memcmp(arena->data() + at, first.data(), kBlockBytes) == 0) ++found;
  }
  EXPECT_EQ(found, 1U) << "the demoted block lies in the arena once";
  // The mapping cannot be made writable, not even by root.
  void* const page = const_cast<std::byte*>(arena->data());
  EXPECT_EQ(mprotect(page, 4'096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(ServiceTest, BothTiersEmptiedAPrefixComesBackFromDisk) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto prompt = prompt_of(7, 200);
  (void)runner.run(SequenceId(1), prompt);
  auto admin = connect(Client::Role::admin);
  ASSERT_TRUE(admin->demote(Tier::device, in(seconds(30))));
  const auto demoted = admin->demote(Tier::host, in(seconds(30)));
  ASSERT_TRUE(demoted) << demoted.error().reason;
  EXPECT_EQ(demoted->dropped_blocks, 12U);
  EXPECT_EQ(runner.run(SequenceId(2), prompt).hit_tokens[2], 192U);
}

TEST_F(ServiceTest, AFullPoolIsExhaustedAndServesAgainWhenASequenceEnds) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  // 1 MiB of 2 KiB blocks: 512 slots. The sequences have 400, 200 and 513 blocks.
  const auto big = runner.begin(SequenceId(1), prompt_of(8, 6'400));
  EXPECT_EQ(big.block_count, 400U);
  auto& client = runner.client();
  const auto prompt = prompt_of(9, 3'200);
  ASSERT_TRUE(client.open(SequenceId(2), test_namespace(), prompt, {}, in(seconds(20))));
  const auto refused = client.admit(SequenceId(2), 0, in(seconds(20)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::exhausted);
  (void)runner.free(SequenceId(1));
  const auto admitted = client.admit(SequenceId(2), 0, in(seconds(20)));
  ASSERT_TRUE(admitted) << admitted.error().reason;
  EXPECT_EQ(admitted->block_count, 200U);
  ASSERT_TRUE(
      client.open(SequenceId(3), test_namespace(), prompt_of(10, 8'208), {}, in(seconds(20))));
  EXPECT_EQ(client.admit(SequenceId(3), 0, in(seconds(20))).error().code, ErrorCode::too_large);
}

TEST_F(ServiceTest, ALongPromptInSeveralMessagesIsOneSequence) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  auto client = connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->attach_pool(test_layout(), in(seconds(20))));
  ASSERT_TRUE(
      client->open(SequenceId(1), test_namespace(), prompt_of(11, 140'000), {}, in(seconds(20))));
  // It has more blocks than the pool has slots, which the service can only know from all parts.
  EXPECT_EQ(client->admit(SequenceId(1), 0, in(seconds(20))).error().code, ErrorCode::too_large);
}

TEST_F(ServiceTest, AnotherLayoutIsRefusedWithTheFieldThatDiffers) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  auto other = test_layout();
  other.groups[0].head_dim_k = 4;
  const auto refused = connect()->attach_pool(other, in(seconds(20)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::mismatch);
  EXPECT_EQ(refused.error().field, "head_dim_k");
}

TEST_F(ServiceTest, AnIdleClientKeepsItsLease) {
  service_ = std::make_unique<Program>(
      std::vector<std::string>{built("cachesvc"), "serve", "--dir", dir_.path()},
      std::vector<std::string>{"CACHESVC_CLIENT__LEASE=1s", "CACHESVC_DEVICE__BYTES=1MiB"});
  ASSERT_TRUE(service_->read_lines(1, seconds(30))) << service_->err();
  TestRunner idle(connect());
  const auto held = idle.begin(SequenceId(1), prompt_of(12, 32));
  EXPECT_EQ(held.block_count, 2U);
  auto observer = connect();
  // Longer than the lease, by the clock of this test; the observer's calls are its own heartbeats.
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2'500);
  wait_for(*observer, [end](const auto&) { return std::chrono::steady_clock::now() >= end; });
  EXPECT_EQ(counter(*observer, "expired_clients"), 0U);
  EXPECT_EQ(idle.free(SequenceId(1)).ended.size(), 1U);
}

}  // namespace
}  // namespace kv::test
