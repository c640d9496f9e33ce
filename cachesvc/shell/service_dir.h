// ServiceDir: the directory of one service, held by locks as long as the value lives, so that two
// services never share a directory or an endpoint (an ipc bind would silently take a live one
// over). Files: service.lock, service.sock, service.sock.lock, attach.sock, disk/. Owner: the
// service. Threads: start and end only. Cost: a few system calls.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "cachesvc/shell/config.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::shell {

// Why a service does not start, for people.
struct StartProblem {
  std::string message;
  std::string remedy;
};

class ServiceDir {
 public:
  // Makes the directory with mode 0700, takes the locks and removes socket files that nobody
  // listens on. Another kind of file at a socket's path is left alone, and is a problem. A
  // directory that others may enter is closed (0700) when it is empty or a service's, else a
  // problem; a mode for a group (0750) stays: someone chose it (only the service's user and root
  // may attach all the same).
  [[nodiscard]] static std::variant<ServiceDir, StartProblem> take(const Config& config);

 private:
  ServiceDir() = default;
  FileDescriptor directory_lock_, endpoint_lock_;
};

}  // namespace kv::shell
