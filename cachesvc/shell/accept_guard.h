// The process's accept4(), for libzmq's sake: libzmq 4.3.4 ends the process when a listener of its
// ipc transport meets "too many open files". Here a connection that would leave too few
// descriptors is closed at once, and what still finds none waits; both look to libzmq like a peer
// that went away. Owner: the process. Threads: any. Cost: two system calls a connection.
#pragma once

#include <cstdint>

namespace kv::shell {

// Descriptors that no connection may take: for clients' pidfds, pools and the disk. A sixteenth of
// the limit, at most 64.
[[nodiscard]] bool is_of_reserve(int descriptor);

// As accept4 without an address, with close-on-exec, and without the reserve.
[[nodiscard]] int accept_any(int listener, int flags);

// Connections that accept4 refused in this process so far.
[[nodiscard]] std::uint64_t refused_connections();

}  // namespace kv::shell
