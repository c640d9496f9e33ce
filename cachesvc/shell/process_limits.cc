#include "cachesvc/shell/process_limits.h"

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/resource.h>

#include "cachesvc/shell/quantity.h"

namespace kv::shell {
namespace {

// About 25 for the service, as many for the disk's index, and a few clients with three each.
constexpr rlim_t kDescriptorsMin = 64;

// Of addresses: the code, the stacks and heaps of ten threads, the tables, the disk's index. Most
// of them never become memory.
constexpr std::uint64_t kAddressBytes = std::uint64_t{1} << 30U;

std::uint64_t soft_limit(__rlimit_resource resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::optional<StartProblem> check_file_size(std::string_view key, std::uint64_t bytes,
                                            std::uint64_t limit) {
  if (bytes <= limit) return std::nullopt;
  return StartProblem{"the limit of file sizes (ulimit -f) is " + round_bytes(limit) + ", and " +
                          std::string(key) + ", a file in memory, is " + round_bytes(bytes),
                      "raise the limit, or lower " + std::string(key)};
}

}  // namespace

std::optional<StartProblem> settle_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  // Every client holds two or three descriptors here, and the usual soft limit is 1,024.
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);  // refused: the attach socket says when it is short
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptorsMin) {
    return std::nullopt;
  }
  return StartProblem{"the limit of open files (ulimit -n) is " + std::to_string(limit.rlim_cur) +
                          ", and a service needs " + std::to_string(kDescriptorsMin) +
                          " and three for each client",
                      "raise the limit"};
}

std::optional<StartProblem> settle_memory(const Config& config) {
  std::signal(SIGXFSZ, SIG_IGN);
  const std::uint64_t file_bytes = soft_limit(RLIMIT_FSIZE);
  auto problem = check_file_size("device.bytes", config.device_bytes, file_bytes);
  if (!problem) problem = check_file_size("host.bytes", config.host_bytes, file_bytes);
  if (problem) return problem;
  const std::uint64_t tiers = config.device_bytes + config.host_bytes;
  const std::uint64_t allowed = soft_limit(RLIMIT_AS);
  if (tiers <= allowed && allowed - tiers >= kAddressBytes) return std::nullopt;
  return StartProblem{"the limit of memory (ulimit -v) is " + round_bytes(allowed) +
                          ", and a service needs " + round_bytes(kAddressBytes) +
                          " of addresses beside device.bytes and host.bytes, " +
                          round_bytes(tiers) + " together",
                      "raise the limit, or lower device.bytes or host.bytes"};
}

}  // namespace kv::shell
