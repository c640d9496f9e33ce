// The bytes on the disk: pinned, and refused when they are not what was written.
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tiering/stores/store_support.h"
#include "tiering/stores/byte_codec.h"
#include "tiering/stores/disk_format.h"
#include "tiering/stores/disk_record.h"
#include "tiering/stores/slab_name.h"
#include "tiering/stores/slot_table.h"
#include "tiering/stores/slot_trailer.h"

namespace kv {
namespace {

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += kDigits[value >> 4U];
    text += kDigits[value & 15U];
  }
  return text;
}
std::string repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}
Digest filled(std::uint8_t value) {
  Digest digest;
  digest.bytes.fill(std::byte{value});
  return digest;
}
// The last four bytes of a record are the CRC32C of what precedes; tested apart.
std::string without_checksum(const std::string& bytes) { return bytes.substr(0, bytes.size() - 4); }
std::string with_checksum(const std::string& body, std::string_view key = {}) {
  const std::string summed = std::string(key) + body;
  ByteWriter writer;
  writer.u32(crc32c(std::as_bytes(std::span(summed))));
  return body + writer.bytes();
}

BlobIdentity some_identity() {
  return {.key = filled(0x11),
          .parent_key = filled(0x22),
          .namespace_digest = filled(0x33),
          .depth = 0x01020304,
          .group = GroupId(5),
          .slot = SlotId(0x0A0B0C0D),
          .generation = 7,
          .checksum = 0xCAFEF00D};
}

TEST(ByteCodec, WritesLittleEndianAndReadsItBack) {
  ByteWriter writer;
  writer.u8(0xAB);
  writer.u32(0x01020304);
  writer.u64(0x05060708090A0B0CU);
  writer.u32_big_endian(0x0D0E0F10);
  EXPECT_EQ(hex(writer.bytes()), "ab040302010c0b0a09080706050d0e0f10");
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.u8(), 0xABU);
  EXPECT_EQ(reader.u32(), 0x01020304U);
  EXPECT_EQ(reader.u64(), 0x05060708090A0B0CU);
  EXPECT_EQ(reader.u32_big_endian(), 0x0D0E0F10U);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.left(), 0U);
}

TEST(ByteCodec, ReadsZeroesPastTheEndAndSaysSo) {
  ByteReader reader("\x01\x02");
  EXPECT_TRUE(reader.take(3).empty());
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.u64(), 0U);
  EXPECT_EQ(reader.digest(), Digest{});
  EXPECT_EQ(reader.left(), 0U);
}

TEST(DiskRecord, HasItsPinnedBytes) {
  const BlobIdentity identity = some_identity();
  const std::vector<Token> tokens = {1, 0x10203040};
  const std::string key = disk_key(identity.key, identity.depth, identity.group);
  EXPECT_EQ(hex(key),
            "01020304"
            "00000005" +
                repeated("11", 32));
  const std::string value = disk_value(identity, tokens);
  EXPECT_EQ(hex(without_checksum(value)), "01000000" + repeated("22", 32) + repeated("33", 32) +
                                              "0d0c0b0a"
                                              "07000000"
                                              "0df0feca"
                                              "02000000"
                                              "01000000"
                                              "40302010");
  EXPECT_EQ(value, with_checksum(without_checksum(value), key));
}

TEST(DiskRecord, DecodesToWhatWasEncoded) {
  const BlobIdentity identity = some_identity();
  const std::vector<Token> tokens = {3, 1, 4, 1, 5, 9};
  const auto record = decode_disk_record(disk_key(identity.key, identity.depth, identity.group),
                                         disk_value(identity, tokens));
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(same_identity(record->identity, identity));
  EXPECT_EQ(record->tokens, tokens);
}

TEST(DiskRecord, WithAnyFlippedBitOrOfAnyOtherLengthIsCorrupt) {
  const BlobIdentity identity = some_identity();
  const std::string key = disk_key(identity.key, identity.depth, identity.group);
  const std::string value = disk_value(identity, std::vector<Token>{1, 2, 3});
  for (std::size_t bit = 0; bit < (key.size() + value.size()) * 8; ++bit) {
    std::string both = key + value;
    both[bit / 8] = static_cast<char>(both[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(decode_disk_record(both.substr(0, key.size()), both.substr(key.size())))
        << "bit " << bit;
  }
  for (std::size_t length = 0; length < value.size(); ++length) {
    ASSERT_FALSE(decode_disk_record(key, value.substr(0, length))) << "length " << length;
  }
  EXPECT_FALSE(decode_disk_record(key, value + std::string(1, '\0')));
}

TEST(DiskRecord, OfAnotherVersionOrWithAWrongCountIsCorruptEvenWithARightChecksum) {
  const BlobIdentity identity = some_identity();
  const std::string key = disk_key(identity.key, identity.depth, identity.group);
  const std::string body = without_checksum(disk_value(identity, std::vector<Token>{1, 2, 3}));
  ASSERT_TRUE(decode_disk_record(key, with_checksum(body, key)));
  std::string version = body;
  version[0] = 2;
  EXPECT_FALSE(decode_disk_record(key, with_checksum(version, key)));
  std::string count = body;
  count[4 + 64 + 12] = 4;
  EXPECT_FALSE(decode_disk_record(key, with_checksum(count, key)));
  count[4 + 64 + 12 + 3] = static_cast<char>(0xFF);  // four thousand million tokens
  EXPECT_FALSE(decode_disk_record(key, with_checksum(count, key)));
}

TEST(SlotTrailer, HasItsPinnedBytesAndMatchesNoOtherIdentity) {
  const BlobIdentity identity = some_identity();
  std::vector<std::byte> trailer(kSlotTrailerBytes);
  write_slot_trailer(identity, trailer);
  const std::string bytes(reinterpret_cast<const char*>(trailer.data()), trailer.size());
  EXPECT_EQ(hex(without_checksum(bytes)),
            "4b565431"
            "07000000" +
                repeated("11", 32) +
                "04030201"
                "05000000"
                "0d0c0b0a"
                "0df0feca"
                "00000000");
  EXPECT_EQ(bytes, with_checksum(without_checksum(bytes)));
  EXPECT_TRUE(slot_trailer_matches(identity, trailer));
  std::vector<BlobIdentity> others(6, identity);
  others[0].key = filled(0x12);
  others[1].depth += 1;
  others[2].group = GroupId(4);
  others[3].slot = SlotId(1);
  others[4].generation += 1;
  others[5].checksum ^= 1U;
  for (const BlobIdentity& other : others) EXPECT_FALSE(slot_trailer_matches(other, trailer));
  for (std::size_t bit = 0; bit < trailer.size() * 8; ++bit) {
    trailer[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_FALSE(slot_trailer_matches(identity, trailer)) << "bit " << bit;
    trailer[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(DiskFormat, HasItsPinnedBytes) {
  const std::string bytes =
      encode_disk_format({.slab_bytes = 0x0102030405U, .layout = layout_of(5, 4, 8, 16)});
  EXPECT_EQ(hex(without_checksum(bytes)),
            "4b564449534b0d0a"
            "01000000"
            "0504030201000000"
            "10000000"
            "01000000"
            "000000"
            "05000000"
            "04000000"
            "08000000"
            "10000000"
            "00000000"
            "00000000");
  EXPECT_EQ(bytes, with_checksum(without_checksum(bytes)));
}

TEST(DiskFormat, DecodesToWhatWasEncoded) {
  KvLayout layout = layout_of(5, 4, 8, 16, DType::bf16);
  layout.groups.push_back({.kind = AttentionKind::window,
                           .layer_count = 3,
                           .kv_head_count = 2,
                           .head_dim_k = 64,
                           .head_dim_v = 32,
                           .k_dtype = DType::i8,
                           .v_dtype = DType::f16,
                           .window_tokens = 1024,
                           .sink_tokens = 4});
  const auto format = decode_disk_format(encode_disk_format({.slab_bytes = 77, .layout = layout}));
  ASSERT_TRUE(format.has_value());
  EXPECT_EQ(format->slab_bytes, 77U);
  EXPECT_EQ(format->layout, layout);
}

TEST(DiskFormat, OfAnotherVersionIsUnsupportedAndNamesIt) {
  const std::string body =
      without_checksum(encode_disk_format({.slab_bytes = 1, .layout = page_layout()}));
  for (const char version : {'\x00', '\x02'}) {
    std::string other = body;
    other[8] = version;
    const auto format = decode_disk_format(with_checksum(other));
    ASSERT_FALSE(format.has_value());
    EXPECT_EQ(format.error().code, ErrorCode::unsupported);
    EXPECT_EQ(format.error().field, "version");
  }
}

TEST(DiskFormat, OfForeignContentOrAWrongLengthIsCorrupt) {
  EXPECT_EQ(decode_disk_format("").error().code, ErrorCode::corrupt);
  EXPECT_EQ(decode_disk_format("a file of somebody else's").error().code, ErrorCode::corrupt);
  const std::string body =
      without_checksum(encode_disk_format({.slab_bytes = 1, .layout = page_layout()}));
  EXPECT_FALSE(decode_disk_format(with_checksum(body.substr(0, body.size() - 1))));
  EXPECT_FALSE(decode_disk_format(with_checksum(body + "x")));
  std::string dtype = body;
  dtype[8 + 4 + 8 + 4 + 4 + 1] = 99;
  EXPECT_FALSE(decode_disk_format(with_checksum(dtype)));
}

TEST(SlabName, IsOnlyWhatItWouldPrint) {
  EXPECT_EQ(slab_name(2, 17), "slab.2.17");
  const SlabName name = parse_slab_name("slab.2.17").value_or(SlabName{});
  EXPECT_EQ(name.group, 2U);
  EXPECT_EQ(name.file, 17U);
  for (const std::string_view other :
       {"", "slab", "slab.", "slab.1", "slab.1.", "slab..1", "slab.01.1", "slab.1.-1", "slab.1.2.3",
        "slab.1.2x", "Slab.1.2", "slab.99999999999999999999.1"}) {
    EXPECT_FALSE(parse_slab_name(other).has_value()) << other;
  }
}

TEST(SlotTable, KnowsTheBlockOfEachSlotAndGrowsAsNeeded) {
  SlotTable table;
  EXPECT_EQ(table.at(SlotId(1'000'000)).origin, SlotTable::Origin::none);
  table.clear(SlotId(5));
  table.set(SlotId(5),
            {.key = filled(1), .depth = 2, .generation = 3, .origin = SlotTable::Origin::this_run});
  EXPECT_TRUE(table.at(SlotId(5)).is(filled(1), 2, 3));
  EXPECT_FALSE(table.at(SlotId(5)).is(filled(1), 2, 4));
  EXPECT_FALSE(table.at(SlotId(5)).is(filled(1), 1, 3));
  EXPECT_FALSE(table.at(SlotId(5)).is(filled(2), 2, 3));
  EXPECT_FALSE(table.at(SlotId(4)).is(Digest{}, 0, 0)) << "a free slot is no block";
  table.clear(SlotId(5));
  EXPECT_EQ(table.at(SlotId(5)).origin, SlotTable::Origin::none);
}

}  // namespace
}  // namespace kv
