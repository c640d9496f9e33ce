// 128 random bits: the boot id of a service, or the secret that proves who a client is.
// A plain value. Threads: none. Cost: O(1).
#pragma once

#include <cstdint>

namespace kv::codec {

struct Id128 {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  friend bool operator==(const Id128&, const Id128&) = default;  // not for secrets
};

// Takes the same time wherever the two differ, so that a secret cannot be guessed word by word.
[[nodiscard]] constexpr bool equal_secrets(const Id128& left, const Id128& right) {
  return ((left.a ^ right.a) | (left.b ^ right.b)) == 0;
}

}  // namespace kv::codec
