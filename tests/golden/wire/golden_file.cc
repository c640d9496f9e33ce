#include "tests/golden/wire/golden_file.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace kv::testing {
namespace {

std::filesystem::path folder() {
  return std::filesystem::path(KV_SOURCE_DIR) / "tests" / "golden" / "wire";
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::vector<std::byte> read_golden(std::string_view name) {
  std::ifstream file(folder() / (std::string(name) + ".hex"));
  std::vector<std::byte> bytes;
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    std::erase(line, ' ');
    if (line.size() % 2 != 0) return {};
    for (std::size_t i = 0; i < line.size(); i += 2) {
      const int high = digit(line[i]);
      const int low = digit(line[i + 1]);
      if (high < 0 || low < 0) return {};
      bytes.push_back(static_cast<std::byte>(high * 16 + low));
    }
  }
  return bytes;
}

void write_golden(std::string_view name, const std::vector<std::byte>& bytes) {
  constexpr std::size_t kBytesPerLine = 16;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::ofstream file(folder() / (std::string(name) + ".hex"));
  file << "# " << name << ", " << bytes.size()
       << " bytes. Values: tests/cachesvc/wire/samples.cc\n";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto value = std::to_integer<unsigned>(bytes[i]);
    const bool ends = (i + 1) % kBytesPerLine == 0 || i + 1 == bytes.size();
    file << kDigits[value / 16] << kDigits[value % 16] << (ends ? '\n' : ' ');
  }
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() == ".hex") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace kv::testing
