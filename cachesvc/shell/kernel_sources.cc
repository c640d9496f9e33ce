#include "cachesvc/shell/kernel_sources.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include <sys/random.h>

#include "allocator/base/check.h"

namespace kv::shell {

TimePoint boot_time_now() {
  timespec now{};
  KV_CHECK(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
  return TimePoint(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

codec::Id128 random_id() {
  std::array<std::byte, sizeof(codec::Id128)> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    KV_CHECK(count >= 0 || errno == EINTR);
    if (count > 0) filled += static_cast<std::size_t>(count);
  }
  codec::Id128 id;
  std::memcpy(&id.a, bytes.data(), sizeof(id.a));
  std::memcpy(&id.b, bytes.data() + sizeof(id.a), sizeof(id.b));
  return id;
}

}  // namespace kv::shell
