// Every reply, from the core value to what a client reads from its bytes.
#include "cachesvc/wire/reply_encoder.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "schemas/reply_generated.h"
#include "tests/cachesvc/wire/samples.h"

namespace kv::testing {
namespace {

// A sample reply as a client sees it.
class Received {
 public:
  explicit Received(std::string_view name) {
    for (Sample& sample : reply_samples()) {
      if (sample.name == name) bytes_ = sample.bytes;
    }
    flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes_.data()),
                                   bytes_.size(), 16, 4096);
    EXPECT_TRUE(wire::VerifyReplyBuffer(verifier)) << name;
    EXPECT_EQ(get().boot()->a(), 0x0102030405060708U);
    EXPECT_EQ(get().boot()->b(), 0x090A0B0C0D0E0F10U);
  }
  [[nodiscard]] const wire::Reply& get() const { return *wire::GetReply(bytes_.data()); }
  const wire::Reply* operator->() const { return &get(); }

  void expect_ok(wire::ReplyBody type) const {
    EXPECT_EQ(get().request(), 3U);
    EXPECT_EQ(get().code(), wire::ErrorCode::ok);
    EXPECT_EQ(get().reason(), nullptr);
    EXPECT_EQ(get().notices(), nullptr);
    EXPECT_EQ(get().body_type(), type);
  }

 private:
  std::vector<std::byte> bytes_;
};

void expect_sample_account(const wire::Account& account) {
  EXPECT_EQ(account.prompt_tokens(), 100U);
  EXPECT_EQ(account.device_tokens(), 32U);
  EXPECT_EQ(account.host_tokens(), 16U);
  EXPECT_EQ(account.disk_tokens(), 8U);
  EXPECT_EQ(account.remote_tokens(), 4U);
  EXPECT_EQ(account.computed_tokens(), 40U);
  EXPECT_EQ(account.generated_tokens(), 12U);
}

TEST(ReplyEncoder, WritesAnAnswerWithoutABody) {
  Received("reply_empty").expect_ok(wire::ReplyBody::NONE);
}

TEST(ReplyEncoder, WritesHelloAndPool) {
  const Received hello("reply_hello");
  hello.expect_ok(wire::ReplyBody::HelloReply);
  EXPECT_EQ(hello->body_as_HelloReply()->lease_ms(), 10'000U);
  EXPECT_EQ(hello->body_as_HelloReply()->credits(), 64U);

  const Received pool("reply_attach_pool");
  pool.expect_ok(wire::ReplyBody::AttachPoolReply);
  EXPECT_EQ(pool->body_as_AttachPoolReply()->pool_bytes(), 659'456U);
  ASSERT_EQ(pool->body_as_AttachPoolReply()->groups()->size(), 1U);
  const wire::PoolGroup* group = pool->body_as_AttachPoolReply()->groups()->Get(0);
  EXPECT_EQ(group->offset(), 4096U);
  EXPECT_EQ(group->slot_bytes(), 65'536U);
  EXPECT_EQ(group->slot_count(), 10U);
}

TEST(ReplyEncoder, WritesAnAdmission) {
  const Received reply("reply_admit");
  reply.expect_ok(wire::ReplyBody::AdmitReply);
  const wire::AdmitReply& admit = *reply->body_as_AdmitReply();
  EXPECT_TRUE(admit.ready());
  expect_sample_account(*admit.account());
  EXPECT_EQ(admit.table_version(), 9U);
  EXPECT_EQ(admit.block_count(), 3U);
  const std::vector<std::uint32_t> slots(admit.slots()->begin(), admit.slots()->end());
  EXPECT_EQ(slots, (std::vector<std::uint32_t>{5, 6, 0xFFFFFFFEU}));
}

TEST(ReplyEncoder, WritesAStepWithFailuresDeltasAndEndedSequences) {
  const Received reply("reply_step");
  reply.expect_ok(wire::ReplyBody::StepReply);
  const wire::StepReply& step = *reply->body_as_StepReply();
  ASSERT_EQ(step.failures()->size(), 2U);
  EXPECT_EQ(step.failures()->Get(0)->item(), 1U);
  EXPECT_EQ(step.failures()->Get(0)->code(), wire::ErrorCode::not_found);
  EXPECT_EQ(step.failures()->Get(1)->item(), 4U);
  EXPECT_EQ(step.failures()->Get(1)->code(), wire::ErrorCode::exhausted);
  ASSERT_EQ(step.failure_reasons()->size(), 2U);
  EXPECT_EQ(step.failure_reasons()->Get(0)->str(), "unknown sequence");
  EXPECT_EQ(step.failure_reasons()->Get(1)->str(), "no free slot");
  ASSERT_EQ(step.failure_fields()->size(), 2U);
  EXPECT_EQ(step.failure_fields()->Get(0)->str(), "sequence");
  EXPECT_EQ(step.failure_fields()->Get(1)->str(), "");
  ASSERT_EQ(step.deltas()->size(), 1U);
  const wire::TableDelta* delta = step.deltas()->Get(0);
  EXPECT_EQ(delta->sequence(), 21U);
  EXPECT_EQ(delta->group(), 1U);
  EXPECT_EQ(delta->version(), 10U);
  EXPECT_EQ(delta->first_block(), 3U);
  EXPECT_EQ(delta->slot_offset(), 0U);
  EXPECT_EQ(delta->slot_count(), 2U);
  const std::vector<std::uint32_t> slots(step.slots()->begin(), step.slots()->end());
  EXPECT_EQ(slots, (std::vector<std::uint32_t>{70, 71}));
  ASSERT_EQ(step.ended()->size(), 1U);
  EXPECT_EQ(step.ended()->Get(0)->sequence(), 24U);
  expect_sample_account(step.ended()->Get(0)->account());
}

TEST(ReplyEncoder, WritesNoFieldsOfFailuresThatBlameNone) {
  core::StepReply step;
  step.failures = {{.item = 0, .error = {ErrorCode::exhausted, "no free slot", {}}}};
  core::Reply reply;
  reply.request = RequestId(1);
  reply.body = step;
  codec::ReplyEncoder encoder({1, 2});
  const auto bytes = encoder.encode(reply, {});
  const auto* body = wire::GetReply(bytes.data())->body_as_StepReply();
  EXPECT_EQ(body->failure_reasons()->size(), 1U);
  EXPECT_EQ(body->failure_fields(), nullptr);
}

TEST(ReplyEncoder, WritesALookup) {
  const Received reply("reply_lookup");
  reply.expect_ok(wire::ReplyBody::LookupReply);
  const wire::LookupReply& lookup = *reply->body_as_LookupReply();
  EXPECT_EQ(lookup.hit_tokens(), 48U);
  EXPECT_EQ(lookup.known_tokens(), 64U);
  const auto* by_tier = lookup.hit_tokens_by_tier();
  EXPECT_EQ(std::vector<std::uint64_t>(by_tier->begin(), by_tier->end()),
            (std::vector<std::uint64_t>{16, 32, 0, 0}));
}

TEST(ReplyEncoder, WritesTheTiersOfAStatus) {
  const Received reply("reply_status");
  reply.expect_ok(wire::ReplyBody::StatusReply);
  const wire::StatusReply& status = *reply->body_as_StatusReply();
  ASSERT_EQ(status.tiers()->size(), 4U);
  for (std::uint32_t tier = 0; tier < 4; ++tier) {
    SCOPED_TRACE(tier);
    const wire::TierStatus* got = status.tiers()->Get(tier);
    const std::uint32_t first = 10 * tier + 1;
    EXPECT_EQ(got->slot_bytes(), 4096U * first);
    EXPECT_EQ(got->slots(), first);
    EXPECT_EQ(got->free(), first + 1);
    EXPECT_EQ(got->held(), first + 2);
    EXPECT_EQ(got->cached(), first + 3);
    EXPECT_EQ(got->fenced(), first + 4);
    EXPECT_EQ(got->covered(), first + 5);
    EXPECT_EQ(got->evictable(), first + 6);
    EXPECT_EQ(got->arriving(), first + 7);
  }
  EXPECT_EQ(status.clients(), 51U);
  EXPECT_EQ(status.sequences(), 52U);
  EXPECT_EQ(status.transfers_in_flight(), 53U);
  EXPECT_EQ(status.tree_blocks(), 54U);
  EXPECT_EQ(status.tree_nodes(), 55U);
  EXPECT_EQ(status.holes(), 56U);
  EXPECT_EQ(status.namespaces(), 57U);
  EXPECT_EQ(status.block_tokens(), 16U);
  EXPECT_EQ(status.metadata_bytes(), 0x123456789AU);
  EXPECT_TRUE(status.recovering());
}

TEST(ReplyEncoder, WritesEveryCounterByItsNameAndTier) {
  core::StatusReply status;
  status.counters.hit_tokens = {1, 2, 3, 4};
  status.counters.lookups = 5;
  status.counters.gone_clients = 6;
  status.counters.loaded_blocks = {7, 8, 9, 10};
  core::Reply reply;
  reply.request = RequestId(1);
  reply.body = status;
  codec::ReplyEncoder encoder({1, 2});
  const auto bytes = encoder.encode(reply, {});
  std::map<std::string, std::uint64_t> got;
  for (const auto* counter : *wire::GetReply(bytes.data())->body_as_StatusReply()->counters()) {
    EXPECT_TRUE(got.emplace(counter->name()->str(), counter->value()).second);
  }
  EXPECT_EQ(got.size(), sizeof(core::Counters) / sizeof(std::uint64_t));
  EXPECT_EQ(got.at("hit_tokens.device"), 1U);
  EXPECT_EQ(got.at("hit_tokens.host"), 2U);
  EXPECT_EQ(got.at("hit_tokens.disk"), 3U);
  EXPECT_EQ(got.at("hit_tokens.remote"), 4U);
  EXPECT_EQ(got.at("lookups"), 5U);
  EXPECT_EQ(got.at("gone_clients"), 6U);
  EXPECT_EQ(got.at("loaded_blocks.remote"), 10U);
  EXPECT_EQ(got.at("admissions"), 0U);
}

TEST(ReplyEncoder, WritesTheShellsCountersOfNowBesideTheCores) {
  codec::ShellCounters shell;
  codec::ReplyEncoder encoder({1, 2}, &shell);
  core::Reply reply;
  reply.request = RequestId(1);
  reply.body = core::StatusReply{};
  const auto denied = [&] {
    const auto bytes = encoder.encode(reply, {});
    const auto* counters = wire::GetReply(bytes.data())->body_as_StatusReply()->counters();
    EXPECT_EQ(counters->size(),
              (sizeof(core::Counters) + sizeof(codec::ShellCounters)) / sizeof(std::uint64_t));
    for (const auto* counter : *counters) {
      if (counter->name()->str() == "denied_requests") return counter->value();
    }
    return ~std::uint64_t{0};
  };
  EXPECT_EQ(denied(), 0U);
  shell.denied_requests = 3;
  EXPECT_EQ(denied(), 3U);
}

TEST(ReplyEncoder, WritesDigestsSoThatTheirBytesKeepTheirOrder) {
  const Received reply("reply_tree");
  reply.expect_ok(wire::ReplyBody::TreeReply);
  const wire::TreeReply& tree = *reply->body_as_TreeReply();
  EXPECT_TRUE(tree.truncated());
  ASSERT_EQ(tree.nodes()->size(), 2U);
  const wire::TreeNode* first = tree.nodes()->Get(0);
  EXPECT_EQ(first->namespace_digest().a(), 0x0706050403020100U);
  EXPECT_EQ(first->namespace_digest().d(), 0x1F1E1D1C1B1A1918U);
  EXPECT_EQ(first->last_key().a(), 0xF8F9FAFBFCFDFEFFU);
  const auto* raw = reinterpret_cast<const std::uint8_t*>(&first->namespace_digest());
  for (std::uint8_t i = 0; i < 32; ++i) EXPECT_EQ(raw[i], i);
  EXPECT_EQ(first->parent(), 0xFFFFFFFFU);
  EXPECT_EQ(first->depth(), 0U);
  EXPECT_EQ(first->block_count(), 5U);
  EXPECT_EQ(first->device_copies(), 5U);
  EXPECT_EQ(first->host_copies(), 4U);
  EXPECT_EQ(first->disk_copies(), 3U);
  EXPECT_EQ(first->remote_copies(), 2U);
  EXPECT_EQ(first->pinned(), 1U);
  EXPECT_EQ(tree.nodes()->Get(1)->parent(), 0U);
  EXPECT_EQ(tree.nodes()->Get(1)->depth(), 5U);
}

TEST(ReplyEncoder, WritesDemoteAndFlush) {
  const Received demote("reply_demote");
  demote.expect_ok(wire::ReplyBody::DemoteReply);
  EXPECT_EQ(demote->body_as_DemoteReply()->saved_blocks(), 8U);
  EXPECT_EQ(demote->body_as_DemoteReply()->dropped_blocks(), 9U);
  EXPECT_EQ(demote->body_as_DemoteReply()->kept_blocks(), 10U);
  const Received flush("reply_flush");
  flush.expect_ok(wire::ReplyBody::FlushReply);
  EXPECT_EQ(flush->body_as_FlushReply()->durable_blocks(), 11U);
  EXPECT_EQ(flush->body_as_FlushReply()->unsaved_blocks(), 12U);
}

TEST(ReplyEncoder, WritesClear) {
  const Received clear("reply_clear");
  clear.expect_ok(wire::ReplyBody::ClearReply);
  EXPECT_EQ(clear->body_as_ClearReply()->cleared_blocks(), 13U);
  EXPECT_EQ(clear->body_as_ClearReply()->kept_blocks(), 14U);
  EXPECT_EQ(clear->body_as_ClearReply()->epoch(), 15U);
}

TEST(ReplyEncoder, WritesAnErrorWithItsReasonFieldHintAndNotices) {
  const Received reply("reply_busy");
  EXPECT_EQ(reply->request(), 3U);
  EXPECT_EQ(reply->code(), wire::ErrorCode::busy);
  EXPECT_EQ(reply->reason()->str(), "too many open requests");
  EXPECT_EQ(reply->field()->str(), "request");
  EXPECT_EQ(reply->retry_after_us(), 250U);
  EXPECT_EQ(reply->body_type(), wire::ReplyBody::NONE);
  ASSERT_EQ(reply->notices()->size(), 1U);
  EXPECT_EQ(reply->notices()->Get(0)->number(), 4U);
}

TEST(ReplyEncoder, WritesNoticesAloneAsAnswerToNoRequest) {
  const Received reply("reply_notices_only");
  EXPECT_EQ(reply->request(), 0U);
  EXPECT_EQ(reply->code(), wire::ErrorCode::ok);
  EXPECT_EQ(reply->body_type(), wire::ReplyBody::NONE);
  ASSERT_EQ(reply->notices()->size(), 2U);
  const wire::Notice* first = reply->notices()->Get(0);
  EXPECT_EQ(first->number(), 5U);
  EXPECT_EQ(first->kind(), wire::NoticeKind::sequence_ready);
  EXPECT_EQ(first->code(), wire::ErrorCode::busy);
  EXPECT_EQ(first->sequence(), 21U);
  expect_sample_account(first->account());
  EXPECT_EQ(reply->notices()->Get(1)->number(), 6U);
  EXPECT_EQ(reply->notices()->Get(1)->kind(), wire::NoticeKind::lease_expired);
}

TEST(ReplyEncoder, WritesTheSameBytesWhateverItWroteBefore) {
  core::Reply small;
  small.request = RequestId(1);
  small.body = core::FlushReply{.durable_blocks = 1, .unsaved_blocks = 2};
  core::Reply large = small;
  core::AdmitReply admit;
  admit.slots.assign(100'000, SlotId(3));
  large.body = admit;
  codec::ReplyEncoder encoder({1, 2});
  const auto first = encoder.encode(small, {});
  const std::vector<std::byte> before(first.begin(), first.end());
  EXPECT_GT(encoder.encode(large, {}).size(), 400'000U);
  const auto again = encoder.encode(small, {});
  EXPECT_EQ(before, std::vector<std::byte>(again.begin(), again.end()));
}

}  // namespace
}  // namespace kv::testing
