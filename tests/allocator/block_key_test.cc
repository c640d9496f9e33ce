#include "allocator/block_key.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kv {
namespace {

std::string hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest.bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

Digest hash_of(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

// The examples of FIPS 180-4 and of NIST's test vectors.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(hex(hash_of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(hash_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(hash_of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Derived with Python's hashlib: sha256(bytes(i % 251 for i in range(n))).
TEST(Sha256, PadsCorrectlyAroundTheChunkBoundary) {
  const auto digest_of_length = [](std::size_t length) {
    std::vector<std::byte> bytes(length);
    for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i % 251);
    return hex(sha256(bytes)).substr(0, 16);
  };
  EXPECT_EQ(digest_of_length(1), "6e340b9cffb37a98");
  EXPECT_EQ(digest_of_length(55), "463eb28e72f82e0a");
  EXPECT_EQ(digest_of_length(56), "da2ae4d6b36748f2");
  EXPECT_EQ(digest_of_length(57), "2fe741af801cc238");
  EXPECT_EQ(digest_of_length(63), "29af2686fd53374a");
  EXPECT_EQ(digest_of_length(64), "fdeab9acf3710362");
  EXPECT_EQ(digest_of_length(65), "4bfd2c8b6f1eec7a");
  EXPECT_EQ(digest_of_length(119), "da18797ed7c3a777");
  EXPECT_EQ(digest_of_length(120), "f52b23db1fbb6ded");
  EXPECT_EQ(digest_of_length(128), "471fb943aa23c511");
}

std::vector<Token> counting(std::size_t count) {
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Token>(i);
  return tokens;
}

TEST(BlockKey, DoesNotDependOnTheBlockSizeInMultiplesOfSixteen) {
  const auto tokens = counting(64);
  const Digest start = hash_of("namespace");
  Digest by_16 = start;
  for (std::size_t i = 0; i < 64; i += 16) {
    by_16 = next_block_key(by_16, std::span(tokens).subspan(i, 16));
  }
  EXPECT_EQ(next_block_key(start, tokens), by_16);
}

TEST(BlockKey, ChangesWithEveryTokenAndWithThePrefix) {
  const Digest start = hash_of("namespace");
  auto tokens = counting(16);
  std::set<Digest> keys = {next_block_key(start, tokens)};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (unsigned bit = 0; bit < 32; bit += 31) {
      tokens[i] ^= 1U << bit;
      EXPECT_TRUE(keys.insert(next_block_key(start, tokens)).second);
      tokens[i] ^= 1U << bit;
    }
  }
  EXPECT_TRUE(keys.insert(next_block_key(hash_of("another"), tokens)).second);
}

}  // namespace
}  // namespace kv
