#include "tiering/stores/checksum.h"

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "allocator/base/prng.h"

namespace kv {
namespace {

// One bit at a time, straight from the definition: reflected polynomial 0x82F63B78.
std::uint32_t crc32c_by_bits(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return crc ^ 0xFFFFFFFFU;
}

std::uint32_t crc32c_of(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

TEST(Checksum, OfTheCheckStringIsThePublishedValue) {
  EXPECT_EQ(crc32c_of("123456789"), 0xE3069283U);
}

TEST(Checksum, OfNothingIsZero) { EXPECT_EQ(crc32c({}), 0U); }

// RFC 3720 B.4 prints the bytes as sent: the lowest byte of the value first.
TEST(Checksum, EqualsTheVectorsOfRfc3720) {
  std::array<std::byte, 32> bytes{};
  EXPECT_EQ(crc32c(bytes), 0x8A9136AAU);  // 32 bytes of zeroes: aa 36 91 8a
  bytes.fill(std::byte{0xFF});
  EXPECT_EQ(crc32c(bytes), 0x62A8AB43U);  // 32 bytes of ones: 43 ab a8 62
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46DD794EU);  // 00 to 1f: 4e 79 dd 46
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(bytes), 0x113FDB5CU);  // 1f to 00: 5c db 3f 11
  constexpr std::array<std::uint8_t, 48> kReadCommand = {
      0x01, 0xC0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
      0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0,    0};
  EXPECT_EQ(crc32c(std::as_bytes(std::span(kReadCommand))), 0xD9963A56U);  // 56 3a 96 d9
}

TEST(Checksum, EqualsTheDefinitionAtEveryLengthAndAlignment) {
  Prng prng(7);
  std::vector<std::byte> bytes(1'200);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  for (std::size_t length = 0; length <= 1'100; ++length) {
    const std::span<const std::byte> part = std::span(bytes).subspan(length % 64, length);
    ASSERT_EQ(crc32c(part), crc32c_by_bits(part)) << "length " << length;
  }
}

TEST(Checksum, GoesOnFromTheSumOfWhatPrecedes) {
  EXPECT_EQ(crc32c(std::as_bytes(std::span(std::string_view("56789"))), crc32c_of("1234")),
            0xE3069283U);
}

}  // namespace
}  // namespace kv
