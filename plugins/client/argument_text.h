// What people write behind the options of the programs that talk to a service. Owner: the caller.
// Threads: any. Cost: O(length); read_tokens reads a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/base/result.h"
#include "allocator/base/token.h"

namespace kv::client {

// "250ms", "5s", "2m": the durations of the configuration, from 1ms to 1h, rounded up to a
// millisecond. fails: invalid.
[[nodiscard]] Result<std::chrono::milliseconds> parse_time(std::string_view text);

// "1,403,407", with spaces or one comma between two; brackets around all are allowed, so that JSON
// lists are, too. No token at all is an empty list. fails: invalid.
[[nodiscard]] Result<std::vector<Token>> parse_tokens(std::string_view text);

// What is wrong with the text of an option, for people; empty: nothing. A count is digits only: no
// sign that would turn it into another number.
[[nodiscard]] std::string problem_of_count(std::string_view text, std::uint64_t least,
                                           std::uint64_t most);
// For options whose empty text would be taken for "not given".
[[nodiscard]] std::string problem_of_empty(std::string_view text);

// As parse_tokens; "@FILE" stands for what the file says, "@-" for what standard input says.
// fails: not_found (no such file), too_large (over 64 MiB), as parse_tokens.
[[nodiscard]] Result<std::vector<Token>> read_tokens(const std::string& text);

}  // namespace kv::client
