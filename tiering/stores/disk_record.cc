#include "tiering/stores/disk_record.h"

#include "tiering/stores/byte_codec.h"
#include "tiering/stores/checksum.h"

namespace kv {
namespace {

constexpr std::uint32_t kRecordVersion = 1;
constexpr std::size_t kFixedBytes = 4 + 32 + 32 + 4 * 4;
constexpr std::size_t kChecksumBytes = 4;

std::uint32_t record_checksum(std::string_view key, std::string_view value) {
  return crc32c(std::as_bytes(std::span(value)), crc32c(std::as_bytes(std::span(key))));
}

}  // namespace

std::string disk_key(const Digest& key, std::uint32_t depth, GroupId group) {
  ByteWriter writer;
  writer.u32_big_endian(depth);
  writer.u32_big_endian(group.value);
  writer.digest(key);
  return writer.take();
}

std::string disk_value(const BlobIdentity& identity, std::span<const Token> tokens) {
  ByteWriter writer;
  writer.u32(kRecordVersion);
  writer.digest(identity.parent_key);
  writer.digest(identity.namespace_digest);
  writer.u32(identity.slot.value);
  writer.u32(identity.generation);
  writer.u32(identity.checksum);
  writer.u32(static_cast<std::uint32_t>(tokens.size()));
  for (const Token token : tokens) writer.u32(token);
  writer.u32(
      record_checksum(disk_key(identity.key, identity.depth, identity.group), writer.bytes()));
  return writer.take();
}

Result<BlobStore::Scanned> decode_disk_record(std::string_view key, std::string_view value) {
  if (key.size() != kDiskKeyBytes || value.size() < kFixedBytes + kChecksumBytes) {
    return Error{ErrorCode::corrupt, "index entry: wrong size", {}};
  }
  const std::string_view body = value.substr(0, value.size() - kChecksumBytes);
  if (ByteReader(value.substr(body.size())).u32() != record_checksum(key, body)) {
    return Error{ErrorCode::corrupt, "index entry: its checksum differs", {}};
  }
  BlobStore::Scanned entry;
  ByteReader key_reader(key);
  entry.identity.depth = key_reader.u32_big_endian();
  entry.identity.group = GroupId(key_reader.u32_big_endian());
  entry.identity.key = key_reader.digest();
  ByteReader reader(body);
  const std::uint32_t version = reader.u32();
  entry.identity.parent_key = reader.digest();
  entry.identity.namespace_digest = reader.digest();
  entry.identity.slot = SlotId(reader.u32());
  entry.identity.generation = reader.u32();
  entry.identity.checksum = reader.u32();
  const std::uint32_t token_count = reader.u32();
  if (version != kRecordVersion || reader.left() != std::size_t{token_count} * sizeof(Token)) {
    return Error{ErrorCode::corrupt, "index entry: wrong version or length", {}};
  }
  entry.tokens.reserve(token_count);
  for (std::uint32_t i = 0; i < token_count; ++i) entry.tokens.push_back(reader.u32());
  return entry;
}

}  // namespace kv
