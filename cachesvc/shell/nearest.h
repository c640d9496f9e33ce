// The name that a person most likely meant.
// Owner: values only. Threads: any. Cost: O(names * length squared).
#pragma once

#include <span>
#include <string_view>

namespace kv::shell {

// By edit distance, letters compared without case and separators ('.', '_') alike; the first of
// equals. Empty when there are no names.
[[nodiscard]] std::string_view nearest_name(std::string_view name,
                                            std::span<const std::string_view> names);

}  // namespace kv::shell
