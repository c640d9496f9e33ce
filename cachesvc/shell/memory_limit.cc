#include "cachesvc/shell/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

namespace kv::shell {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGroupText = "the control group of this process allows";

// "max" and anything else that is no number is no limit.
std::optional<std::uint64_t> number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::string text;
  if (!std::getline(stream, text)) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// In a container the path may be one of the host that is not mounted here: what is missing on the
// way up is passed over, and the root of the mounted tree is the container's own group.
void take_least(const fs::path& root, std::string_view group, std::string_view file,
                MemoryLimit& limit) {
  fs::path path = fs::path(group).relative_path();
  while (true) {
    if (const auto bytes = number_in(root / path / file)) {
      if (limit.bytes == 0 || *bytes < limit.bytes) limit = {*bytes, kGroupText};
    }
    if (path.empty()) return;
    path = path.parent_path();
  }
}

bool names_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "memory") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

MemoryLimit memory_limit(std::uint64_t machine_bytes, const MemoryFiles& files) {
  MemoryLimit limit{.bytes = machine_bytes};
  std::ifstream groups(files.groups);
  const fs::path tree(files.tree);
  std::error_code ignored;
  // A line is "number:controllers:path"; version 2 is number 0 without controllers.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view text(line);
    const std::string_view controllers = text.substr(first + 1, second - first - 1);
    const std::string_view path = text.substr(second + 1);
    if (controllers.empty()) {
      const bool is_mixed = fs::is_directory(tree / "unified", ignored);
      take_least(is_mixed ? tree / "unified" : tree, path, "memory.max", limit);
    } else if (names_memory(controllers)) {
      take_least(tree / "memory", path, "memory.limit_in_bytes", limit);
    }
  }
  return limit;
}

}  // namespace kv::shell
