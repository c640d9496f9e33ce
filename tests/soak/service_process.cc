#include "tests/soak/service_process.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "tests/support/built_program.h"

namespace kv::tests {
namespace {

std::vector<std::string> command(const std::string& dir, const std::vector<std::string>& settings) {
  std::vector<std::string> all = {built_program("cachesvc"), "serve", "--dir", dir};
  for (const char* small :
       {"device.bytes=64KiB", "host.bytes=128KiB", "disk.bytes=4MiB", "service.log_level=error"}) {
    all.insert(all.end(), {"--set", small});
  }
  for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
  return all;
}

// What a sanitizer keeps of freed memory, to see who still uses it, would look like growth.
constexpr const char* kSmallQuarantine =
    "ASAN_OPTIONS=quarantine_size_mb=1:thread_local_quarantine_size_kb=16";

}  // namespace

ServiceProcess::ServiceProcess(const std::vector<std::string>& settings)
    : child_(command(dir_.path(), settings), {kSmallQuarantine}) {
  is_ready_ = child_.next_line().starts_with("ready ");
}

std::size_t ServiceProcess::descriptors() const {
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(id()) + "/fd");
  return static_cast<std::size_t>(
      std::distance(std::filesystem::begin(files), std::filesystem::end(files)));
}

std::uint64_t ServiceProcess::resident_bytes() const {
  std::ifstream file("/proc/" + std::to_string(id()) + "/statm");
  std::uint64_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

int ServiceProcess::end() {
  child_.signal(SIGTERM);
  return child_.wait();
}

std::uint64_t count_or(const char* variable, std::uint64_t count) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? count : std::strtoull(text, nullptr, 10);
}

}  // namespace kv::tests
