// A namespace: the scope in which equal tokens mean equal KV. Every field is typed and
// length-prefixed before hashing, so no two different sets of fields meet. Threads: none. Cost: one
// SHA-256 over the encoded fields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "allocator/base/token.h"

namespace kv {

// Views: valid for the call only. `tenant` comes from the connection, never from a message.
struct NamespaceFields {
  std::string_view weights{};       // digest or name + revision of the weights
  std::string_view model_config{};  // RoPE parameters and regime, compute dtype, ...
  std::string_view adapter{};       // empty: none
  std::string_view adapter_revision{};
  std::string_view tenant{};  // tenant or trust domain
  std::string_view salt{};
  std::uint32_t block_tokens = 16;  // part of the identity only when it is no multiple of 16
};

// A field by name: where two namespaces of one tenant differ.
enum class NamespaceField : std::uint8_t {
  none,
  weights,
  model_config,
  adapter,
  adapter_revision,
  salt
};
inline constexpr std::uint8_t kNamespaceFieldCount = 6;

// What tells whether fields are equal, without their content: a salt is a secret.
struct NamespaceTraits {
  std::uint64_t tenant = 0;
  std::array<std::uint64_t, kNamespaceFieldCount> fields{};  // by NamespaceField; none: 0

  [[nodiscard]] std::uint32_t difference_count(const NamespaceTraits& other) const;
  // In the order of the struct; none: all are equal. Of the tenants nothing is said.
  [[nodiscard]] NamespaceField first_difference(const NamespaceTraits& other) const;
};
[[nodiscard]] NamespaceTraits traits_of(const NamespaceFields& fields);

inline constexpr std::size_t kNamespaceFieldBytesMax = 4096;  // each field

// Canonical bytes: "cachesvc-namespace-v1", then for every field its type tag (1 byte), its length
// (8 bytes, little endian) and its bytes, in the order of the struct; then, when block_tokens is no
// multiple of 16, tag 7 and block_tokens as 4 bytes with length 4.
[[nodiscard]] std::vector<std::byte> encode(const NamespaceFields& fields);

// state_0 of the namespace's block keys: SHA-256 of encode(fields).
[[nodiscard]] Digest namespace_digest(const NamespaceFields& fields);

}  // namespace kv
