// The client's codec against the service's: each side is written alone, so every message goes from
// one to the other here, with a value of its own in every field.
#include <algorithm>

#include <gtest/gtest.h>

#include "cachesvc/wire/codec.h"
#include "plugins/client/attach.h"
#include "plugins/client/reply_decoder.h"
#include "plugins/client/request_encoder.h"

namespace kv::client {
namespace {

const RequestHead test_head{.client = ClientId(5),
                            .secret = {.a = 6, .b = 7},
                            .request = RequestId(8),
                            .notices_acknowledged = 9};

class RequestAgreement : public testing::Test {
 protected:
  // What the service sees of the message.
  template <class Input>
  Input seen(const RequestMessage& message) {
    const auto frame = encoder_.encode(test_head, message);
    EXPECT_TRUE(frame);
    const auto decoded = decoder_.decode(*frame);
    EXPECT_TRUE(decoded) << (decoded ? "" : decoded.error().reason);
    EXPECT_EQ(decoded->envelope.client, ClientId(5));
    EXPECT_EQ(decoded->envelope.secret, (codec::Id128{6, 7}));
    EXPECT_EQ(decoded->envelope.request, RequestId(8));
    const auto* input = std::get_if<Input>(&decoded->input);
    EXPECT_NE(input, nullptr);
    EXPECT_EQ(input->header.notices_acknowledged, 9U);
    return *input;
  }

  RequestEncoder encoder_;
  codec::RequestDecoder decoder_;
};

NamespaceFields all_fields() {
  NamespaceFields fields;
  fields.weights = "w";
  fields.model_config = "m";
  fields.adapter = "a";
  fields.adapter_revision = "r";
  fields.salt = "s";
  return fields;
}

TEST_F(RequestAgreement, HoldsForTheMessagesOfAClient) {
  const auto hello = seen<core::Hello>(HelloMessage{"name", 11, 12});
  EXPECT_EQ(hello.protocol_version, kProtocolVersion);
  EXPECT_EQ(hello.name, "name");
  EXPECT_EQ(hello.instance, 11U);
  EXPECT_EQ(hello.rank, 12U);
  (void)seen<core::Heartbeat>(HeartbeatMessage{});
  (void)seen<core::Bye>(ByeMessage{});
  (void)seen<core::Status>(StatusMessage{});
  (void)seen<core::Flush>(FlushMessage{});
  EXPECT_EQ(seen<core::Tree>(TreeMessage{13}).node_limit, 13U);
  EXPECT_EQ(seen<core::Demote>(DemoteMessage{Tier::host}).tier, Tier::host);
  const NamespaceFields fields = all_fields();
  const auto clear = seen<core::Clear>(ClearMessage{Tier::disk, &fields});
  EXPECT_FALSE(clear.all_tiers);
  EXPECT_EQ(clear.tier, Tier::disk);
  EXPECT_EQ(seen<core::SetEpoch>(SetEpochMessage{&fields, 14}).epoch, 14U);
}

TEST_F(RequestAgreement, HoldsForALayout) {
  KvLayout layout{.block_tokens = 8, .groups = {}};
  layout.groups.push_back({.layer_count = 2,
                           .kv_head_count = 3,
                           .head_dim_k = 4,
                           .head_dim_v = 6,
                           .k_dtype = DType::bf16,
                           .v_dtype = DType::f8_e4m3});
  EXPECT_EQ(*seen<core::AttachPool>(PoolMessage{&layout}).layout, layout);
}

TEST_F(RequestAgreement, HoldsForASequence) {
  const auto fields = all_fields();
  const std::vector<Token> tokens{20, 21};
  const auto open = seen<core::Open>(OpenMessage{SequenceId(14), &fields, tokens, {true, false}});
  EXPECT_EQ(open.sequence, SequenceId(14));
  EXPECT_TRUE(open.first);
  EXPECT_EQ(open.fields->weights, "w");
  EXPECT_EQ(open.fields->model_config, "m");
  EXPECT_EQ(open.fields->adapter, "a");
  EXPECT_EQ(open.fields->adapter_revision, "r");
  EXPECT_EQ(open.fields->salt, "s");
  EXPECT_EQ(std::vector(open.tokens.begin(), open.tokens.end()), tokens);
  EXPECT_TRUE(open.skip_read);
  EXPECT_FALSE(open.accept_rewrite);
  EXPECT_FALSE(seen<core::Open>(OpenMessage{SequenceId(14), nullptr, tokens, {}}).first);

  const auto admit = seen<core::Admit>(AdmitMessage{SequenceId(15), 16});
  EXPECT_EQ(admit.sequence, SequenceId(15));
  EXPECT_EQ(admit.max_new_tokens, 16U);

  const auto lookup = seen<core::Lookup>(LookupMessage{&fields, tokens});
  EXPECT_EQ(lookup.fields->salt, "s");
  EXPECT_EQ(lookup.tokens.size(), 2U);
}

TEST_F(RequestAgreement, HoldsForEveryOperationOfAStep) {
  const std::vector<StepItem> items{
      {SequenceId(1), StepOp::acknowledge, 0, 0, 31}, {SequenceId(2), StepOp::append, 1, 2, 0},
      {SequenceId(3), StepOp::publish, 0, 0, 33},     {SequenceId(4), StepOp::truncate, 0, 0, 34},
      {SequenceId(5), StepOp::free, 0, 0, 0},         {SequenceId(6), StepOp::fork, 0, 35, 1},
      {SequenceId(7), StepOp::preempt, 0, 0, 0},      {SequenceId(8), StepOp::drop, 36, 37, 0}};
  const std::vector<Token> tokens{40, 41, 42};
  const std::vector<SequenceId> children{SequenceId(50), SequenceId(51)};
  const auto step = seen<core::Step>(StepMessage{18, 17, items, tokens, children});
  EXPECT_EQ(step.step_seq, 18U);
  EXPECT_EQ(step.completed_step, 17U);
  EXPECT_EQ(step.tokens.size(), 3U);
  EXPECT_EQ(std::vector(step.children.begin(), step.children.end()), children);
  ASSERT_EQ(step.items.size(), 8U);
  const core::StepOp ops[] = {core::StepOp::acknowledge, core::StepOp::append,
                              core::StepOp::publish,     core::StepOp::truncate,
                              core::StepOp::free,        core::StepOp::fork,
                              core::StepOp::preempt,     core::StepOp::drop};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(step.items[i].op, ops[i]);
    EXPECT_EQ(step.items[i].sequence, items[i].sequence);
    EXPECT_EQ(step.items[i].token_offset, items[i].token_offset);
    EXPECT_EQ(step.items[i].token_count, items[i].token_count);
    EXPECT_EQ(step.items[i].value, items[i].value);
  }
}

class ReplyAgreement : public testing::Test {
 protected:
  // What the client sees of the service's reply.
  ReplyMessage seen(const core::Reply& reply, std::span<const core::Notice> notices = {}) {
    auto decoded = decode_reply(encoder_.encode(reply, notices));
    EXPECT_TRUE(decoded) << (decoded ? "" : decoded.error().reason);
    EXPECT_EQ(decoded->boot, (Id128{3, 4}));
    return std::move(*decoded);
  }
  template <class Answer>
  Answer answer(core::ReplyBody body) {
    core::Reply reply;
    reply.client = ClientId(1);
    reply.request = RequestId(2);
    reply.body = std::move(body);
    auto message = seen(reply);
    EXPECT_EQ(message.request, RequestId(2));
    EXPECT_TRUE(std::holds_alternative<Answer>(message.body));
    return std::get<Answer>(message.body);
  }

  codec::ReplyEncoder encoder_{codec::Id128{3, 4}};
};

const core::Account test_account{
    .prompt_tokens = 1, .hit_tokens = {2, 3, 4, 5}, .computed_tokens = 6, .generated_tokens = 7};
void expect_account(const Account& account) {
  EXPECT_EQ(account.prompt_tokens, 1U);
  EXPECT_EQ(account.hit_tokens, (std::array<std::uint64_t, 4>{2, 3, 4, 5}));
  EXPECT_EQ(account.computed_tokens, 6U);
  EXPECT_EQ(account.generated_tokens, 7U);
}

TEST_F(ReplyAgreement, HoldsForEveryErrorCode) {
  for (std::uint8_t code = 1; code < kErrorCodeCount; ++code) {
    core::Reply reply;
    reply.client = ClientId(1);
    reply.request = RequestId(2);
    reply.error = {static_cast<ErrorCode>(code), "why", "what"};
    reply.retry_after_us = 77;
    const auto message = seen(reply);
    EXPECT_EQ(message.error, reply.error);
    EXPECT_EQ(message.retry_after_us, 77U);
  }
}

TEST_F(ReplyAgreement, HoldsForNotices) {
  const std::vector<core::Notice> notices{{.client = ClientId(1),
                                           .number = 8,
                                           .kind = core::NoticeKind::sequence_ready,
                                           .sequence = SequenceId(9),
                                           .code = ErrorCode::busy,
                                           .account = test_account},
                                          {.client = ClientId(1),
                                           .number = 10,
                                           .kind = core::NoticeKind::lease_expired,
                                           .sequence = SequenceId(0),
                                           .code = ErrorCode::ok,
                                           .account = {}}};
  const auto message = decode_reply(encoder_.encode_notices(notices));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->request, RequestId(0));
  ASSERT_EQ(message->notices.size(), 2U);
  EXPECT_EQ(message->notices[0].number, 8U);
  EXPECT_EQ(message->notices[0].kind, NoticeKind::sequence_ready);
  EXPECT_EQ(message->notices[0].sequence, SequenceId(9));
  EXPECT_EQ(message->notices[0].code, ErrorCode::busy);
  expect_account(message->notices[0].account);
  EXPECT_EQ(message->notices[1].kind, NoticeKind::lease_expired);
}

TEST_F(ReplyAgreement, HoldsForHelloPoolAndAdmission) {
  const auto hello =
      answer<HelloAnswer>(core::HelloReply{.lease_ms = 21, .credits = 22, .message_bytes = 23});
  EXPECT_EQ(hello.lease_ms, 21U);
  EXPECT_EQ(hello.credits, 22U);
  EXPECT_EQ(hello.message_bytes, 23U);
  const auto pool = answer<PoolAnswer>(core::AttachPoolReply{
      .groups = {{.offset = 64, .slot_bytes = 32, .slot_count = 2}}, .pool_bytes = 128});
  EXPECT_EQ(pool.pool_bytes, 128U);
  EXPECT_EQ(pool.groups.at(0).offset, 64U);
  EXPECT_EQ(pool.groups.at(0).slot_bytes, 32U);
  EXPECT_EQ(pool.groups.at(0).slot_count, 2U);
  const auto admit = answer<AdmitAnswer>(core::AdmitReply{.ready = true,
                                                          .account = test_account,
                                                          .table_version = 23,
                                                          .block_count = 2,
                                                          .slots = {SlotId(24), SlotId(25)}});
  EXPECT_TRUE(admit.ready);
  EXPECT_EQ(admit.admission.table_version, 23U);
  EXPECT_EQ(admit.admission.block_count, 2U);
  EXPECT_EQ(admit.admission.slots, (std::vector{SlotId(24), SlotId(25)}));
  expect_account(admit.admission.account);
}

TEST_F(ReplyAgreement, HoldsForAStep) {
  core::StepReply reply;
  reply.failures = {{.item = 26, .error = {ErrorCode::exhausted, "full", {}}}};
  reply.deltas = {{.sequence = SequenceId(27),
                   .group = GroupId(0),
                   .version = 28,
                   .first_block = 29,
                   .slot_offset = 1,
                   .slot_count = 1}};
  reply.slots = {SlotId(30), SlotId(31)};
  reply.ended = {{.sequence = SequenceId(32), .account = test_account}};
  const auto step = answer<StepAnswer>(reply);
  ASSERT_EQ(step.failures.size(), 1U);
  EXPECT_EQ(step.failures[0].item, 26U);
  EXPECT_EQ(step.failures[0].error.code, ErrorCode::exhausted);
  EXPECT_EQ(step.failures[0].error.reason, "full");
  ASSERT_EQ(step.deltas.size(), 1U);
  EXPECT_EQ(step.deltas[0].sequence, SequenceId(27));
  EXPECT_EQ(step.deltas[0].version, 28U);
  EXPECT_EQ(step.deltas[0].first_block, 29U);
  EXPECT_EQ(step.deltas[0].slots, std::vector{SlotId(31)});
  ASSERT_EQ(step.ended.size(), 1U);
  EXPECT_EQ(step.ended[0].sequence, SequenceId(32));
  expect_account(step.ended[0].account);
}

TEST_F(ReplyAgreement, HoldsForTheStatus) {
  core::StatusReply in;
  in.tiers[1] = {.slot_bytes = 41,
                 .slots = 42,
                 .free = 43,
                 .held = 44,
                 .cached = 45,
                 .fenced = 46,
                 .covered = 47,
                 .evictable = 48,
                 .arriving = 49};
  in.counters.saved_blocks = {51, 52, 53, 54};
  in.clients = 61;
  in.sequences = 62;
  in.transfers_in_flight = 63;
  in.tree_blocks = 64;
  in.tree_nodes = 65;
  in.holes = 66;
  in.namespaces = 67;
  in.block_tokens = 68;
  in.metadata_bytes = 69;
  in.recovering = true;
  const auto status = answer<ServiceStatus>(in);
  const auto& host = status.tiers[1];
  EXPECT_EQ((std::array{host.slots, host.free, host.held, host.cached, host.fenced, host.covered,
                        host.evictable, host.arriving}),
            (std::array{42U, 43U, 44U, 45U, 46U, 47U, 48U, 49U}));
  EXPECT_EQ(host.slot_bytes, 41U);
  EXPECT_EQ(
      (std::array{status.clients, status.sequences, status.transfers_in_flight, status.tree_blocks,
                  status.tree_nodes, status.holes, status.namespaces, status.block_tokens}),
      (std::array{61U, 62U, 63U, 64U, 65U, 66U, 67U, 68U}));
  EXPECT_EQ(status.metadata_bytes, 69U);
  EXPECT_TRUE(status.recovering);
  const auto saved_to_disk = std::ranges::find_if(
      status.counters, [](const auto& counter) { return counter.name == "saved_blocks.disk"; });
  ASSERT_NE(saved_to_disk, status.counters.end());
  EXPECT_EQ(saved_to_disk->value, 53U);
}

TEST_F(ReplyAgreement, HoldsForTheTree) {
  core::TreeReply tree_in;
  tree_in.nodes.resize(2);
  tree_in.nodes[1].parent = 0;
  tree_in.nodes[1].depth = 71;
  tree_in.nodes[1].block_count = 72;
  tree_in.nodes[1].copies = {73, 74, 75, 76};
  tree_in.nodes[1].pinned = 77;
  for (std::size_t i = 0; i < 32; ++i) {
    tree_in.nodes[1].namespace_digest.bytes[i] = static_cast<std::byte>(i);
    tree_in.nodes[1].last_key.bytes[i] = static_cast<std::byte>(100 + i);
  }
  tree_in.truncated = true;
  const auto tree = answer<TreeView>(tree_in);
  ASSERT_EQ(tree.nodes.size(), 2U);
  EXPECT_EQ(tree.nodes[0].parent, TreeNode::kNoParent);
  EXPECT_EQ(tree.nodes[1].parent, 0U);
  EXPECT_EQ(tree.nodes[1].depth, 71U);
  EXPECT_EQ(tree.nodes[1].block_count, 72U);
  EXPECT_EQ(tree.nodes[1].copies, (std::array{73U, 74U, 75U, 76U}));
  EXPECT_EQ(tree.nodes[1].pinned, 77U);
  EXPECT_EQ(tree.nodes[1].namespace_digest, tree_in.nodes[1].namespace_digest);
  EXPECT_EQ(tree.nodes[1].last_key, tree_in.nodes[1].last_key);
  EXPECT_TRUE(tree.truncated);
}

TEST_F(ReplyAgreement, HoldsForLookupDemoteAndFlush) {
  const auto lookup = answer<LookupHits>(core::LookupReply{
      .hit_tokens = 81, .hit_tokens_by_tier = {82, 83, 84, 85}, .known_tokens = 86});
  EXPECT_EQ(lookup.hit_tokens, 81U);
  EXPECT_EQ(lookup.hit_tokens_by_tier, (std::array<std::uint64_t, 4>{82, 83, 84, 85}));
  EXPECT_EQ(lookup.known_tokens, 86U);
  const auto demote = answer<DemoteOutcome>(core::DemoteReply{91, 92, 93});
  EXPECT_EQ(demote.saved_blocks, 91U);
  EXPECT_EQ(demote.dropped_blocks, 92U);
  EXPECT_EQ(demote.kept_blocks, 93U);
  const auto flush = answer<FlushOutcome>(core::FlushReply{94, 95});
  EXPECT_EQ(flush.durable_blocks, 94U);
  EXPECT_EQ(flush.unsaved_blocks, 95U);
  const auto clear = answer<ClearOutcome>(core::ClearReply{96, 97, 98});
  EXPECT_EQ(clear.cleared_blocks, 96U);
  EXPECT_EQ(clear.kept_blocks, 97U);
  EXPECT_EQ(clear.epoch, 98U);
}

TEST(AttachAgreement, HoldsBothWays) {
  for (const auto kind : {AttachKind::enter, AttachKind::device_pool, AttachKind::host_arena}) {
    const auto request = codec::decode_attach_request(encode_attach_request(kind, true));
    ASSERT_TRUE(request);
    EXPECT_EQ(static_cast<int>(request->kind), static_cast<int>(kind));
    EXPECT_EQ(request->protocol_version, kProtocolVersion);
    EXPECT_TRUE(request->admin);
  }
  codec::AttachReply reply;
  reply.boot = {1, 2};
  reply.client = ClientId(3);
  reply.secret = {4, 5};
  reply.bytes = 6;
  reply.writable = true;
  const auto answer = decode_attach_reply(codec::encode_attach_reply(reply));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->boot, (Id128{1, 2}));
  EXPECT_EQ(answer->client, ClientId(3));
  EXPECT_EQ(answer->secret, (Id128{4, 5}));
  EXPECT_EQ(answer->bytes, 6U);
  EXPECT_TRUE(answer->writable);
  reply.error = {ErrorCode::denied, "no", {}};
  EXPECT_EQ(decode_attach_reply(codec::encode_attach_reply(reply)).error().code, ErrorCode::denied);
}

}  // namespace
}  // namespace kv::client
