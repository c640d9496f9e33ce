// Where the programs are that a test runs: in the build's bin, unless KV_PROGRAMS names a folder in
// which one of them was changed (tests/mutants). For tests only.
#pragma once

#include <cstdlib>
#include <string>

namespace kv::tests {

[[nodiscard]] inline std::string built_program(const std::string& name) {
  const char* const changed = std::getenv("KV_PROGRAMS");
  return (changed != nullptr ? changed : std::string(KV_BINARY_DIR) + "/bin") + "/" + name;
}

}  // namespace kv::tests
