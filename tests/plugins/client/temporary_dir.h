// A directory of one test, removed with everything in it. Short: socket paths have at most 107
// bytes.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "allocator/base/check.h"

namespace kv::test {

class TemporaryDir {
 public:
  TemporaryDir() : path_((std::filesystem::temp_directory_path() / "kv-XXXXXX").string()) {
    KV_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  TemporaryDir(const TemporaryDir&) = delete;
  TemporaryDir& operator=(const TemporaryDir&) = delete;
  TemporaryDir(TemporaryDir&&) = delete;
  TemporaryDir& operator=(TemporaryDir&&) = delete;
  ~TemporaryDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace kv::test
