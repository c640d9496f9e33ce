#include "tests/cachesvc/wire/samples.h"

#include <span>
#include <string_view>

#include "cachesvc/wire/codec.h"
#include "schemas/attach_generated.h"
#include "tests/cachesvc/wire/frames.h"

namespace kv::testing {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using wire::RequestBody;

constexpr codec::Id128 kBoot{0x0102030405060708U, 0x090A0B0C0D0E0F10U};

Offset<flatbuffers::Vector<std::uint8_t>> bytes_of(FlatBufferBuilder& builder,
                                                   std::string_view text) {
  return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

Offset<wire::Namespace> sample_namespace(FlatBufferBuilder& builder) {
  const auto weights = bytes_of(builder, "weights-1");
  const auto model_config = bytes_of(builder, "rope=10000");
  const auto adapter = bytes_of(builder, "lora-a");
  const auto revision = bytes_of(builder, "r2");
  const auto salt = bytes_of(builder, std::string_view("s\0lt", 4));
  return wire::CreateNamespace(builder, weights, model_config, adapter, revision, salt);
}

Offset<wire::Open> sample_open(FlatBufferBuilder& builder) {
  const std::vector<std::uint32_t> tokens{1, 2, 3, 0xFFFFFFFFU, 5};
  const auto fields = sample_namespace(builder);
  const auto token_vector = builder.CreateVector(tokens);
  return wire::CreateOpen(builder, 21, fields, token_vector, true, false);
}

Offset<wire::Open> sample_open_more(FlatBufferBuilder& builder) {
  const auto tokens = builder.CreateVector(std::vector<std::uint32_t>{6, 7});
  return wire::CreateOpen(builder, 21, 0, tokens);
}

Offset<wire::AttachPool> sample_attach_pool(FlatBufferBuilder& builder) {
  const std::vector<wire::LayerGroup> groups{
      wire::LayerGroup(0, 2, 1, 24, 4, 64, 32, 0, 0)};  // full; K bf16, V f16
  const auto layout = wire::CreateLayout(builder, 16, builder.CreateVectorOfStructs(groups));
  return wire::CreateAttachPool(builder, layout);
}

Offset<wire::Step> sample_step(FlatBufferBuilder& builder) {
  const std::vector<wire::StepItem> items{
      wire::StepItem(21, 0, 0, 2, 0),  wire::StepItem(22, 0, 2, 1, 0),
      wire::StepItem(21, 1, 0, 0, 48), wire::StepItem(23, 2, 0, 0, 17),
      wire::StepItem(24, 3, 0, 0, 0),  wire::StepItem(21, 4, 0, 0, 9)};
  const auto item_vector = builder.CreateVectorOfStructs(items);
  const auto tokens = builder.CreateVector(std::vector<std::uint32_t>{100, 101, 102});
  return wire::CreateStep(builder, 12, 11, item_vector, tokens);
}

Offset<wire::Step> sample_step_fork(FlatBufferBuilder& builder) {
  const std::vector<wire::StepItem> items{
      wire::StepItem(21, 7, 16, 32, 0), wire::StepItem(21, 5, 0, 64, 1),
      wire::StepItem(21, 5, 0, 0, 0), wire::StepItem(22, 6, 0, 0, 0)};
  const auto item_vector = builder.CreateVectorOfStructs(items);
  const auto children = builder.CreateVector(std::vector<std::uint64_t>{31, 0x0102030405060708U});
  return wire::CreateStep(builder, 13, 12, item_vector, 0, children);
}

Offset<wire::Lookup> sample_lookup(FlatBufferBuilder& builder) {
  const auto fields = sample_namespace(builder);
  const auto tokens = builder.CreateVector(std::vector<std::uint32_t>{9, 8, 7});
  return wire::CreateLookup(builder, fields, tokens);
}

Offset<wire::Why> sample_why(FlatBufferBuilder& builder) {
  const auto fields = sample_namespace(builder);
  const auto tokens = builder.CreateVector(std::vector<std::uint32_t>{9, 8, 7});
  return wire::CreateWhy(builder, fields, tokens);
}

Offset<wire::Clear> sample_clear(FlatBufferBuilder& builder) {
  const auto fields = sample_namespace(builder);
  return wire::CreateClear(builder, false, wire::Tier::disk, fields);
}

Offset<wire::SetEpoch> sample_set_epoch(FlatBufferBuilder& builder) {
  const auto fields = sample_namespace(builder);
  return wire::CreateSetEpoch(builder, fields, 0x123456789AU);
}

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

core::Account sample_account() {
  return {.prompt_tokens = 100,
          .hit_tokens = {32, 16, 8, 4},
          .computed_tokens = 40,
          .generated_tokens = 12};
}

core::StepReply sample_step_reply() {
  core::StepReply reply;
  reply.failures = {{.item = 1, .error = {ErrorCode::not_found, "unknown sequence", "sequence"}},
                    {.item = 4, .error = {ErrorCode::exhausted, "no free slot", {}}}};
  reply.deltas = {{.sequence = SequenceId(21),
                   .group = GroupId(1),
                   .version = 10,
                   .first_block = 3,
                   .slot_offset = 0,
                   .slot_count = 2}};
  reply.slots = {SlotId(70), SlotId(71)};
  reply.ended = {{.sequence = SequenceId(24), .account = sample_account()}};
  return reply;
}

core::StepReply sample_step_fork_reply() {
  core::StepReply reply;
  reply.deltas = {{.sequence = SequenceId(31),
                   .group = GroupId(0),
                   .version = 1,
                   .first_block = 0,
                   .slot_offset = 0,
                   .slot_count = 2}};
  reply.slots = {SlotId(70), SlotId(72)};
  reply.copies = {{.sequence = SequenceId(31),
                   .group = GroupId(1),
                   .from_slot = SlotId(71),
                   .to_slot = SlotId(72),
                   .token_count = 5}};
  return reply;
}

core::WhyReply sample_why_reply() {
  core::WhyReply reply;
  reply.prompt_tokens = 100;
  reply.hit_tokens = {32, 16, 8, 4};
  reply.computed_tokens = 40;
  reply.spans = {
      {.first_token = 60,
       .token_count = 16,
       .reason = core::MissReason::evicted,
       .cause = core::MissCause::room,
       .tier = Tier::disk,
       .reuses = 3,
       .ago_ms = 0x123456789AU},
      {.first_token = 76,
       .token_count = 16,
       .reason = core::MissReason::other_namespace,
       .field = NamespaceField::adapter_revision},
      {.first_token = 92, .token_count = 8, .reason = core::MissReason::diverged, .position = 95}};
  reply.history_ms = 5'000;
  return reply;
}

core::StatusReply sample_status_reply() {
  core::StatusReply reply;
  std::uint32_t next = 1;
  for (core::TierStatus& tier : reply.tiers) {
    tier = {.slot_bytes = std::uint64_t{4096} * next,
            .slots = next,
            .free = next + 1,
            .held = next + 2,
            .cached = next + 3,
            .fenced = next + 4,
            .covered = next + 5,
            .evictable = next + 6,
            .arriving = next + 7};
    next += 10;
  }
  std::uint64_t value = 1000;
  for (const codec::CounterName& counter : codec::kCounterNames) {
    if (counter.value != nullptr) {
      reply.counters.*counter.value = value++;
    } else {
      for (std::uint64_t& count : reply.counters.*counter.by_tier) count = value++;
    }
  }
  reply.clients = 51;
  reply.sequences = 52;
  reply.transfers_in_flight = 53;
  reply.tree_blocks = 54;
  reply.tree_nodes = 55;
  reply.holes = 56;
  reply.namespaces = 57;
  reply.block_tokens = 16;
  reply.metadata_bytes = 0x123456789AU;
  reply.recovering = true;
  reply.retired_blocks = 58;
  reply.epochs.resize(2);
  reply.epochs[0].namespace_digest.bytes[0] = std::byte{9};
  reply.epochs[0].epoch = 3;
  reply.epochs[1].namespace_digest.bytes[31] = std::byte{8};
  reply.epochs[1].epoch = 0x123456789AU;
  return reply;
}

core::TreeReply sample_tree_reply() {
  core::TreeReply::Node node;
  for (std::size_t i = 0; i < 32; ++i) {
    node.namespace_digest.bytes[i] = static_cast<std::byte>(i);
    node.last_key.bytes[i] = static_cast<std::byte>(255 - i);
  }
  node.depth = 0;
  node.block_count = 5;
  node.copies = {5, 4, 3, 2};
  node.pinned = 1;
  core::TreeReply reply;
  reply.nodes = {node, node};
  reply.nodes[1].parent = 0;
  reply.nodes[1].depth = 5;
  reply.truncated = true;
  return reply;
}

core::Notice sample_notice(std::uint64_t number, core::NoticeKind kind, ErrorCode code) {
  return {.client = ClientId(7),
          .number = number,
          .kind = kind,
          .sequence = SequenceId(21),
          .code = code,
          .account = sample_account()};
}

core::Reply sample_reply(core::ReplyBody body) {
  core::Reply reply;
  reply.client = ClientId(7);
  reply.request = RequestId(3);
  reply.body = std::move(body);
  return reply;
}

std::vector<std::byte> notices_only() {
  const std::vector<core::Notice> notices{
      sample_notice(5, core::NoticeKind::sequence_ready, ErrorCode::busy),
      sample_notice(6, core::NoticeKind::lease_expired, ErrorCode::ok)};
  codec::ReplyEncoder encoder(kBoot);
  return copy_of(encoder.encode_notices(notices));
}

std::vector<std::byte> busy_reply() {
  core::Reply reply = sample_reply(std::monostate());
  reply.error = {ErrorCode::busy, "too many open requests", "request"};
  reply.retry_after_us = 250;
  const std::vector<core::Notice> notices{
      sample_notice(4, core::NoticeKind::sequence_ready, ErrorCode::ok)};
  codec::ReplyEncoder encoder(kBoot);
  return copy_of(encoder.encode(reply, notices));
}

}  // namespace

std::vector<Sample> request_samples() {
  const auto hello = [](FlatBufferBuilder& builder) {
    return wire::CreateHello(builder, 1, builder.CreateString("runner one"), 77, 2);
  };
  const auto admit = [](FlatBufferBuilder& b) { return wire::CreateAdmit(b, 21, 64); };
  const auto tree = [](FlatBufferBuilder& b) { return wire::CreateTree(b, 500); };
  const auto demote = [](FlatBufferBuilder& b) { return wire::CreateDemote(b, wire::Tier::host); };
  const auto heartbeat = [](FlatBufferBuilder& b) { return wire::CreateHeartbeat(b); };
  const auto bye = [](FlatBufferBuilder& b) { return wire::CreateBye(b); };
  const auto status = [](FlatBufferBuilder& b) { return wire::CreateStatus(b); };
  const auto flush = [](FlatBufferBuilder& b) { return wire::CreateFlush(b); };
  const auto clear_all = [](FlatBufferBuilder& b) { return wire::CreateClear(b); };
  return {{"request_hello", request_frame(RequestBody::Hello, hello)},
          {"request_heartbeat", request_frame(RequestBody::Heartbeat, heartbeat)},
          {"request_bye", request_frame(RequestBody::Bye, bye)},
          {"request_attach_pool", request_frame(RequestBody::AttachPool, sample_attach_pool)},
          {"request_open", request_frame(RequestBody::Open, sample_open)},
          {"request_open_more", request_frame(RequestBody::Open, sample_open_more)},
          {"request_admit", request_frame(RequestBody::Admit, admit)},
          {"request_step", request_frame(RequestBody::Step, sample_step)},
          {"request_step_fork", request_frame(RequestBody::Step, sample_step_fork)},
          {"request_lookup", request_frame(RequestBody::Lookup, sample_lookup)},
          {"request_status", request_frame(RequestBody::Status, status)},
          {"request_tree", request_frame(RequestBody::Tree, tree)},
          {"request_demote", request_frame(RequestBody::Demote, demote)},
          {"request_flush", request_frame(RequestBody::Flush, flush)},
          {"request_clear", request_frame(RequestBody::Clear, sample_clear)},
          {"request_clear_all", request_frame(RequestBody::Clear, clear_all)},
          {"request_set_epoch", request_frame(RequestBody::SetEpoch, sample_set_epoch)},
          {"request_why", request_frame(RequestBody::Why, sample_why)}};
}

Sample attach_request_sample() {
  FlatBufferBuilder builder;
  const auto body =
      wire::CreateAttachRequest(builder, 1, wire::AttachKind::host_arena, true).Union();
  wire::FinishAttachMessageBuffer(
      builder, wire::CreateAttachMessage(builder, wire::AttachBody::AttachRequest, body));
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {"attach_request", {bytes, bytes + builder.GetSize()}};
}

std::vector<Sample> reply_samples() {
  core::AttachPoolReply pool;
  pool.groups = {{.offset = 4096, .slot_bytes = 65'536, .slot_count = 10}};
  pool.pool_bytes = 659'456;
  core::AdmitReply admit;
  admit.ready = true;
  admit.account = sample_account();
  admit.table_version = 9;
  admit.block_count = 3;
  admit.slots = {SlotId(5), SlotId(6), SlotId(0xFFFFFFFEU)};
  const core::LookupReply lookup{
      .hit_tokens = 48, .hit_tokens_by_tier = {16, 32, 0, 0}, .known_tokens = 64};
  const std::vector<std::pair<std::string, core::ReplyBody>> bodies{
      {"reply_empty", std::monostate()},
      {"reply_hello",
       core::HelloReply{.lease_ms = 10'000, .credits = 64, .message_bytes = 1U << 20U}},
      {"reply_attach_pool", pool},
      {"reply_admit", admit},
      {"reply_step", sample_step_reply()},
      {"reply_step_fork", sample_step_fork_reply()},
      {"reply_lookup", lookup},
      {"reply_status", sample_status_reply()},
      {"reply_tree", sample_tree_reply()},
      {"reply_demote",
       core::DemoteReply{.saved_blocks = 8, .dropped_blocks = 9, .kept_blocks = 10}},
      {"reply_flush", core::FlushReply{.durable_blocks = 11, .unsaved_blocks = 12}},
      {"reply_clear", core::ClearReply{.cleared_blocks = 13, .kept_blocks = 14, .epoch = 15}},
      {"reply_why", sample_why_reply()}};
  codec::ReplyEncoder encoder(kBoot);
  std::vector<Sample> samples;
  samples.reserve(bodies.size() + 2);
  for (const auto& [name, body] : bodies) {
    samples.push_back({name, copy_of(encoder.encode(sample_reply(body), {}))});
  }
  samples.push_back({"reply_busy", busy_reply()});
  samples.push_back({"reply_notices_only", notices_only()});
  return samples;
}

std::vector<Sample> attach_reply_samples() {
  codec::AttachReply entered;
  entered.boot = kBoot;
  entered.client = ClientId(7);
  entered.secret = {0x1122334455667788U, 0x99AABBCCDDEEFF00U};
  codec::AttachReply memory;
  memory.boot = kBoot;
  memory.bytes = 659'456;
  memory.writable = true;
  codec::AttachReply refused;
  refused.error = {ErrorCode::denied, "not the same user", {}};
  refused.boot = kBoot;
  return {{"attach_reply_entered", codec::encode_attach_reply(entered)},
          {"attach_reply_memory", codec::encode_attach_reply(memory)},
          {"attach_reply_refused", codec::encode_attach_reply(refused)}};
}

std::vector<Sample> all_samples() {
  std::vector<Sample> samples = request_samples();
  for (auto part :
       {std::vector<Sample>{attach_request_sample()}, reply_samples(), attach_reply_samples()}) {
    samples.insert(samples.end(), part.begin(), part.end());
  }
  return samples;
}

}  // namespace kv::testing
