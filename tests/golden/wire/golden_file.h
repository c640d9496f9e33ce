// A golden file: bytes as hexadecimal text, with comment lines that start with '#'.
// Owner: the caller. Threads: none. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kv::testing {

// Bytes of tests/golden/wire/NAME.hex; empty when there is no such file or it is not hexadecimal.
[[nodiscard]] std::vector<std::byte> read_golden(std::string_view name);
void write_golden(std::string_view name, const std::vector<std::byte>& bytes);
// Names of all golden files, sorted.
[[nodiscard]] std::vector<std::string> golden_names();

}  // namespace kv::testing
