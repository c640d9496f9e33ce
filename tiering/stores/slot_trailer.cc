#include "tiering/stores/slot_trailer.h"

#include <cstring>

#include "allocator/base/check.h"
#include "tiering/stores/byte_codec.h"
#include "tiering/stores/checksum.h"

namespace kv {
namespace {

constexpr std::uint32_t kTrailerMagic = 0x3154564BU;  // "KVT1"

std::string encode(const BlobIdentity& identity) {
  ByteWriter writer;
  writer.u32(kTrailerMagic);
  writer.u32(identity.generation);
  writer.digest(identity.key);
  writer.u32(identity.depth);
  writer.u32(identity.group.value);
  writer.u32(identity.slot.value);
  writer.u32(identity.checksum);
  writer.u32(0);
  writer.u32(crc32c(std::as_bytes(std::span(writer.bytes()))));
  return writer.take();
}

}  // namespace

void write_slot_trailer(const BlobIdentity& identity, std::span<std::byte> trailer) {
  const std::string bytes = encode(identity);
  KV_CHECK(bytes.size() == kSlotTrailerBytes && trailer.size() == kSlotTrailerBytes);
  std::memcpy(trailer.data(), bytes.data(), bytes.size());
}

bool slot_trailer_matches(const BlobIdentity& identity, std::span<const std::byte> trailer) {
  const std::string expected = encode(identity);
  return trailer.size() == expected.size() &&
         std::memcmp(trailer.data(), expected.data(), expected.size()) == 0;
}

}  // namespace kv
