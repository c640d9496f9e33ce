#include "tiering/stores/slab_name.h"

#include <charconv>

namespace kv {
namespace {

constexpr std::string_view kPrefix = "slab.";

std::optional<std::size_t> parse_number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

std::string slab_name(std::size_t group, std::size_t file) {
  return std::string(kPrefix) + std::to_string(group) + "." + std::to_string(file);
}

std::optional<SlabName> parse_slab_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view numbers = name.substr(kPrefix.size());
  const std::size_t dot = numbers.find('.');
  if (dot == std::string_view::npos) return {};
  const std::optional<std::size_t> group = parse_number(numbers.substr(0, dot));
  const std::optional<std::size_t> file = parse_number(numbers.substr(dot + 1));
  if (!group || !file || slab_name(*group, *file) != name) return {};
  return SlabName{.group = *group, .file = *file};
}

}  // namespace kv
