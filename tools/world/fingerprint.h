// Fingerprints stand for the bytes of a block in the virtual world: 64 bits made from the namespace
// and all tokens up to the block's end, so that equal fingerprints mean equal KV. They are made
// without the service's key chain: whoever mixes blocks up in the service cannot mix them up here
// too. Threads: none. Cost: O(tokens).
#pragma once

#include <cstdint>
#include <span>

#include "allocator/base/ids.h"
#include "allocator/base/token.h"

namespace kv::world {

using Fingerprint = std::uint64_t;

[[nodiscard]] constexpr Fingerprint mix(Fingerprint state, std::uint64_t word) {
  state = (state ^ word) + 0x9E3779B97F4A7C15U;
  state = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9U;
  state = (state ^ (state >> 27U)) * 0x94D049BB133111EBU;
  return state ^ (state >> 31U);
}

// Of the empty prefix of a namespace.
[[nodiscard]] constexpr Fingerprint start_of(const Digest& namespace_digest) {
  Fingerprint state = 1;
  for (const std::byte byte : namespace_digest.bytes) {
    state = mix(state, static_cast<std::uint64_t>(byte));
  }
  return state;
}

// Of a prefix and the tokens that follow it.
[[nodiscard]] constexpr Fingerprint extend(Fingerprint prefix, std::span<const Token> tokens) {
  for (const Token token : tokens) prefix = mix(prefix, token);
  return prefix;
}

// Each layer group holds other bytes of the same prefix.
[[nodiscard]] constexpr Fingerprint of_group(Fingerprint prefix, GroupId group) {
  return mix(prefix, std::uint64_t{0x100000000U} + group.value);
}

// The virtual CRC32C of a block's bytes.
[[nodiscard]] constexpr std::uint32_t checksum_of(Fingerprint fingerprint) {
  return static_cast<std::uint32_t>(fingerprint);
}

}  // namespace kv::world
