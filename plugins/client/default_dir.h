// Where a service lives: the directory rule and the addresses inside it, the same for the service
// and everyone who connects to it. Owner: the caller. Threads: any, as long as no one changes the
// environment. Cost: O(1).
#pragma once

#include <string>

#include "allocator/base/result.h"

namespace kv::client {

inline constexpr std::size_t kSocketPathBytesMax = 107;  // of a Unix socket's address

// $CACHESVC_SERVICE__DIR (which is service.dir for the service), else $CACHESVC_DIR, else
// $XDG_RUNTIME_DIR/cachesvc, else $HOME/.cache/cachesvc. fails: unavailable (none of them is set).
[[nodiscard]] Result<std::string> default_dir();

struct Addresses {
  std::string service;  // ZeroMQ endpoint of the ROUTER socket
  std::string attach;   // path of the attach socket
};

// Of the service in `dir` (empty: the default), unless `endpoint` names the ROUTER socket itself:
// then the attach socket lies beside it. fails: unavailable (no directory), unsupported (an
// endpoint that is not ipc://), too_large (a path that a socket cannot have).
[[nodiscard]] Result<Addresses> find_addresses(const std::string& dir, const std::string& endpoint);

}  // namespace kv::client
