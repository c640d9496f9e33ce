// The process's recv(), for libzmq's sake: what peers of a followed connection send is looked at
// on its way (zmtp_stream.h), and a peer that breaks the bounds looks to libzmq like one that went
// away. Owner: the process. Threads: any. Cost: two system calls more (fstat, and the lock) a
// recv of a followed connection; others pay the lock.
#pragma once

#include <cstdint>

namespace kv::shell {

// From here on what arrives on this connection is followed, until it is closed.
void follow(int connection);

// Connections that recv() cut off in this process so far.
[[nodiscard]] std::uint64_t cut_connections();

}  // namespace kv::shell
