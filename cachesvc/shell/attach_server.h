// AttachServer: the attach socket. Each program opens one connection: the kernel says who it is, it
// is given an id and a secret, and descriptors of the memory it works on. A connection that ends
// says nothing about the process: the pidfd and the lease do. Owner: the service. Threads: the loop
// thread only; never waits. Malformed packets get an error reply. Bounded: connections with a
// client by enter(), those without one by `waiting_max`; a packet is at most 1 KiB. Cost: a few
// system calls a packet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include <sys/types.h>

#include "allocator/base/result.h"
#include "cachesvc/shell/event_loop.h"
#include "cachesvc/shell/log.h"
#include "cachesvc/shell/socket_file.h"
#include "cachesvc/wire/attach_codec.h"
#include "cachesvc/wire/shell_counters.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::shell {

class AttachServer {
 public:
  struct Peer {
    uid_t user = 0;
    pid_t process = 0;
    FileDescriptor process_descriptor;  // a pidfd
    bool wants_admin = false;
  };
  struct Ticket {
    ClientId client;
    codec::Id128 secret;
  };
  struct Memory {
    FileDescriptor descriptor;
    std::uint64_t bytes = 0;
    bool writable = false;
  };
  struct Options {
    std::string path;
    codec::Id128 boot;
    // Connections of one user that have no client, having not entered or said Bye: of more, the
    // oldest is closed.
    std::size_t waiting_max = 0;
    codec::ShellCounters* counters = nullptr;  // outlives the server
    // Takes a new client in. fails: exhausted.
    std::function<Result<Ticket>(Peer)> enter;
    // fails: unavailable (the tier is off), stale (the client's process is dead).
    std::function<Result<Memory>(ClientId, codec::AttachKind)> memory;
  };

  // Listens, mode 0660. fails: unavailable.
  [[nodiscard]] static Result<std::unique_ptr<AttachServer>> make(EventLoop& loop,
                                                                  const Logger& log,
                                                                  Options options);
  ~AttachServer();  // closes all connections and removes the socket file
  AttachServer(const AttachServer&) = delete;
  AttachServer& operator=(const AttachServer&) = delete;
  AttachServer(AttachServer&&) = delete;
  AttachServer& operator=(AttachServer&&) = delete;

  // The client is no more: ends its connection. A child of a dead process may still hold it, and
  // must not be given memory there.
  void forget(ClientId client);
  // The client said Bye: its connection stays, as one that may have to make room.
  void retire(ClientId client);

 private:
  struct Connection {
    std::uint64_t id = 0;
    FileDescriptor socket;
    uid_t user = 0;
    pid_t process = 0;
    bool has_entered = false;
    ClientId client;         // once it has entered
    EventLoop::Watch watch;  // ends before the socket
  };
  AttachServer(EventLoop& loop, const Logger& log, Options options)
      : loop_(loop), log_(log), options_(std::move(options)), counters_(*options_.counters) {}

  [[nodiscard]] Result<void> listen();
  void accept();
  void pause();
  void add_connection(FileDescriptor socket);
  void make_room_for(uid_t user);
  void deny_connection(const Connection& connection);
  void refuse_connection(const Connection& connection, std::string_view reason);
  void close_connection(const Connection& connection, const Error& why);
  void end_connection(std::uint64_t id);
  [[nodiscard]] const Connection* connection_of(ClientId client) const;
  void receive(std::uint64_t id);
  enum class Received : std::uint8_t { answered, nothing, end };
  [[nodiscard]] Received receive_packet(Connection& connection);
  [[nodiscard]] Error refuse_packet(const Error& error);
  [[nodiscard]] Result<codec::AttachReply> answer(Connection& connection,
                                                  std::span<const std::byte> packet,
                                                  FileDescriptor& passed);
  [[nodiscard]] Result<codec::AttachReply> enter(Connection& connection, bool wants_admin);
  [[nodiscard]] bool send(const Connection& connection, const codec::AttachReply& reply,
                          const FileDescriptor& passed) const;

  EventLoop& loop_;
  const Logger& log_;
  Options options_;
  codec::ShellCounters& counters_;
  SocketFile listener_;
  EventLoop::Watch listener_watch_, pause_watch_;
  std::uint64_t next_connection_ = 1;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::map<uid_t, std::set<std::uint64_t>> waiting_;  // without a client, the oldest first
};

}  // namespace kv::shell
