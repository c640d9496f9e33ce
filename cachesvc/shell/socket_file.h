// SocketFile: a Unix socket that listens at a path, and the file there. At its end the file goes if
// it is still this socket's: a directory may have been taken away, and another service be there by
// now. Owner: who accepts on it. Threads: one. Cost: a few system calls at start and end.
#pragma once

#include <string>

#include <sys/types.h>

#include "allocator/base/result.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::shell {

class SocketFile {
 public:
  // SOCK_STREAM or SOCK_SEQPACKET; never blocks; mode 0660. requires: path has at most 107 bytes.
  // fails: unavailable.
  [[nodiscard]] static Result<SocketFile> listen(const std::string& path, int type, int backlog);

  SocketFile() = default;
  SocketFile(SocketFile&& other) noexcept = default;
  SocketFile& operator=(SocketFile&& other) noexcept;
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile();

  [[nodiscard]] int descriptor() const { return socket_.get(); }

 private:
  void remove();

  // Open until the file is gone: else the file system could give its inode to the next one.
  FileDescriptor socket_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace kv::shell
