// Work of the core to be counted in instructions, under valgrind's callgrind: preparing is left
// out. Without valgrind it only runs. Threads: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv::cachebench {

// miss: a match that ends at the first block. evict: of `blocks` leaves in random order.
// decode: a step of 256 sequences, one token each, counted by sequence.
[[nodiscard]] const std::vector<std::string>& counted_names();
// Runs it `operations` times. requires: a name of counted_names().
void run_counted(const std::string& name, std::uint32_t operations, std::uint32_t blocks);

}  // namespace kv::cachebench
