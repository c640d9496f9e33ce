#include "cachesvc/wire/attach_codec.h"

#include <array>
#include <cstring>

#include "schemas/attach_generated.h"

namespace kv::codec {
namespace {

static_assert(static_cast<std::uint8_t>(wire::AttachKind::host_arena) ==
              static_cast<std::uint8_t>(AttachKind::host_arena));
static_assert(static_cast<std::uint8_t>(wire::AttachKind::MAX) == kAttachKindCount - 1);
static_assert(static_cast<std::uint8_t>(wire::ErrorCode::mismatch) ==
              static_cast<std::uint8_t>(ErrorCode::mismatch));
static_assert(static_cast<std::uint8_t>(wire::ErrorCode::MAX) == kErrorCodeCount - 1);

constexpr std::uint32_t kVerifyDepthMax = 16;
constexpr std::uint32_t kVerifyTablesMax = 16;

}  // namespace

Result<AttachRequest> decode_attach_request(std::span<const std::byte> packet) {
  if (packet.size() > kAttachPacketBytesMax) {
    return Error{ErrorCode::too_large, "over 1 KiB", "packet"};
  }
  alignas(8) std::array<std::byte, kAttachPacketBytesMax> copy;  // the packet may be misaligned
  if (!packet.empty()) std::memcpy(copy.data(), packet.data(), packet.size());
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(copy.data()), packet.size(),
                                 kVerifyDepthMax, kVerifyTablesMax);
  if (!wire::VerifyAttachMessageBuffer(verifier)) {
    return Error{ErrorCode::invalid, "no valid attach message", "packet"};
  }
  const wire::AttachMessage& message = *wire::GetAttachMessage(copy.data());
  if (message.body_type() > wire::AttachBody::MAX) {
    return Error{ErrorCode::unsupported, "unknown attach message", "body"};
  }
  const wire::AttachRequest* request = message.body_as_AttachRequest();
  if (request == nullptr) return Error{ErrorCode::invalid, "not a request", "body"};
  const auto kind = static_cast<std::uint8_t>(request->kind());
  if (kind >= kAttachKindCount) return Error{ErrorCode::invalid, "out of range", "kind"};
  return AttachRequest{.protocol_version = request->protocol_version(),
                       .kind = static_cast<AttachKind>(kind),
                       .admin = request->admin()};
}

std::vector<std::byte> encode_attach_reply(const AttachReply& reply) {
  flatbuffers::FlatBufferBuilder builder(256);
  flatbuffers::Offset<flatbuffers::String> reason;
  if (!reply.error.reason.empty()) {
    reason = builder.CreateString(reply.error.reason.data(), reply.error.reason.size());
  }
  const wire::Id128 boot(reply.boot.a, reply.boot.b);
  const wire::Id128 secret(reply.secret.a, reply.secret.b);
  const auto body =
      wire::CreateAttachReply(builder, static_cast<wire::ErrorCode>(reply.error.code), reason,
                              &boot, reply.client.value, &secret, reply.bytes, reply.writable);
  wire::FinishAttachMessageBuffer(
      builder, wire::CreateAttachMessage(builder, wire::AttachBody::AttachReply, body.Union()));
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

}  // namespace kv::codec
