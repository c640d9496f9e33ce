#include "tiering/stores/checksum.h"

#include <algorithm>

#include <isa-l/crc.h>

namespace kv {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  // ISA-L counts in int and takes a pointer that is not const, though it only reads.
  constexpr std::size_t kPartBytesMax = std::size_t{1} << 30U;
  std::uint32_t crc = before ^ 0xFFFFFFFFU;
  while (!bytes.empty()) {
    const std::span<const std::byte> part = bytes.first(std::min(bytes.size(), kPartBytesMax));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(part.data()));
    crc = crc32_iscsi(data, static_cast<int>(part.size()), crc);
    bytes = bytes.subspan(part.size());
  }
  return crc ^ 0xFFFFFFFFU;
}

}  // namespace kv
