// The process's accept4(), for libzmq's sake: libzmq 4.3.4 ends the process when a listener of its
// ipc transport meets "too many open files", or most other errors. Here a connection that would
// leave too few descriptors, or is another user's, is closed at once, and what cannot be accepted
// waits; both look to libzmq like a peer that went away. What is accepted is followed
// (receive_guard.h). Owner: the process. Threads: any. Cost: four system calls a connection.
#pragma once

#include <cstdint>

namespace kv::shell {

// Descriptors that no connection may take: for clients' pidfds, pools and the disk. A sixteenth of
// the limit, at most 64.
[[nodiscard]] bool is_of_reserve(int descriptor);

// As accept4 without an address, with close-on-exec, and without the reserve.
[[nodiscard]] int accept_any(int listener, int flags);

// The peer runs as the service's user or as root: others may not attach either.
[[nodiscard]] bool is_from_our_user(int connection);

// Connections that accept4 refused in this process so far.
[[nodiscard]] std::uint64_t refused_connections();

}  // namespace kv::shell
