// The name of a slab file: slab.<group>.<n>, both decimal without leading zeroes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kv {

struct SlabName {
  std::size_t group = 0;
  std::size_t file = 0;
};

[[nodiscard]] std::string slab_name(std::size_t group, std::size_t file);
// Nothing when it is not such a name.
[[nodiscard]] std::optional<SlabName> parse_slab_name(std::string_view name);

}  // namespace kv
