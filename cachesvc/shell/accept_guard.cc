#include "cachesvc/shell/accept_guard.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cachesvc/shell/receive_guard.h"

namespace kv::shell {
namespace {

constexpr rlim_t kReserveMax = 64;
constexpr rlim_t kReservePart = 16;
constexpr int kPauseMs = 10;

std::atomic<std::uint64_t>& refusals() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

int refuse(int error) {
  refusals().fetch_add(1, std::memory_order_relaxed);
  errno = error;
  return -1;
}

}  // namespace

// The kernel gives out the lowest number that is free, so a high one says how many are taken.
bool is_of_reserve(int descriptor) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t reserve = std::min(limit.rlim_cur / kReservePart, kReserveMax);
  return static_cast<rlim_t>(descriptor) + reserve >= limit.rlim_cur;
}

int accept_any(int listener, int flags) {
  return static_cast<int>(syscall(SYS_accept4, listener, nullptr, nullptr, flags | SOCK_CLOEXEC));
}

bool is_from_our_user(int connection) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

std::uint64_t refused_connections() { return refusals().load(std::memory_order_relaxed); }

}  // namespace kv::shell

// Takes the place of the C library's: libzmq finds it first.
extern "C" int accept4(int listener, sockaddr* address, socklen_t* bytes, int flags) {
  const int descriptor = static_cast<int>(syscall(SYS_accept4, listener, address, bytes, flags));
  if (descriptor >= 0) {
    if (!kv::shell::is_of_reserve(descriptor) && kv::shell::is_from_our_user(descriptor)) {
      kv::shell::follow(descriptor);
      return descriptor;
    }
    close(descriptor);
    return kv::shell::refuse(ECONNABORTED);
  }
  // A peer that went away, or nobody there: libzmq knows these.
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return -1;
  // The listener stays readable: without a pause its thread would spin.
  (void)poll(nullptr, 0, kv::shell::kPauseMs);
  return kv::shell::refuse(ENFILE);
}
