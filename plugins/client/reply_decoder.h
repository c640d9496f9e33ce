// decode_reply: frames from the service to values (schemas/reply.fbs). The bytes are hostile until
// they were verified: a frame is taken whole or not at all. Owner: the caller; what it returns owns
// its memory. Threads: any. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <span>

#include "allocator/base/result.h"
#include "plugins/client/messages.h"

namespace kv::client {

// Every index and range inside the reply is checked against the reply itself; what depends on the
// session (slots of the pool) is not. A body that this client does not know is left out.
// fails: corrupt (not a verified Reply, or one that contradicts itself), too_large.
[[nodiscard]] Result<ReplyMessage> decode_reply(std::span<const std::byte> frame);

}  // namespace kv::client
