// The compression function alone is deprecated in OpenSSL 3.0 in favour of EVP, which reads files
// and takes locks, and does not offer the bare state that a block key is.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "allocator/block_key.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <openssl/sha.h>

#include "allocator/base/check.h"

namespace kv {
namespace {

constexpr std::size_t kChunkBytes = SHA256_CBLOCK;
constexpr std::size_t kChunkTokens = kChunkBytes / sizeof(Token);
constexpr std::size_t kStateWords = 8;

static_assert(std::endian::native == std::endian::little,
              "tokens are hashed as they lie in memory");

std::uint32_t load_big_endian(const std::byte* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return __builtin_bswap32(word);
}

Digest to_digest(const SHA256_CTX& context) {
  Digest digest;
  for (std::size_t i = 0; i < kStateWords; ++i) {
    const std::uint32_t word = __builtin_bswap32(context.h[i]);
    std::memcpy(digest.bytes.data() + i * sizeof word, &word, sizeof word);
  }
  return digest;
}

void compress(SHA256_CTX& context, const void* chunk) {
  SHA256_Transform(&context, static_cast<const unsigned char*>(chunk));
}

}  // namespace

Digest next_block_key(const Digest& previous, std::span<const Token> tokens) {
  KV_CHECK(std::has_single_bit(tokens.size()));
  SHA256_CTX context{};
  for (std::size_t i = 0; i < kStateWords; ++i) {
    context.h[i] = load_big_endian(previous.bytes.data() + i * sizeof(std::uint32_t));
  }
  if (tokens.size() < kChunkTokens) {
    std::array<Token, kChunkTokens> padded{};
    std::copy(tokens.begin(), tokens.end(), padded.begin());
    compress(context, padded.data());
  } else {
    for (std::size_t i = 0; i < tokens.size(); i += kChunkTokens) compress(context, &tokens[i]);
  }
  return to_digest(context);
}

Digest sha256(std::span<const std::byte> bytes) {
  SHA256_CTX context{};
  constexpr std::array<std::uint32_t, kStateWords> kStart = {0x6A09E667U, 0xBB67AE85U, 0x3C6EF372U,
                                                             0xA54FF53AU, 0x510E527FU, 0x9B05688CU,
                                                             0x1F83D9ABU, 0x5BE0CD19U};
  std::copy(kStart.begin(), kStart.end(), context.h);
  std::size_t offset = 0;
  for (; bytes.size() - offset >= kChunkBytes; offset += kChunkBytes) {
    compress(context, &bytes[offset]);
  }
  // The rest, a one bit, zeros, and the length in bits as 8 bytes big endian: one chunk or two.
  std::array<std::byte, 2 * kChunkBytes> last{};
  const std::size_t rest = bytes.size() - offset;
  if (rest > 0) std::memcpy(last.data(), &bytes[offset], rest);
  last[rest] = std::byte{0x80};
  const std::size_t padded =
      rest + 1 + sizeof(std::uint64_t) <= kChunkBytes ? kChunkBytes : 2 * kChunkBytes;
  const std::uint64_t bits = __builtin_bswap64(std::uint64_t{bytes.size()} * 8);
  std::memcpy(last.data() + padded - sizeof bits, &bits, sizeof bits);
  for (std::size_t i = 0; i < padded; i += kChunkBytes) compress(context, &last[i]);
  return to_digest(context);
}

}  // namespace kv
