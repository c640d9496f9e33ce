#include "tools/cachesim/replay/variation.h"

#include <algorithm>

namespace kv::cachesim {

std::optional<Variation> parse_variation(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  Variation variation{text.substr(0, equals), {}};
  for (std::size_t at = equals + 1; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end == at) return std::nullopt;
    variation.values.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (variation.values.empty()) return std::nullopt;
  return variation;
}

std::vector<Settings> combinations(const std::vector<Variation>& variations) {
  std::vector<Settings> all(1);
  for (const Variation& variation : variations) {
    std::vector<Settings> longer;
    for (const Settings& before : all) {
      for (const std::string& value : variation.values) {
        longer.push_back(before);
        longer.back().emplace_back(variation.key, value);
      }
    }
    all.swap(longer);
  }
  return all;
}

}  // namespace kv::cachesim
