#include "cachesvc/wire/attach_codec.h"

#include <cstring>

#include <gtest/gtest.h>

#include "cachesvc/wire/codec.h"
#include "schemas/attach_generated.h"
#include "tests/cachesvc/wire/samples.h"

namespace kv::testing {
namespace {

using codec::AttachKind;
using codec::AttachRequest;
using codec::decode_attach_request;

std::vector<std::byte> bytes_of(const flatbuffers::FlatBufferBuilder& builder) {
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

std::vector<std::byte> packet(wire::AttachBody type, std::uint8_t kind) {
  flatbuffers::FlatBufferBuilder builder;
  const auto body =
      wire::CreateAttachRequest(builder, 9, static_cast<wire::AttachKind>(kind)).Union();
  wire::FinishAttachMessageBuffer(builder, wire::CreateAttachMessage(builder, type, body));
  return bytes_of(builder);
}

TEST(AttachCodec, ReadsARequestAtEveryAlignment) {
  const std::vector<std::byte> bytes = attach_request_sample().bytes;
  std::vector<std::byte> shifted(bytes.size() + 8);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::memcpy(shifted.data() + shift, bytes.data(), bytes.size());
    const auto request = decode_attach_request(std::span(shifted).subspan(shift, bytes.size()));
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(*request, (AttachRequest{1, AttachKind::host_arena, true}));
  }
}

TEST(AttachCodec, LeavesTheVersionToTheCaller) {
  const auto request = decode_attach_request(packet(wire::AttachBody::AttachRequest, 1));
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(*request, (AttachRequest{9, AttachKind::device_pool, false}));
}

TEST(AttachCodec, RefusesKindsOutOfRange) {
  const auto request = decode_attach_request(packet(wire::AttachBody::AttachRequest, 3));
  ASSERT_FALSE(request.has_value());
  EXPECT_EQ(request.error().code, ErrorCode::invalid);
  EXPECT_EQ(request.error().field, "kind");
}

TEST(AttachCodec, AnswersAMessageOfALaterProtocolWithUnsupported) {
  const auto request = decode_attach_request(packet(static_cast<wire::AttachBody>(3), 0));
  ASSERT_FALSE(request.has_value());
  EXPECT_EQ(request.error().code, ErrorCode::unsupported);
}

TEST(AttachCodec, RefusesRepliesAndMessagesWithoutABody) {
  for (const Sample& sample : attach_reply_samples()) {
    const auto request = decode_attach_request(sample.bytes);
    ASSERT_FALSE(request.has_value());
    EXPECT_EQ(request.error().field, "body");
  }
  flatbuffers::FlatBufferBuilder builder;
  wire::FinishAttachMessageBuffer(
      builder, wire::CreateAttachMessage(builder, wire::AttachBody::AttachRequest, 0));
  const auto request = decode_attach_request(bytes_of(builder));
  ASSERT_FALSE(request.has_value());
  EXPECT_EQ(request.error().field, "body");
}

TEST(AttachCodec, RefusesPacketsOverTheLimitAndRequestsOfTheOtherSocket) {
  std::vector<std::byte> bytes = attach_request_sample().bytes;
  bytes.resize(codec::kAttachPacketBytesMax);  // trailing bytes are no error of FlatBuffers
  EXPECT_TRUE(decode_attach_request(bytes).has_value());
  bytes.resize(codec::kAttachPacketBytesMax + 1);
  const auto large = decode_attach_request(bytes);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::too_large);
  const auto other = decode_attach_request(request_samples().front().bytes);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, ErrorCode::invalid);
}

const wire::AttachReply& received(const std::vector<std::byte>& bytes) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  EXPECT_TRUE(wire::VerifyAttachMessageBuffer(verifier));
  return *wire::GetAttachMessage(bytes.data())->body_as_AttachReply();
}

TEST(AttachCodec, WritesRepliesThatAClientCanRead) {
  const std::vector<Sample> samples = attach_reply_samples();
  const wire::AttachReply& entered = received(samples[0].bytes);
  EXPECT_EQ(entered.code(), wire::ErrorCode::ok);
  EXPECT_EQ(entered.reason(), nullptr);
  EXPECT_EQ(entered.boot()->a(), 0x0102030405060708U);
  EXPECT_EQ(entered.client(), 7U);
  EXPECT_EQ(entered.secret()->a(), 0x1122334455667788U);
  EXPECT_EQ(entered.secret()->b(), 0x99AABBCCDDEEFF00U);
  EXPECT_EQ(entered.bytes(), 0U);
  EXPECT_FALSE(entered.writable());
  const wire::AttachReply& memory = received(samples[1].bytes);
  EXPECT_EQ(memory.bytes(), 659'456U);
  EXPECT_TRUE(memory.writable());
  EXPECT_EQ(memory.client(), 0U);
  const wire::AttachReply& refused = received(samples[2].bytes);
  EXPECT_EQ(refused.code(), wire::ErrorCode::denied);
  EXPECT_EQ(refused.reason()->str(), "not the same user");
}

TEST(Secrets, AreEqualOnlyInAllTheirBits) {
  constexpr codec::Id128 kSecret{0x1122334455667788U, 0x99AABBCCDDEEFF00U};
  EXPECT_TRUE(codec::equal_secrets(kSecret, kSecret));
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t flip = std::uint64_t{1} << bit;
    EXPECT_FALSE(codec::equal_secrets(kSecret, {kSecret.a ^ flip, kSecret.b}));
    EXPECT_FALSE(codec::equal_secrets(kSecret, {kSecret.a, kSecret.b ^ flip}));
    EXPECT_FALSE(codec::equal_secrets(kSecret, {kSecret.a ^ flip, kSecret.b ^ flip}));
  }
}

}  // namespace
}  // namespace kv::testing
