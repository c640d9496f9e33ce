// CRC32C (Castagnoli, RFC 3720 B.4) of a block's bytes: the checksum of every copy below the
// device. ISA-L's kernel, 40 GB/s and more. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kv {

// crc32c("123456789") = 0xE3069283.
// `before` is the sum of the bytes that precede these: crc32c(b, crc32c(a)) is that of a and b.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace kv
