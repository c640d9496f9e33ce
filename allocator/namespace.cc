#include "allocator/namespace.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "allocator/block_key.h"

namespace kv {
namespace {

constexpr std::string_view kVersion = "cachesvc-namespace-v1";
constexpr std::uint8_t kBlockTokensTag = 7;
constexpr std::uint32_t kUnpaddedBlockTokens = 16;

void append_bytes(std::vector<std::byte>& out, std::string_view bytes) {
  for (const char c : bytes) out.push_back(static_cast<std::byte>(c));
}

void append_number(std::vector<std::byte>& out, std::uint64_t value, int byte_count) {
  for (int i = 0; i < byte_count; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void append_head(std::vector<std::byte>& out, std::uint8_t tag, std::uint64_t length) {
  append_number(out, tag, 1);
  append_number(out, length, 8);
}

}  // namespace

std::vector<std::byte> encode(const NamespaceFields& fields) {
  const std::string_view in_order[] = {fields.weights,          fields.model_config, fields.adapter,
                                       fields.adapter_revision, fields.tenant,       fields.salt};
  std::vector<std::byte> out;
  append_bytes(out, kVersion);
  std::uint8_t tag = 1;
  for (const std::string_view field : in_order) {
    append_head(out, tag++, field.size());
    append_bytes(out, field);
  }
  if (fields.block_tokens % kUnpaddedBlockTokens != 0) {
    append_head(out, kBlockTokensTag, sizeof fields.block_tokens);
    append_number(out, fields.block_tokens, sizeof fields.block_tokens);
  }
  return out;
}

std::uint32_t NamespaceTraits::difference_count(const NamespaceTraits& other) const {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < fields.size(); ++i) count += fields[i] == other.fields[i] ? 0 : 1;
  return count;
}

NamespaceField NamespaceTraits::first_difference(const NamespaceTraits& other) const {
  const auto differs = std::mismatch(fields.begin(), fields.end(), other.fields.begin()).first;
  if (differs == fields.end()) return NamespaceField::none;
  return static_cast<NamespaceField>(differs - fields.begin());
}

NamespaceTraits traits_of(const NamespaceFields& fields) {
  const auto trait = [](std::string_view field) {
    const Digest digest = sha256(std::as_bytes(std::span(field)));
    std::uint64_t word = 0;
    std::memcpy(&word, digest.bytes.data(), sizeof word);
    return word;
  };
  NamespaceTraits traits;
  traits.tenant = trait(fields.tenant);
  traits.fields = {0,
                   trait(fields.weights),
                   trait(fields.model_config),
                   trait(fields.adapter),
                   trait(fields.adapter_revision),
                   trait(fields.salt)};
  return traits;
}

Digest namespace_digest(const NamespaceFields& fields) { return sha256(encode(fields)); }

}  // namespace kv
