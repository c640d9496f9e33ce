// Frames as a service sends them, made with FlatBuffers alone: independent of the client's codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "schemas/attach_generated.h"
#include "schemas/reply_generated.h"

namespace kv::test {

using Bytes = std::vector<std::byte>;

struct ReplyParts {
  wire::Id128 boot{7, 9};
  std::uint64_t request = 0;
  wire::ErrorCode code = wire::ErrorCode::ok;
  std::string reason;
  std::string field;
  std::uint32_t retry_after_us = 0;
  std::vector<wire::Notice> notices;
  wire::ReplyBody body_type = wire::ReplyBody::NONE;
  std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)> body;
};

inline Bytes copy_of(const flatbuffers::FlatBufferBuilder& builder) {
  const auto bytes = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return {bytes.begin(), bytes.end()};
}

inline Bytes reply_frame(const ReplyParts& parts) {
  flatbuffers::FlatBufferBuilder builder;
  flatbuffers::Offset<void> body;
  if (parts.body) body = parts.body(builder);
  const auto reason = builder.CreateString(parts.reason);
  const auto field = builder.CreateString(parts.field);
  const auto notices = builder.CreateVectorOfStructs(parts.notices);
  wire::FinishReplyBuffer(
      builder, wire::CreateReply(builder, &parts.boot, parts.request, parts.code, reason, field,
                                 parts.retry_after_us, notices, parts.body_type, body));
  return copy_of(builder);
}

inline Bytes error_frame(std::uint64_t request, wire::ErrorCode code, const std::string& reason,
                         std::uint32_t retry_after_us = 0) {
  return reply_frame({.request = request,
                      .code = code,
                      .reason = reason,
                      .field = {},
                      .retry_after_us = retry_after_us,
                      .notices = {},
                      .body = {}});
}

inline Bytes hello_frame(std::uint64_t request, std::uint32_t lease_ms) {
  ReplyParts parts;
  parts.request = request;
  parts.body_type = wire::ReplyBody::HelloReply;
  parts.body = [lease_ms](auto& builder) {
    return wire::CreateHelloReply(builder, lease_ms, 64).Union();
  };
  return reply_frame(parts);
}

inline Bytes attach_frame(wire::ErrorCode code, const std::string& reason, const wire::Id128& boot,
                          std::uint64_t client, const wire::Id128& secret, std::uint64_t bytes) {
  flatbuffers::FlatBufferBuilder builder;
  const auto text = builder.CreateString(reason);
  const auto reply =
      wire::CreateAttachReply(builder, code, text, &boot, client, &secret, bytes, true);
  wire::FinishAttachMessageBuffer(
      builder, wire::CreateAttachMessage(builder, wire::AttachBody::AttachReply, reply.Union()));
  return copy_of(builder);
}

}  // namespace kv::test
