// Frames as a client would make them, with FlatBuffers and nothing of the service's codec.
// Owner: the caller. Threads: none. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "schemas/request_generated.h"

namespace kv::testing {

using Frame = std::vector<std::byte>;

struct FrameHeader {
  std::uint64_t client = 7;
  std::uint64_t request = 3;
  std::uint64_t notices_acknowledged = 2;
  wire::Id128 secret{0x1122334455667788U, 0x99AABBCCDDEEFF00U};
};

// `make(builder)` makes the body's table and returns its offset.
template <class Make>
[[nodiscard]] Frame request_frame(wire::RequestBody type, Make&& make,
                                  const FrameHeader& header = FrameHeader()) {
  flatbuffers::FlatBufferBuilder builder;
  const flatbuffers::Offset<void> body = std::forward<Make>(make)(builder).Union();
  wire::FinishRequestBuffer(
      builder, wire::CreateRequest(builder, header.client, &header.secret, header.request,
                                   header.notices_acknowledged, type, body));
  const auto* bytes = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

}  // namespace kv::testing
