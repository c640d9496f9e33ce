#include "tiering/stores/plain_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

namespace kv {

FileDescriptor open_plain_file(const std::string& path, int flags, mode_t mode) {
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  if (!file.is_open()) return file;
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return FileDescriptor();
  if (!S_ISREG(status.st_mode)) {
    file.reset();
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return file;
  }
  // io_uring would take it as a wish to fail rather than to wait for the disk.
  const int taken = ::fcntl(file.get(), F_GETFL);
  if (taken < 0 || ::fcntl(file.get(), F_SETFL, taken & ~O_NONBLOCK) != 0) return FileDescriptor();
  return file;
}

}  // namespace kv
