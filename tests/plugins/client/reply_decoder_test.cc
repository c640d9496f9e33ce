#include "plugins/client/reply_decoder.h"

#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"
#include "plugins/client/aligned_frame.h"
#include "plugins/client/attach.h"
#include "plugins/client/static_text.h"
#include "tests/plugins/client/reply_frames.h"

namespace kv::client {
namespace {

using test::Bytes;
using test::reply_frame;
using test::ReplyParts;

template <class Make>
Bytes frame_with(wire::ReplyBody type, const Make& make) {
  ReplyParts parts;
  parts.request = 4;
  parts.body_type = type;
  parts.body = [make](auto& builder) { return make(builder).Union(); };
  return reply_frame(parts);
}

Bytes admit_frame(std::uint32_t block_count, const std::vector<std::uint32_t>& slots) {
  return frame_with(wire::ReplyBody::AdmitReply, [=](auto& builder) {
    const wire::Account account(100, 16, 32, 48, 0, 4, 0);
    return wire::CreateAdmitReply(builder, true, &account, 2, block_count,
                                  builder.CreateVector(slots));
  });
}

Bytes step_frame(std::uint32_t slot_offset, wire::ErrorCode failure) {
  return frame_with(wire::ReplyBody::StepReply, [=](auto& builder) {
    const std::vector<wire::StepFailure> failures{{1, failure}};
    const std::vector<wire::TableDelta> deltas{{9, 0, 3, 5, slot_offset, 2}};
    const std::vector<wire::EndedSequence> ended{{8, wire::Account(10, 1, 2, 3, 0, 4, 5)}};
    return wire::CreateStepReply(builder, builder.CreateVectorOfStructs(failures),
                                 builder.CreateVectorOfStrings({std::string("no room")}),
                                 builder.CreateVectorOfStructs(deltas),
                                 builder.CreateVector(std::vector<std::uint32_t>{70, 71, 72}),
                                 builder.CreateVectorOfStructs(ended));
  });
}

Bytes status_frame() {
  return frame_with(wire::ReplyBody::StatusReply, [](auto& builder) {
    const std::vector<wire::TierStatus> tiers{{1'024, 10, 1, 2, 7, 0, 3, 4, 0},
                                              {1'024, 20, 20, 0, 0, 0, 0, 0, 0}};
    const auto name = builder.CreateString("hit_tokens.device");
    const std::vector<flatbuffers::Offset<wire::Counter>> counters{
        wire::CreateCounter(builder, name, 123)};
    return wire::CreateStatusReply(builder, builder.CreateVectorOfStructs(tiers),
                                   builder.CreateVector(counters), 1, 2, 3, 4, 5, 6, 7, 16, 999,
                                   true);
  });
}

Bytes tree_frame(std::uint32_t second_parent) {
  return frame_with(wire::ReplyBody::TreeReply, [=](auto& builder) {
    const wire::Digest root(0x0706050403020100, 0, 0, 0);
    const wire::Digest key(0, 0, 0, 0xFF00000000000000);
    const std::vector<wire::TreeNode> nodes{{root, key, 0xFFFFFFFFU, 0, 4, 4, 3, 2, 0, 1},
                                            {root, key, second_parent, 4, 1, 1, 0, 0, 0, 0}};
    return wire::CreateTreeReply(builder, builder.CreateVectorOfStructs(nodes), true);
  });
}

Bytes pool_frame(std::uint64_t offset, std::uint32_t slots) {
  return frame_with(wire::ReplyBody::AttachPoolReply, [=](auto& builder) {
    const std::vector<wire::PoolGroup> groups{{offset, 100, slots}};
    return wire::CreateAttachPoolReply(builder, 1'000, builder.CreateVectorOfStructs(groups));
  });
}

std::vector<Bytes> all_frames() {
  ReplyParts notices;
  notices.notices = {
      {1, 9, wire::Account(), wire::NoticeKind::sequence_ready, wire::ErrorCode::busy},
      {2, 0, wire::Account(), wire::NoticeKind::lease_expired, wire::ErrorCode::ok}};
  return {reply_frame(notices),
          test::error_frame(4, wire::ErrorCode::exhausted, "pool is full", 500),
          test::hello_frame(4, 10'000),
          admit_frame(2, {5, 6}),
          step_frame(1, wire::ErrorCode::exhausted),
          status_frame(),
          tree_frame(0),
          pool_frame(0, 10),
          frame_with(wire::ReplyBody::LookupReply,
                     [](auto& builder) {
                       return wire::CreateLookupReply(
                           builder, 96,
                           builder.CreateVector(std::vector<std::uint64_t>{16, 32, 48, 0}), 112);
                     }),
          frame_with(wire::ReplyBody::DemoteReply,
                     [](auto& builder) { return wire::CreateDemoteReply(builder, 1, 2, 3); }),
          frame_with(wire::ReplyBody::FlushReply,
                     [](auto& builder) { return wire::CreateFlushReply(builder, 8, 9); }),
          frame_with(wire::ReplyBody::ClearReply,
                     [](auto& builder) { return wire::CreateClearReply(builder, 4, 5, 6); })};
}

TEST(ReplyDecoder, ReadsHeadErrorAndNotices) {
  ReplyParts parts;
  parts.boot = {21, 22};
  parts.request = 17;
  parts.code = wire::ErrorCode::mismatch;
  parts.reason = "layouts differ";
  parts.field = "head_dim_k";
  parts.retry_after_us = 900;
  parts.notices = {{6, 9, wire::Account(1, 2, 3, 4, 5, 6, 7), wire::NoticeKind::sequence_ready,
                    wire::ErrorCode::busy}};
  const auto reply = decode_reply(reply_frame(parts));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->boot, (Id128{21, 22}));
  EXPECT_EQ(reply->request, RequestId(17));
  EXPECT_EQ(reply->error, (Error{ErrorCode::mismatch, "layouts differ", "head_dim_k"}));
  EXPECT_EQ(reply->retry_after_us, 900U);
  ASSERT_EQ(reply->notices.size(), 1U);
  EXPECT_EQ(reply->notices[0].number, 6U);
  EXPECT_EQ(reply->notices[0].sequence, SequenceId(9));
  EXPECT_EQ(reply->notices[0].code, ErrorCode::busy);
  EXPECT_EQ(reply->notices[0].account.prompt_tokens, 1U);
  EXPECT_EQ(reply->notices[0].account.hit_tokens, (std::array<std::uint64_t, 4>{2, 3, 4, 5}));
  EXPECT_EQ(reply->notices[0].account.computed_tokens, 6U);
  EXPECT_EQ(reply->notices[0].account.generated_tokens, 7U);
}

TEST(ReplyDecoder, ReadsAnAdmission) {
  const auto reply = decode_reply(admit_frame(2, {5, 6}));
  ASSERT_TRUE(reply);
  const auto& answer = std::get<AdmitAnswer>(reply->body);
  EXPECT_TRUE(answer.ready);
  EXPECT_EQ(answer.admission.table_version, 2U);
  EXPECT_EQ(answer.admission.block_count, 2U);
  EXPECT_EQ(answer.admission.slots, (std::vector{SlotId(5), SlotId(6)}));
  EXPECT_EQ(answer.admission.account.hits(), 96U);
  EXPECT_EQ(answer.admission.account.computed_tokens, 4U);
}

TEST(ReplyDecoder, ReadsAStep) {
  const auto reply = decode_reply(step_frame(1, wire::ErrorCode::exhausted));
  ASSERT_TRUE(reply);
  const auto& answer = std::get<StepAnswer>(reply->body);
  ASSERT_EQ(answer.failures.size(), 1U);
  EXPECT_EQ(answer.failures[0].item, 1U);
  EXPECT_EQ(answer.failures[0].error.code, ErrorCode::exhausted);
  EXPECT_EQ(answer.failures[0].error.reason, "no room");
  ASSERT_EQ(answer.deltas.size(), 1U);
  EXPECT_EQ(answer.deltas[0].sequence, SequenceId(9));
  EXPECT_EQ(answer.deltas[0].version, 3U);
  EXPECT_EQ(answer.deltas[0].first_block, 5U);
  EXPECT_EQ(answer.deltas[0].slots, (std::vector{SlotId(71), SlotId(72)}));
  ASSERT_EQ(answer.ended.size(), 1U);
  EXPECT_EQ(answer.ended[0].sequence, SequenceId(8));
  EXPECT_EQ(answer.ended[0].account.hits(), 6U);
  EXPECT_EQ(answer.ended[0].account.generated_tokens, 5U);
}

TEST(ReplyDecoder, ReadsStatusAndTree) {
  const auto reply = decode_reply(status_frame());
  ASSERT_TRUE(reply);
  const auto& status = std::get<ServiceStatus>(reply->body);
  EXPECT_EQ(status.tiers[0].slot_bytes, 1'024U);
  EXPECT_EQ(status.tiers[0].slots, 10U);
  EXPECT_EQ(status.tiers[0].free, 1U);
  EXPECT_EQ(status.tiers[0].held, 2U);
  EXPECT_EQ(status.tiers[0].cached, 7U);
  EXPECT_EQ(status.tiers[0].covered, 3U);
  EXPECT_EQ(status.tiers[0].evictable, 4U);
  EXPECT_EQ(status.tiers[1].free, 20U);
  EXPECT_EQ(status.tiers[3].slots, 0U);
  ASSERT_EQ(status.counters.size(), 1U);
  EXPECT_EQ(status.counters[0].name, "hit_tokens.device");
  EXPECT_EQ(status.counters[0].value, 123U);
  EXPECT_EQ(status.clients, 1U);
  EXPECT_EQ(status.namespaces, 7U);
  EXPECT_EQ(status.block_tokens, 16U);
  EXPECT_EQ(status.metadata_bytes, 999U);
  EXPECT_TRUE(status.recovering);

  const auto tree_reply = decode_reply(tree_frame(0));
  ASSERT_TRUE(tree_reply);
  const auto& tree = std::get<TreeView>(tree_reply->body);
  ASSERT_EQ(tree.nodes.size(), 2U);
  EXPECT_TRUE(tree.truncated);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(tree.nodes[0].namespace_digest.bytes[i], static_cast<std::byte>(i));
  }
  EXPECT_EQ(tree.nodes[0].last_key.bytes[31], std::byte{0xFF});
  EXPECT_EQ(tree.nodes[0].copies, (std::array<std::uint32_t, 4>{4, 3, 2, 0}));
  EXPECT_EQ(tree.nodes[0].pinned, 1U);
  EXPECT_EQ(tree.nodes[1].parent, 0U);
  EXPECT_EQ(tree.nodes[1].depth, 4U);
}

TEST(ReplyDecoder, ReadsThePoolAndTheAnswersOfTheAdministratorsVerbs) {
  const auto pool = decode_reply(pool_frame(0, 10));
  ASSERT_TRUE(pool);
  EXPECT_EQ(std::get<PoolAnswer>(pool->body).pool_bytes, 1'000U);
  EXPECT_EQ(std::get<PoolAnswer>(pool->body).groups[0].slot_count, 10U);
  const auto frames = all_frames();
  const auto lookup = decode_reply(frames[8]);
  ASSERT_TRUE(lookup);
  EXPECT_EQ(std::get<LookupHits>(lookup->body).hit_tokens, 96U);
  EXPECT_EQ(std::get<LookupHits>(lookup->body).hit_tokens_by_tier,
            (std::array<std::uint64_t, 4>{16, 32, 48, 0}));
  EXPECT_EQ(std::get<LookupHits>(lookup->body).known_tokens, 112U);
  const auto demote = decode_reply(frames[9]);
  ASSERT_TRUE(demote);
  EXPECT_EQ(std::get<DemoteOutcome>(demote->body).kept_blocks, 3U);
  const auto flush = decode_reply(frames[10]);
  ASSERT_TRUE(flush);
  EXPECT_EQ(std::get<FlushOutcome>(flush->body).durable_blocks, 8U);
  EXPECT_EQ(std::get<FlushOutcome>(flush->body).unsaved_blocks, 9U);
  const auto clear = decode_reply(frames[11]);
  ASSERT_TRUE(clear);
  EXPECT_EQ(std::get<ClearOutcome>(clear->body).cleared_blocks, 4U);
  EXPECT_EQ(std::get<ClearOutcome>(clear->body).kept_blocks, 5U);
  EXPECT_EQ(std::get<ClearOutcome>(clear->body).epoch, 6U);
}

TEST(ReplyDecoder, RefusesAFrameThatIsNoReply) {
  EXPECT_EQ(decode_reply({}).error().code, ErrorCode::corrupt);
  Bytes wrong = test::hello_frame(1, 10);
  std::memcpy(wrong.data() + 4, "KVRQ", 4);
  EXPECT_EQ(decode_reply(wrong).error().code, ErrorCode::corrupt);
}

TEST(ReplyDecoder, RefusesARepliesContradictions) {
  EXPECT_TRUE(decode_reply(step_frame(1, wire::ErrorCode::busy)));
  EXPECT_EQ(decode_reply(step_frame(2, wire::ErrorCode::busy)).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(step_frame(0xFFFFFFFF, wire::ErrorCode::busy)).error().code,
            ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(step_frame(1, wire::ErrorCode::ok)).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(step_frame(1, static_cast<wire::ErrorCode>(14))).error().code,
            ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(tree_frame(1)).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(pool_frame(0, 11)).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(pool_frame(1, 10)).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(pool_frame(1'001, 0)).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(admit_frame(2, {5, 6, 7})).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(admit_frame(0, {5})).error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_reply(test::error_frame(1, static_cast<wire::ErrorCode>(200), "")).error().code,
            ErrorCode::corrupt);
}

TEST(ReplyDecoder, LeavesOutABodyOfALaterProtocol) {
  const auto reply = decode_reply(frame_with(static_cast<wire::ReplyBody>(77), [](auto& builder) {
    return wire::CreateFlushReply(builder, 8, 9);
  }));
  ASSERT_TRUE(reply);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(reply->body));
}

TEST(ReplyDecoder, ReadsAFrameAtAnyAddress) {
  const Bytes frame = admit_frame(2, {5, 6});
  for (std::size_t shift = 0; shift < 16; ++shift) {
    Bytes moved(frame.size() + shift);
    std::memcpy(moved.data() + shift, frame.data(), frame.size());
    const auto reply = decode_reply(std::span(moved).subspan(shift));
    ASSERT_TRUE(reply) << shift;
    EXPECT_EQ(std::get<AdmitAnswer>(reply->body).admission.slots[1], SlotId(6));
  }
}

TEST(ReplyDecoder, SurvivesFramesCutAtEveryLength) {
  for (const Bytes& frame : all_frames()) {
    std::size_t refused = 0;
    for (std::size_t bytes = 0; bytes < frame.size(); ++bytes) {
      // A buffer of its own, so that a sanitizer sees a read behind its end.
      const auto cut = std::make_unique<std::byte[]>(bytes);
      std::memcpy(cut.get(), frame.data(), bytes);
      if (!decode_reply({cut.get(), bytes})) ++refused;
    }
    EXPECT_GT(refused, frame.size() / 2);
  }
}

TEST(ReplyDecoder, SurvivesEveryChangedByteAndRandomDamage) {
  std::uint64_t refused = 0;
  for (const Bytes& frame : all_frames()) {
    for (std::size_t at = 0; at < frame.size(); ++at) {
      for (const auto mask : {std::byte{0xFF}, std::byte{0x01}, std::byte{0x80}}) {
        Bytes damaged = frame;
        damaged[at] ^= mask;
        if (!decode_reply(damaged)) ++refused;
      }
    }
    Prng prng(frame.size());
    for (int round = 0; round < 2'000; ++round) {
      Bytes damaged = frame;
      for (std::uint64_t n = 1 + prng.below(4); n > 0; --n) {
        damaged[prng.below(damaged.size())] = static_cast<std::byte>(prng.below(256));
      }
      if (!decode_reply(damaged)) ++refused;
    }
  }
  EXPECT_GT(refused, 1'000U);
}

TEST(AttachCodec, ReadsAnIdentity) {
  const auto answer =
      decode_attach_reply(test::attach_frame(wire::ErrorCode::ok, "", {1, 2}, 33, {4, 5}, 4'096));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->boot, (Id128{1, 2}));
  EXPECT_EQ(answer->client, ClientId(33));
  EXPECT_EQ(answer->secret, (Id128{4, 5}));
  EXPECT_EQ(answer->bytes, 4'096U);
  EXPECT_TRUE(answer->writable);
}

TEST(AttachCodec, PassesARefusalOn) {
  const auto answer = decode_attach_reply(
      test::attach_frame(wire::ErrorCode::denied, "not your user", {1, 2}, 0, {}, 0));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::denied);
  EXPECT_EQ(answer.error().reason, "not your user");
}

TEST(AttachCodec, RefusesItsOwnRequestAsAReply) {
  const auto packet = encode_attach_request(AttachKind::enter, true);
  EXPECT_EQ(decode_attach_reply(packet).error().code, ErrorCode::corrupt);
  const auto& request = *wire::GetAttachMessage(packet.data())->body_as_AttachRequest();
  EXPECT_EQ(request.protocol_version(), 1U);
  EXPECT_EQ(request.kind(), wire::AttachKind::enter);
  EXPECT_TRUE(request.admin());
}

TEST(AttachCodec, SurvivesCutAndChangedPackets) {
  const Bytes good = test::attach_frame(wire::ErrorCode::ok, "reason", {1, 2}, 33, {4, 5}, 4'096);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    const auto cut = std::make_unique<std::byte[]>(at);
    std::memcpy(cut.get(), good.data(), at);
    if (!decode_attach_reply({cut.get(), at})) ++refused;
    Bytes damaged = good;
    damaged[at] ^= std::byte{0xFF};
    (void)decode_attach_reply(damaged);
  }
  EXPECT_GT(refused, good.size() / 2);
}

TEST(StaticText, KeepsATextForTheProcessAndMakesItPrintable) {
  std::string text = "layers differ";
  const std::string_view kept = static_text(text, "");
  text.assign(text.size(), '#');
  EXPECT_EQ(kept, "layers differ");
  EXPECT_EQ(static_text("a\x1b[31mb\n", ""), "a?[31mb?");
  EXPECT_EQ(static_text(std::string(300, 'y'), "").size(), 256U);
}

}  // namespace
}  // namespace kv::client
