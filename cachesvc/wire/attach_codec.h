// The service's side of the attach socket: one message a SEQPACKET packet.
// Owner: the caller. Threads: none; free functions without state. Cost: O(bytes), one allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "cachesvc/wire/id128.h"

namespace kv::codec {

inline constexpr std::size_t kAttachPacketBytesMax = 1'024;

enum class AttachKind : std::uint8_t { enter, device_pool, host_arena };
inline constexpr std::uint8_t kAttachKindCount = 3;

struct AttachRequest {
  std::uint32_t protocol_version = 0;  // not judged here
  AttachKind kind = AttachKind::enter;
  bool admin = false;  // with enter: asks for the admin role
  friend bool operator==(const AttachRequest&, const AttachRequest&) = default;
};

struct AttachReply {
  Error error{ErrorCode::ok, {}, {}};  // the field does not travel
  Id128 boot;
  ClientId client = ClientId(0);  // with enter
  Id128 secret;                   // with enter
  std::uint64_t bytes = 0;        // of the memory whose descriptor goes with this message
  bool writable = false;
};

// fails: too_large (over kAttachPacketBytesMax), invalid (no valid packet, not a request, a kind
// out of range), unsupported (a body of a later protocol).
[[nodiscard]] Result<AttachRequest> decode_attach_request(std::span<const std::byte> packet);
[[nodiscard]] std::vector<std::byte> encode_attach_reply(const AttachReply& reply);

}  // namespace kv::codec
