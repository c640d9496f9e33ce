// The figures of `cachebench core`: the pure core against memcmp, memory and the key chain.
// Threads: none. Cost: about half a minute, and 400 MB, for all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/cachebench/row.h"

namespace kv::cachebench {

struct CoreOptions {
  std::uint32_t blocks = 1U << 20U;  // cached ones
  std::uint32_t rounds = 400;        // pairs of a row
};

struct CoreRow {
  const char* name;
  Row (*measure)(const CoreOptions&);
};
// Each name with what measures it.
[[nodiscard]] const std::vector<CoreRow>& core_rows();

}  // namespace kv::cachebench
