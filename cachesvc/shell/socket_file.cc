#include "cachesvc/shell/socket_file.h"

#include <cerrno>
#include <utility>

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cachesvc/shell/unix_address.h"

namespace kv::shell {
namespace {

Error bind_error(int number) {
  switch (number) {
    case EADDRINUSE:
      return {ErrorCode::unavailable, "a file is there", {}};
    case ENOENT:
    case ENOTDIR:
      return {ErrorCode::unavailable, "its directory does not exist", {}};
    case EACCES:
    case EPERM:
    case EROFS:
      return {ErrorCode::unavailable, "its directory cannot be written", {}};
    case ENOSPC:
    case EDQUOT:
      return {ErrorCode::unavailable, "no space is left", {}};
    case EMFILE:
    case ENFILE:
      return {ErrorCode::unavailable, "no descriptor is left", {}};
    default:
      return {ErrorCode::unavailable, "the socket cannot be bound", {}};
  }
}

}  // namespace

Result<SocketFile> SocketFile::listen(const std::string& path, int type, int backlog) {
  SocketFile file;
  file.socket_ = FileDescriptor(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!file.socket_.is_open()) return bind_error(errno);
  const int descriptor = file.descriptor();
  const sockaddr_un address = unix_address(path);
  // A chmod after the bind would leave a moment with the wider mode.
  const mode_t before = umask(0117);
  const int bound = bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int number = errno;
  umask(before);
  if (bound != 0) return bind_error(number);
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return bind_error(errno);
  file.path_ = path;
  file.device_ = status.st_dev;
  file.inode_ = status.st_ino;
  if (::listen(descriptor, backlog) != 0) return bind_error(errno);
  return file;
}

SocketFile& SocketFile::operator=(SocketFile&& other) noexcept {
  if (this != &other) {
    remove();
    socket_ = std::move(other.socket_);
    path_ = std::move(other.path_);
    device_ = other.device_;
    inode_ = other.inode_;
  }
  return *this;
}

SocketFile::~SocketFile() { remove(); }

void SocketFile::remove() {
  if (!socket_.is_open()) return;
  struct stat status{};
  const bool is_mine =
      lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
  if (is_mine) unlink(path_.c_str());
  socket_.reset();
}

}  // namespace kv::shell
