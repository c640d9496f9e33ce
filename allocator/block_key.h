// Block keys: the content identity of a block.
// key_i = SHA-256 compression state after block i's tokens (32-bit little endian) were fed to
// key_{i-1}; key_{-1} = the namespace's digest. The 8 state words are written big endian, as
// SHA-256 does. A block of 16 tokens is exactly one compression; a smaller one is padded with zero
// bytes to 64, a larger one is a whole number of compressions. Fixed lengths and a fixed start keep
// the Merkle-Damgard collision resistance without length padding. Threads: none. Cost: one
// compression for each 16 tokens (about 40 ns with SHA instructions).
#pragma once

#include <span>

#include "allocator/base/token.h"

namespace kv {

// requires: tokens.size() is B, a power of two.
[[nodiscard]] Digest next_block_key(const Digest& previous, std::span<const Token> tokens);

// One-shot SHA-256 (FIPS 180-4), for namespaces and layouts.
[[nodiscard]] Digest sha256(std::span<const std::byte> bytes);

}  // namespace kv
