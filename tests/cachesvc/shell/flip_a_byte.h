// Damages a block in a disk tier's files.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace kv::tests {

// Changes a byte of the first place of each slab file below `directory` that holds `block`; says
// how many files it changed.
[[nodiscard]] inline int flip_a_byte(const std::string& directory, const std::string& block) {
  int flipped = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with("slab.")) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const std::size_t place = bytes.find(block);
    if (place == std::string::npos) continue;
    file.clear();
    file.seekp(static_cast<std::streamoff>(place + 100));
    file.put(static_cast<char>(bytes[place + 100] ^ 1));
    ++flipped;
  }
  return flipped;
}

}  // namespace kv::tests
