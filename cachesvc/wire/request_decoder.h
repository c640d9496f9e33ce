// RequestDecoder: one request frame of a client -> one core input. Every byte of a frame is hostile
// until it passed here; what comes out is right in form, so that nothing later checks form again.
// Meaning (known ids, order, ranges inside a sequence) is left to the Engine.
//
// Owner: the shell's loop, one decoder for all clients. Threads: one caller at a time.
// Cost: O(items of a Step) + O(1); tokens are not copied unless the frame is misaligned. No
// allocation after construction, but for AttachPool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/kv_layout.h"
#include "allocator/namespace.h"
#include "cachesvc/core/inputs.h"
#include "cachesvc/wire/id128.h"

namespace kv::codec {

inline constexpr std::size_t kMessageBytesMax = 1U << 20U;  // of a request: ZMQ_MAXMSGSIZE too
inline constexpr std::size_t kClientNameBytesMax = 128;

// Who asks. It is only a claim until `secret` was found to be that of `client`.
struct Envelope {
  ClientId client;    // none(): the frame is no request at all; nobody can be answered
  RequestId request;  // none(): no id that could be answered
  Id128 secret;
};

struct DecodedRequest {
  Envelope envelope;
  core::InputView input;  // points into the frame or the decoder: valid until the next decode
};

class RequestDecoder {
 public:
  RequestDecoder();

  // fails: too_large (over kMessageBytesMax, or a count over its limit: the field), unsupported (a
  // body of a later protocol), invalid (no valid frame, or a senseless field: the field).
  [[nodiscard]] Result<DecodedRequest> decode(std::span<const std::byte> frame);

  // Of the last frame. After a failed decode it says whom to answer: client and request are set as
  // soon as the frame itself was sound.
  [[nodiscard]] const Envelope& envelope() const { return envelope_; }

 private:
  struct Body;  // the decoders of the bodies

  [[nodiscard]] std::span<const std::byte> aligned(std::span<const std::byte> frame);

  std::unique_ptr<std::byte[]> copy_;  // kMessageBytesMax, for frames that arrive misaligned
  std::vector<core::StepItem> items_;  // kStepItemsMax
  std::vector<SequenceId> children_;   // kStepItemsMax
  KvLayout layout_;
  NamespaceFields fields_;
  Envelope envelope_;
};

}  // namespace kv::codec
