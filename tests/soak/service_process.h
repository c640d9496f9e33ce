// A `cachesvc` of a test's own, as a process, with small tiers; and what the kernel says about it:
// open descriptors and resident memory. Killed with the value. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cachesvc/shell/child_process.h"
#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::tests {

class ServiceProcess {
 public:
  // `settings`: SECTION.KEY=VALUE.
  explicit ServiceProcess(const std::vector<std::string>& settings = {});

  [[nodiscard]] bool is_ready() const { return is_ready_; }
  [[nodiscard]] const std::string& dir() const { return dir_.path(); }
  [[nodiscard]] pid_t id() const { return child_.id(); }
  [[nodiscard]] std::string errors() { return child_.errors(); }
  [[nodiscard]] std::size_t descriptors() const;
  [[nodiscard]] std::uint64_t resident_bytes() const;
  // Asks it to end; its exit code.
  [[nodiscard]] int end();

 private:
  TempDir dir_;
  ChildProcess child_;
  bool is_ready_ = false;
};

// N, or the environment variable's number when it is set.
[[nodiscard]] std::uint64_t count_or(const char* variable, std::uint64_t count);

}  // namespace kv::tests
