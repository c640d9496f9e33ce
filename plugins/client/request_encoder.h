// RequestEncoder: requests to frames of the protocol (schemas/request.fbs).
// Owner: one connection. Threads: one caller at a time. Cost: O(bytes); the buffer is kept, so that
// a steady step allocates nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "allocator/base/result.h"
#include "plugins/client/messages.h"

namespace kv::client {

class RequestEncoder {
 public:
  RequestEncoder();
  ~RequestEncoder();
  RequestEncoder(RequestEncoder&&) noexcept;
  RequestEncoder& operator=(RequestEncoder&&) noexcept;
  RequestEncoder(const RequestEncoder&) = delete;
  RequestEncoder& operator=(const RequestEncoder&) = delete;

  // From now on no frame is longer. As long as nothing else is said: kRequestBytesMax.
  void limit_bytes(std::size_t bytes);

  // The frame is valid until the next encode. fails: too_large (a field or the frame over its
  // limit).
  [[nodiscard]] Result<std::span<const std::byte>> encode(const RequestHead& head,
                                                          const RequestMessage& message);

 private:
  struct State;  // keeps FlatBuffers out of this header
  std::unique_ptr<State> state_;
};

}  // namespace kv::client
