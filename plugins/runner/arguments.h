// What people write behind the options of cachesvc-runner. Owner: the caller. Threads: any.
// Cost: O(length); read_tokens reads a file.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.h"
#include "allocator/base/token.h"

namespace kv::runner {

// "1,403,407", with spaces or one comma between two. fails: invalid (anything else, none).
[[nodiscard]] Result<std::vector<Token>> parse_tokens(std::string_view text);
// The same; "@FILE" stands for what the file says. fails: not_found, as parse_tokens.
[[nodiscard]] Result<std::vector<Token>> read_tokens(const std::string& text);
// "250ms", "5s", "2m"; above zero, at most an hour. fails: invalid.
[[nodiscard]] Result<std::chrono::milliseconds> parse_time(std::string_view text);

}  // namespace kv::runner
