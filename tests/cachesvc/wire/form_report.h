// What the core relies on in an input that came from a message: checked here a second time, by code
// of its own, and every byte that the input points to is read (so that a sanitizer sees it).
// Owner: the caller. Threads: none. Cost: O(bytes of the input).
#pragma once

#include <cstdint>
#include <string_view>

#include "cachesvc/core/inputs.h"

namespace kv::testing {

struct FormReport {
  std::string_view error;  // empty: right in form
  std::uint64_t sum = 0;   // of all bytes and tokens read
};
[[nodiscard]] FormReport form_report(const core::InputView& input);

}  // namespace kv::testing
