// The address of a Unix socket in the file system.
// Owner: values only. Threads: any. Cost: one copy of the path.
#pragma once

#include <cstring>
#include <string_view>

#include <sys/socket.h>
#include <sys/un.h>

#include "allocator/base/check.h"

namespace kv::shell {

// requires: path has at most 107 bytes (check_config).
[[nodiscard]] inline sockaddr_un unix_address(std::string_view path) {
  sockaddr_un address{};
  KV_CHECK(path.size() < sizeof(address.sun_path));
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace kv::shell
