// static_text: texts from the wire as views that live as long as the process, since an Error's
// reason is never owned. Equal texts are kept once; the service's reasons are a closed set, so few
// are. Owner: the process. Threads: any (a mutex). Cost: O(log n) comparisons.
#pragma once

#include <cstddef>
#include <string_view>

namespace kv::client {

inline constexpr std::size_t kStaticTextsMax = 512;
inline constexpr std::size_t kStaticTextBytesMax = 256;

// The text itself, cut to kStaticTextBytesMax; `fallback` (static) once kStaticTextsMax are kept,
// so that a peer that invents reasons cannot fill the memory. Bytes that are no printable ASCII
// become '?': the text ends up on terminals.
[[nodiscard]] std::string_view static_text(std::string_view text, std::string_view fallback);

}  // namespace kv::client
