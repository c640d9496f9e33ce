// The bytes of an index entry. Key: depth and group, 4 bytes big endian each, then the block key:
// so iteration gives parents before children. Value: fixed fields, tokens, and a CRC32C over key
// and value, which also catches a value under another key. Threads: any. Cost: O(tokens).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.h"
#include "tiering/stores/blob_store.h"

namespace kv {

inline constexpr std::size_t kDiskKeyBytes = 40;

[[nodiscard]] std::string disk_key(const Digest& key, std::uint32_t depth, GroupId group);
[[nodiscard]] std::string disk_value(const BlobIdentity& identity, std::span<const Token> tokens);

// fails: corrupt (any byte differs from what was written).
[[nodiscard]] Result<BlobStore::Scanned> decode_disk_record(std::string_view key,
                                                            std::string_view value);

}  // namespace kv
