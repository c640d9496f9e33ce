// How much memory this process may use: what the machine has, or less where a control group says
// so. A container's machine looks large, and its kernel kills who believes that.
// Owner: values only. Threads: any. Cost: a few small files, at start only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kv::shell {

struct MemoryLimit {
  std::uint64_t bytes = 0;  // 0: not known
  // For messages: "the machine has", "the control group of this process allows".
  std::string_view text = "the machine has";
};

struct MemoryFiles {
  std::string groups = "/proc/self/cgroup";
  std::string tree = "/sys/fs/cgroup";
};

// The least of the machine's memory and the limits of the process's control group and of all those
// above it (versions 1 and 2). What cannot be read limits nothing.
[[nodiscard]] MemoryLimit memory_limit(std::uint64_t machine_bytes, const MemoryFiles& files = {});

}  // namespace kv::shell
