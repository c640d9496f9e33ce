#include "cachesvc/shell/nearest.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace kv::shell {
namespace {

// "CACHESVC_DEVICE__BYTES" and "device.bytes" become the same.
std::string folded(std::string_view name) {
  constexpr std::string_view kPrefix = "CACHESVC_";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::string out;
  for (const char letter : name) {
    if (letter == '_' || letter == '.' || letter == '-') continue;
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return out;
}

// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  const std::string wanted = folded(name);
  for (const std::string_view candidate : names) {
    const std::size_t distance = edit_distance(wanted, folded(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace kv::shell
