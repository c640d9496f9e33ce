// The client's codec and the service's codec are written apart from each other: what one side
// writes, the other reads.
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "cachesvc/wire/codec.h"
#include "plugins/client/attach.h"
#include "plugins/client/reply_decoder.h"
#include "plugins/client/request_encoder.h"
#include "tests/cachesvc/wire/form_report.h"
#include "tests/cachesvc/wire/samples.h"

namespace kv::testing {
namespace {

constexpr client::RequestHead kHead{
    .client = ClientId(7), .secret = {5, 6}, .request = RequestId(9), .notices_acknowledged = 4};

// Sends one message from the client's encoder to the service's decoder.
class Sent {
 public:
  explicit Sent(const client::RequestMessage& message, const client::RequestHead& head = kHead)
      : result_(send(message, head)) {
    EXPECT_TRUE(result_.has_value());
    if (!result_) return;
    EXPECT_EQ(result_->envelope.client, ClientId(7));
    EXPECT_EQ(result_->envelope.secret, (codec::Id128{5, 6}));
    EXPECT_EQ(result_->envelope.request, RequestId(9));
    EXPECT_EQ(form_report(result_->input).error, "");
  }
  template <class T>
  [[nodiscard]] const T& as() const {
    const T& value = std::get<T>(result_->input);
    EXPECT_EQ(value.header.notices_acknowledged, 4U);
    return value;
  }

 private:
  Result<codec::DecodedRequest> send(const client::RequestMessage& message,
                                     const client::RequestHead& head) {
    KV_TRY(const std::span<const std::byte> frame, encoder_.encode(head, message));
    return decoder_.decode(frame);
  }

  client::RequestEncoder encoder_;
  codec::RequestDecoder decoder_;
  Result<codec::DecodedRequest> result_;
};

std::vector<Token> some_tokens(std::size_t count, Prng& prng) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(prng.next());
  return tokens;
}

std::vector<Token> copy_of(std::span<const Token> tokens) { return {tokens.begin(), tokens.end()}; }

TEST(BothSides, AgreeOnMessagesOfFixedSize) {
  const Sent hello(client::HelloMessage{.name = "runner", .instance = 3, .rank = 1});
  EXPECT_EQ(hello.as<core::Hello>().name, "runner");
  EXPECT_EQ(hello.as<core::Hello>().protocol_version, client::kProtocolVersion);
  EXPECT_EQ(hello.as<core::Hello>().instance, 3U);
  EXPECT_EQ(hello.as<core::Hello>().rank, 1U);
  const Sent admit(client::AdmitMessage{.sequence = SequenceId(8), .max_new_tokens = 100});
  EXPECT_EQ(admit.as<core::Admit>().sequence, SequenceId(8));
  EXPECT_EQ(admit.as<core::Admit>().max_new_tokens, 100U);
  const Sent tree(client::TreeMessage{.node_limit = 12});
  EXPECT_EQ(tree.as<core::Tree>().node_limit, 12U);
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk, Tier::remote}) {
    const Sent demote(client::DemoteMessage{.tier = tier});
    EXPECT_EQ(demote.as<core::Demote>().tier, tier);
  }
  const NamespaceFields fields{.weights = "w", .salt = "s"};
  const Sent clear(client::ClearMessage{.tier = Tier::host, .fields = &fields});
  EXPECT_FALSE(clear.as<core::Clear>().all_tiers);
  EXPECT_EQ(clear.as<core::Clear>().tier, Tier::host);
  EXPECT_EQ(clear.as<core::Clear>().fields->salt, "s");
  const Sent clear_all(client::ClearMessage{});
  EXPECT_TRUE(clear_all.as<core::Clear>().all_tiers);
  EXPECT_EQ(clear_all.as<core::Clear>().fields, nullptr);
  const Sent set_epoch(client::SetEpochMessage{.fields = &fields, .epoch = 12});
  EXPECT_EQ(set_epoch.as<core::SetEpoch>().fields->weights, "w");
  EXPECT_EQ(set_epoch.as<core::SetEpoch>().epoch, 12U);
  EXPECT_EQ(Sent(client::HeartbeatMessage{}).as<core::Heartbeat>().header.request, RequestId(9));
  EXPECT_EQ(Sent(client::ByeMessage{}).as<core::Bye>().header.request, RequestId(9));
  EXPECT_EQ(Sent(client::StatusMessage{}).as<core::Status>().header.request, RequestId(9));
  EXPECT_EQ(Sent(client::FlushMessage{}).as<core::Flush>().header.request, RequestId(9));
}

TEST(BothSides, AgreeOnLayoutsOfAnyNumberOfGroups) {
  for (std::uint32_t groups = 1; groups <= kLayerGroupsMax; ++groups) {
    SCOPED_TRACE(groups);
    KvLayout layout{.block_tokens = 16, .groups = {}};
    for (std::uint32_t i = 0; i < groups; ++i) {
      layout.groups.push_back({.kind = AttentionKind::full,
                               .layer_count = 1 + i,
                               .kv_head_count = 2,
                               .head_dim_k = 8 + i,
                               .head_dim_v = 16,
                               .k_dtype = static_cast<DType>(i % kDTypeCount),
                               .v_dtype = DType::bf16});
    }
    const Sent pool(client::PoolMessage{.layout = &layout});
    EXPECT_EQ(*pool.as<core::AttachPool>().layout, layout);
    // Fields with their default value are not written: the message is laid out in another way.
    client::RequestHead head = kHead;
    head.notices_acknowledged = 0;
    const Sent again(client::PoolMessage{.layout = &layout}, head);
  }
}

TEST(BothSides, AgreeOnSequencesAndLookupsOfAnySize) {
  Prng prng(11);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    std::array<std::string, 5> texts;
    for (std::string& text : texts)
      text = std::string(prng.below(40), static_cast<char>('a' + i % 26));
    const NamespaceFields fields{.weights = texts[0],
                                 .model_config = texts[1],
                                 .adapter = texts[2],
                                 .adapter_revision = texts[3],
                                 .tenant = "does not travel",
                                 .salt = texts[4]};
    const std::vector<Token> tokens = some_tokens(prng.below(60), prng);
    const bool first = prng.chance(2, 3);
    const client::OpenMessage message{
        .sequence = SequenceId(prng.below(1000)),
        .fields = first ? &fields : nullptr,
        .tokens = tokens,
        .options = {.skip_read = prng.chance(1, 2), .accept_rewrite = prng.chance(1, 2)}};
    const Sent sent(message);
    const auto& open = sent.as<core::Open>();
    EXPECT_EQ(open.sequence, message.sequence);
    EXPECT_EQ(open.first, first);
    EXPECT_EQ(copy_of(open.tokens), tokens);
    EXPECT_EQ(open.skip_read, message.options.skip_read);
    EXPECT_EQ(open.accept_rewrite, message.options.accept_rewrite);

    const Sent sent_lookup(client::LookupMessage{.fields = &fields, .tokens = tokens});
    const auto& lookup = sent_lookup.as<core::Lookup>();
    EXPECT_EQ(copy_of(lookup.tokens), tokens);
    EXPECT_EQ(lookup.fields->weights, texts[0]);
    EXPECT_EQ(lookup.fields->model_config, texts[1]);
    EXPECT_EQ(lookup.fields->adapter, texts[2]);
    EXPECT_EQ(lookup.fields->adapter_revision, texts[3]);
    EXPECT_EQ(lookup.fields->salt, texts[4]);
    EXPECT_EQ(lookup.fields->tenant, "");

    const Sent sent_why(client::WhyMessage{.fields = &fields, .tokens = tokens});
    EXPECT_EQ(copy_of(sent_why.as<core::Why>().tokens), tokens);
    EXPECT_EQ(sent_why.as<core::Why>().fields->adapter_revision, texts[3]);
  }
}

client::StepItem random_item(std::size_t token_count, std::size_t child_count, Prng& prng) {
  client::StepItem item;
  item.sequence = SequenceId(prng.below(100));
  item.op = static_cast<client::StepOp>(prng.below(8));
  if (item.op == client::StepOp::fork && child_count == 0) item.op = client::StepOp::preempt;
  if (item.op == client::StepOp::fork) {
    item.token_count = static_cast<std::uint32_t>(prng.next());
    item.value = static_cast<std::uint32_t>(prng.below(child_count));
  } else if (item.op == client::StepOp::drop) {
    item.token_offset = static_cast<std::uint32_t>(prng.next());
    item.token_count = static_cast<std::uint32_t>(prng.next());
  } else if (item.op == client::StepOp::append) {
    item.token_offset = static_cast<std::uint32_t>(prng.below(token_count + 1));
    item.token_count = static_cast<std::uint32_t>(prng.below(token_count + 1 - item.token_offset));
  } else if (item.op != client::StepOp::free && item.op != client::StepOp::preempt) {
    item.value = static_cast<std::uint32_t>(prng.next());
  }
  return item;
}

TEST(BothSides, AgreeOnStepsOfAnySize) {
  Prng prng(12);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const std::vector<Token> tokens = some_tokens(prng.below(50), prng);
    std::vector<client::StepItem> items(prng.below(50));
    std::vector<SequenceId> children(prng.below(5));
    for (SequenceId& child : children) child = SequenceId(prng.next() / 2);
    for (client::StepItem& item : items) item = random_item(tokens.size(), children.size(), prng);
    const Sent sent(client::StepMessage{.step_seq = 10,
                                        .completed_step = 8,
                                        .items = items,
                                        .tokens = tokens,
                                        .children = children});
    const auto& step = sent.as<core::Step>();
    EXPECT_EQ(std::vector(step.children.begin(), step.children.end()), children);
    EXPECT_EQ(step.step_seq, 10U);
    EXPECT_EQ(step.completed_step, 8U);
    EXPECT_EQ(copy_of(step.tokens), tokens);
    ASSERT_EQ(step.items.size(), items.size());
    for (std::size_t k = 0; k < items.size(); ++k) {
      EXPECT_EQ(step.items[k].sequence, items[k].sequence);
      EXPECT_EQ(static_cast<int>(step.items[k].op), static_cast<int>(items[k].op));
      EXPECT_EQ(step.items[k].token_offset, items[k].token_offset);
      EXPECT_EQ(step.items[k].token_count, items[k].token_count);
      EXPECT_EQ(step.items[k].value, items[k].value);
    }
  }
}

TEST(BothSides, HaveTheSameLimits) {
  EXPECT_EQ(client::kRequestBytesMax, codec::kMessageBytesMax);
  EXPECT_EQ(client::kNameBytesMax, codec::kClientNameBytesMax);
  EXPECT_EQ(client::kTokensPerMessageMax, core::kTokensPerMessageMax);
  EXPECT_EQ(client::kStepItemsMax, core::kStepItemsMax);
  EXPECT_EQ(client::kTreeNodesMax, core::kTreeNodesMax);
}

client::ReplyMessage received(std::string_view name) {
  for (const Sample& sample : reply_samples()) {
    if (sample.name != name) continue;
    auto reply = client::decode_reply(sample.bytes);
    EXPECT_TRUE(reply.has_value()) << name;
    if (reply) return std::move(reply).value();
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(BothSides, AgreeOnEveryReply) {
  for (const Sample& sample : reply_samples()) {
    SCOPED_TRACE(sample.name);
    const auto reply = client::decode_reply(sample.bytes);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->boot, (client::Id128{0x0102030405060708U, 0x090A0B0C0D0E0F10U}));
    EXPECT_EQ(reply->request.value, sample.name == "reply_notices_only" ? 0U : 3U);
  }
  EXPECT_EQ(std::get<client::HelloAnswer>(received("reply_hello").body).lease_ms, 10'000U);
  EXPECT_EQ(std::get<client::PoolAnswer>(received("reply_attach_pool").body).groups.size(), 1U);
  const auto admit = std::get<client::AdmitAnswer>(received("reply_admit").body);
  EXPECT_TRUE(admit.ready);
  EXPECT_EQ(admit.admission.account.hit_tokens, (std::array<std::uint64_t, 4>{32, 16, 8, 4}));
  EXPECT_EQ(admit.admission.slots,
            (std::vector<SlotId>{SlotId(5), SlotId(6), SlotId(0xFFFFFFFEU)}));
  const auto lookup = std::get<client::LookupHits>(received("reply_lookup").body);
  EXPECT_EQ(lookup.hit_tokens_by_tier, (std::array<std::uint64_t, 4>{16, 32, 0, 0}));
  EXPECT_EQ(std::get<client::DemoteOutcome>(received("reply_demote").body).kept_blocks, 10U);
  EXPECT_EQ(std::get<client::FlushOutcome>(received("reply_flush").body).unsaved_blocks, 12U);
  const auto clear = std::get<client::ClearOutcome>(received("reply_clear").body);
  EXPECT_EQ(clear.cleared_blocks, 13U);
  EXPECT_EQ(clear.kept_blocks, 14U);
  EXPECT_EQ(clear.epoch, 15U);
  const auto status = std::get<client::ServiceStatus>(received("reply_status").body);
  EXPECT_EQ(status.retired_blocks, 58U);
  ASSERT_EQ(status.epochs.size(), 2U);
  EXPECT_EQ(status.epochs[0].namespace_digest.bytes[0], std::byte{9});
  EXPECT_EQ(status.epochs[1].namespace_digest.bytes[31], std::byte{8});
  EXPECT_EQ(status.epochs[1].epoch, 0x123456789AU);
}

TEST(BothSides, AgreeOnForksAndOnReasons) {
  const auto step = std::get<client::StepAnswer>(received("reply_step_fork").body);
  ASSERT_EQ(step.copies.size(), 1U);
  EXPECT_EQ(step.copies[0].sequence, SequenceId(31));
  EXPECT_EQ(step.copies[0].group, GroupId(1));
  EXPECT_EQ(step.copies[0].from_slot, SlotId(71));
  EXPECT_EQ(step.copies[0].to_slot, SlotId(72));
  EXPECT_EQ(step.copies[0].token_count, 5U);
  const auto why = std::get<client::WhyAnswer>(received("reply_why").body);
  EXPECT_EQ(why.prompt_tokens, 100U);
  EXPECT_EQ(why.hit_tokens_by_tier, (std::array<std::uint64_t, 4>{32, 16, 8, 4}));
  EXPECT_EQ(why.computed_tokens, 40U);
  EXPECT_EQ(why.history_ms, 5'000U);
  ASSERT_EQ(why.spans.size(), 3U);
  EXPECT_EQ(why.spans[0].first_token, 60U);
  EXPECT_EQ(why.spans[0].token_count, 16U);
  EXPECT_EQ(why.spans[0].reason, client::MissReason::evicted);
  EXPECT_EQ(why.spans[0].cause, client::MissCause::room);
  EXPECT_EQ(why.spans[0].tier, Tier::disk);
  EXPECT_EQ(why.spans[0].reuses, 3U);
  EXPECT_EQ(why.spans[0].ago_ms, 0x123456789AU);
  EXPECT_EQ(why.spans[1].reason, client::MissReason::other_namespace);
  EXPECT_EQ(why.spans[1].field, NamespaceField::adapter_revision);
  EXPECT_EQ(why.spans[2].reason, client::MissReason::diverged);
  EXPECT_EQ(why.spans[2].position, 95U);
}

TEST(BothSides, AgreeOnStepsStatusTreeAndNotices) {
  const auto step = std::get<client::StepAnswer>(received("reply_step").body);
  ASSERT_EQ(step.failures.size(), 2U);
  EXPECT_EQ(step.failures[0].item, 1U);
  EXPECT_EQ(step.failures[0].error.code, ErrorCode::not_found);
  EXPECT_EQ(step.failures[0].error.reason, "unknown sequence");
  ASSERT_EQ(step.deltas.size(), 1U);
  EXPECT_EQ(step.deltas[0].slots, (std::vector<SlotId>{SlotId(70), SlotId(71)}));
  ASSERT_EQ(step.ended.size(), 1U);
  EXPECT_EQ(step.ended[0].account.generated_tokens, 12U);
  const auto status = std::get<client::ServiceStatus>(received("reply_status").body);
  EXPECT_EQ(status.tiers[3].slots, 31U);
  EXPECT_EQ(status.counters.size(), sizeof(core::Counters) / sizeof(std::uint64_t));
  EXPECT_EQ(status.counters.front().name, "hit_tokens.device");
  EXPECT_EQ(status.counters.front().value, 1000U);
  const auto tree = std::get<client::TreeView>(received("reply_tree").body);
  ASSERT_EQ(tree.nodes.size(), 2U);
  EXPECT_EQ(tree.nodes[0].namespace_digest.bytes[31], std::byte{31});
  EXPECT_EQ(tree.nodes[1].parent, 0U);
  const client::ReplyMessage busy = received("reply_busy");
  EXPECT_EQ(busy.error, (Error{ErrorCode::busy, "too many open requests", "request"}));
  EXPECT_EQ(busy.retry_after_us, 250U);
  const client::ReplyMessage notices = received("reply_notices_only");
  ASSERT_EQ(notices.notices.size(), 2U);
  EXPECT_EQ(notices.notices[1].kind, client::NoticeKind::lease_expired);
}

TEST(BothSides, AgreeOnTheAttachSocket) {
  for (int kind = 0; kind < 3; ++kind) {
    const auto packet =
        client::encode_attach_request(static_cast<client::AttachKind>(kind), kind == 1);
    const auto request = codec::decode_attach_request(packet);
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->protocol_version, client::kProtocolVersion);
    EXPECT_EQ(static_cast<int>(request->kind), kind);
    EXPECT_EQ(request->admin, kind == 1);
  }
  const std::vector<Sample> replies = attach_reply_samples();
  const auto entered = client::decode_attach_reply(replies[0].bytes);
  ASSERT_TRUE(entered.has_value());
  EXPECT_EQ(entered->client, ClientId(7));
  EXPECT_EQ(entered->secret.b, 0x99AABBCCDDEEFF00U);
  const auto memory = client::decode_attach_reply(replies[1].bytes);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->bytes, 659'456U);
  EXPECT_TRUE(memory->writable);
  const auto refused = client::decode_attach_reply(replies[2].bytes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::denied);
  EXPECT_EQ(refused.error().reason, "not the same user");
}

}  // namespace
}  // namespace kv::testing
