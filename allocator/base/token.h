// Tokens, digests and tiers: the words that every part shares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kv {

using Token = std::uint32_t;

// 32 bytes of SHA-256: a block key or a namespace's identity.
struct Digest {
  std::array<std::byte, 32> bytes{};
  friend constexpr auto operator<=>(const Digest&, const Digest&) = default;
};

enum class Tier : std::uint8_t { device, host, disk, remote };
inline constexpr std::size_t kTierCount = 4;

[[nodiscard]] constexpr std::string_view tier_name(Tier tier) {
  constexpr std::string_view kNames[kTierCount] = {"device", "host", "disk", "remote"};
  return kNames[static_cast<std::size_t>(tier)];
}
[[nodiscard]] constexpr std::size_t tier_index(Tier tier) { return static_cast<std::size_t>(tier); }

}  // namespace kv
