// With it clang finds a recv() in the C library's headers that has a body.
#undef _FORTIFY_SOURCE
#include "cachesvc/shell/receive_guard.h"

#include <atomic>
#include <cerrno>
#include <mutex>
#include <unordered_map>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cachesvc/shell/zmtp_stream.h"

namespace kv::shell {
namespace {

// Numbers of descriptors are used again, and nobody says when: the inode tells one socket from the
// next of its number.
struct Followed {
  ino_t inode = 0;
  ZmtpStream stream;
};

ino_t inode_of(int descriptor) {
  struct stat status{};
  return fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

class Connections {
 public:
  void add(int connection) {
    const ino_t inode = inode_of(connection);
    const std::lock_guard lock(mutex_);
    followed_.insert_or_assign(connection, Followed{inode, {}});
  }
  // False: the peer is to be cut off.
  [[nodiscard]] bool take(int connection, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = followed_.find(connection);
    if (found == followed_.end()) return true;
    const bool is_same = found->second.inode == inode_of(connection);
    const bool is_kept = is_same && !bytes.empty() && found->second.stream.take(bytes);
    if (is_kept) return true;
    followed_.erase(found);
    return !is_same || bytes.empty();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<int, Followed> followed_;
};

Connections& connections() {
  static Connections all;
  return all;
}

std::atomic<std::uint64_t>& cuts() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

}  // namespace

void follow(int connection) { connections().add(connection); }

std::uint64_t cut_connections() { return cuts().load(std::memory_order_relaxed); }

}  // namespace kv::shell

// Takes the place of the C library's: libzmq finds it first.
extern "C" ssize_t recv(int connection, void* buffer, std::size_t bytes, int flags) {
  const ssize_t count = syscall(SYS_recvfrom, connection, buffer, bytes, flags, nullptr, nullptr);
  if (count < 0 || (flags & MSG_PEEK) != 0) return count;
  const std::span got(static_cast<const std::byte*>(buffer), static_cast<std::size_t>(count));
  if (kv::shell::connections().take(connection, got)) return count;
  kv::shell::cuts().fetch_add(1, std::memory_order_relaxed);
  return 0;
}
