// The identity of a block at the end of its disk slot, where rounding up leaves room for it: a read
// then knows whose bytes it got, beside their checksum.
// Threads: any. Cost: 64 bytes and their CRC32C.
#pragma once

#include <cstddef>
#include <span>

#include "tiering/stores/blob_store.h"

namespace kv {

inline constexpr std::size_t kSlotTrailerBytes = 64;

// requires: trailer.size() == kSlotTrailerBytes.
void write_slot_trailer(const BlobIdentity& identity, std::span<std::byte> trailer);
// True if the trailer is whole and names this key, depth, group, slot, generation and checksum.
[[nodiscard]] bool slot_trailer_matches(const BlobIdentity& identity,
                                        std::span<const std::byte> trailer);

}  // namespace kv
