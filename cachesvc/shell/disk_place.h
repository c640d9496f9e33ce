// The directory of the disk tier, looked at before the service starts: what is wrong there is said
// in the ready line, not when the first client comes.
// Owner: the service. Threads: any. Cost: a few system calls, which a hung disk does not answer.
#pragma once

#include <cstdint>
#include <string>

namespace kv::shell {

// Why no disk tier can be at `path`, for people; empty when nothing is seen. What is not there yet
// can be made later.
[[nodiscard]] std::string disk_place_problem(const std::string& path);

// The bytes that a disk tier at `path` can have: what its files take already, and what the file
// system still has for this user. Of a path that is not there: of the nearest directory above it.
// 0: not known.
[[nodiscard]] std::uint64_t disk_place_bytes(const std::string& path);

}  // namespace kv::shell
