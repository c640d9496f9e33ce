#include "cachesvc/shell/disk_place.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace kv::shell {
namespace {

std::string with_reason(const std::string& text, int number) {
  return text + ": " + std::generic_category().message(number);
}

}  // namespace

std::string disk_place_problem(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) return with_reason(path + " cannot be looked at", errno);
    if (lstat(path.c_str(), &status) != 0) return {};
    return path + " is a link to a place that is not there";
  }
  if (!S_ISDIR(status.st_mode)) return path + " is no directory";
  if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    return with_reason(path + " cannot be written", errno);
  }
  return {};
}

std::uint64_t disk_place_bytes(const std::string& path) {
  std::filesystem::path at(path);
  struct statvfs system{};
  while (statvfs(at.c_str(), &system) != 0) {
    if (errno != ENOENT || !at.has_relative_path()) return 0;
    at = at.parent_path();
  }
  std::uint64_t bytes = std::uint64_t{system.f_bavail} * system.f_frsize;
  std::error_code ended;
  std::filesystem::directory_iterator file(path, ended);
  for (; !ended && file != std::filesystem::directory_iterator(); file.increment(ended)) {
    constexpr std::uint64_t kUnitBytes = 512;  // of st_blocks
    struct stat status{};
    if (lstat(file->path().c_str(), &status) == 0) {
      bytes += static_cast<std::uint64_t>(status.st_blocks) * kUnitBytes;
    }
  }
  return bytes;
}

}  // namespace kv::shell
