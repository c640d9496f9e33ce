// ShellCounters: what happens before a request reaches the Engine, or after a reply left it, and
// the names under which status reports it. One table, so that no counter is forgotten. Owner: the
// service; every part of the shell counts into the same one. Threads: the loop thread only. Cost:
// O(1).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kv::codec {

// All only grow.
struct ShellCounters {
  // --- the request socket
  std::uint64_t received_requests = 0;   // given to the Engine
  std::uint64_t malformed_frames = 0;    // no request at all: nobody could be answered
  std::uint64_t invalid_requests = 0;    // a senseless body, or over a limit of the protocol
  std::uint64_t oversized_requests = 0;  // over limits.message_bytes
  std::uint64_t denied_requests = 0;     // unknown client or wrong secret
  std::uint64_t unread_replies = 0;      // dropped: the client does not read, its queue is full
  std::uint64_t unread_requests = 0;     // dropped: of a client that does not read
  std::uint64_t unsent_replies = 0;      // dropped: the client is not connected any more
  // Closed at once: too few descriptors were left, another user's, or messages out of bounds.
  std::uint64_t refused_connections = 0;
  // --- the attach socket
  std::uint64_t attached_clients = 0;
  std::uint64_t denied_attaches = 0;             // of another user
  std::uint64_t refused_attaches = 0;            // over client.capacity
  std::uint64_t refused_attaches_of_user = 0;    // over client.per_user
  std::uint64_t malformed_attaches = 0;          // no valid packet
  std::uint64_t refused_attach_connections = 0;  // that did not enter, or too few descriptors
  std::uint64_t attach_pauses = 0;               // no descriptor was left to accept with
  // --- the log
  std::uint64_t dropped_log_lines = 0;  // nobody reads standard error
  // --- the disk
  std::uint64_t disk_failures = 0;    // the store could not be opened, or its index not be read
  std::uint64_t damaged_indexes = 0;  // set aside at open: the disk tier started empty
};

struct ShellCounterName {
  std::string_view name;
  std::uint64_t ShellCounters::* value;
};

inline constexpr std::array kShellCounterNames{
    ShellCounterName{"received_requests", &ShellCounters::received_requests},
    ShellCounterName{"malformed_frames", &ShellCounters::malformed_frames},
    ShellCounterName{"invalid_requests", &ShellCounters::invalid_requests},
    ShellCounterName{"oversized_requests", &ShellCounters::oversized_requests},
    ShellCounterName{"denied_requests", &ShellCounters::denied_requests},
    ShellCounterName{"unread_replies", &ShellCounters::unread_replies},
    ShellCounterName{"unread_requests", &ShellCounters::unread_requests},
    ShellCounterName{"unsent_replies", &ShellCounters::unsent_replies},
    ShellCounterName{"refused_connections", &ShellCounters::refused_connections},
    ShellCounterName{"attached_clients", &ShellCounters::attached_clients},
    ShellCounterName{"denied_attaches", &ShellCounters::denied_attaches},
    ShellCounterName{"refused_attaches", &ShellCounters::refused_attaches},
    ShellCounterName{"refused_attaches_of_user", &ShellCounters::refused_attaches_of_user},
    ShellCounterName{"malformed_attaches", &ShellCounters::malformed_attaches},
    ShellCounterName{"refused_attach_connections", &ShellCounters::refused_attach_connections},
    ShellCounterName{"attach_pauses", &ShellCounters::attach_pauses},
    ShellCounterName{"dropped_log_lines", &ShellCounters::dropped_log_lines},
    ShellCounterName{"disk_failures", &ShellCounters::disk_failures},
    ShellCounterName{"damaged_indexes", &ShellCounters::damaged_indexes},
};
// A new counter without a name does not compile.
static_assert(kShellCounterNames.size() * sizeof(std::uint64_t) == sizeof(ShellCounters));

}  // namespace kv::codec
