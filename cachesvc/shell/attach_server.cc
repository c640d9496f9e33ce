#include "cachesvc/shell/attach_server.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cachesvc/shell/accept_guard.h"

namespace kv::shell {
namespace {

constexpr int kBacklog = 64;
constexpr int kAcceptsPerWake = 16;
constexpr int kPacketsPerWake = 16;
constexpr std::chrono::milliseconds kPause(100);
constexpr std::uint32_t kProtocolVersion = 1;

// <sys/pidfd.h> of this C library does not compile as C++.
FileDescriptor open_process(pid_t process) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

bool has_hung_up(int socket) {
  std::byte probe{};
  const ssize_t count = recv(socket, &probe, sizeof(probe), MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

Result<std::unique_ptr<AttachServer>> AttachServer::make(EventLoop& loop, const Logger& log,
                                                         Options options) {
  std::unique_ptr<AttachServer> server(new AttachServer(loop, log, std::move(options)));
  KV_TRY_VOID(server->listen());
  return server;
}

AttachServer::~AttachServer() = default;

Result<void> AttachServer::listen() {
  KV_TRY(listener_, SocketFile::listen(options_.path, SOCK_SEQPACKET, kBacklog));
  KV_TRY(listener_watch_, loop_.when_readable(listener_.descriptor(), [this] { accept(); }));
  return {};
}

void AttachServer::accept() {
  for (int i = 0; i < kAcceptsPerWake; ++i) {
    FileDescriptor socket(accept_any(listener_.descriptor(), SOCK_NONBLOCK));
    if (!socket.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) pause();
      return;
    }
    add_connection(std::move(socket));
  }
}

// The listener stays readable while no descriptor is left: asking at once again would only burn
// time.
void AttachServer::pause() {
  if (is_worth_logging(++counters_.attach_pauses)) {
    log_.write(
        LogLevel::error, "attach_paused",
        {{"reason", std::generic_category().message(errno)}, {"count", counters_.attach_pauses}});
  }
  listener_watch_ = EventLoop::Watch();
  pause_watch_ = loop_.every(kPause, [this] {
    auto watch = loop_.when_readable(listener_.descriptor(), [this] { accept(); });
    if (!watch) return;
    listener_watch_ = *std::move(watch);
    pause_watch_ = EventLoop::Watch();
  });
}

void AttachServer::add_connection(FileDescriptor socket) {
  Connection connection;
  connection.socket = std::move(socket);
  if (is_of_reserve(connection.socket.get())) {
    return refuse_connection(connection, "too few descriptors are left");
  }
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(connection.socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return;
  }
  connection.user = credentials.uid;
  connection.process = credentials.pid;
  if (!is_from_our_user(connection.socket.get())) return deny_connection(connection);
  make_room_for(connection.user);
  const std::uint64_t id = connection.id = next_connection_++;
  auto watch = loop_.when_readable(connection.socket.get(), [this, id] { receive(id); });
  if (!watch) return;
  connection.watch = *std::move(watch);
  waiting_[connection.user].insert(id);
  connections_.emplace(id, std::move(connection));
}

// Whoever comes is heard: connections that nobody enters by must not keep others out.
void AttachServer::make_room_for(uid_t user) {
  const std::set<std::uint64_t>& waiting = waiting_[user];
  if (waiting.size() < options_.waiting_max) return;
  const std::uint64_t oldest = *waiting.begin();
  refuse_connection(connections_.at(oldest), "too many connections that have not entered");
  end_connection(oldest);
}

void AttachServer::deny_connection(const Connection& connection) {
  if (is_worth_logging(++counters_.denied_attaches)) {
    log_.write(LogLevel::warn, "attach_denied",
               {{"uid", std::uint64_t{connection.user}}, {"count", counters_.denied_attaches}});
  }
  close_connection(connection,
                   {ErrorCode::denied, "only the service's own user and root may attach", {}});
}

void AttachServer::refuse_connection(const Connection& connection, std::string_view reason) {
  if (is_worth_logging(++counters_.refused_attach_connections)) {
    log_.write(LogLevel::warn, "attach_refused",
               {{"reason", reason}, {"count", counters_.refused_attach_connections}});
  }
  close_connection(connection, {ErrorCode::exhausted, reason, {}});
}

// Tells the peer; the socket is closed by its owner.
void AttachServer::close_connection(const Connection& connection, const Error& why) {
  // Closing with a packet unread would take the reply away from the peer.
  const int socket = connection.socket.get();
  (void)shutdown(socket, SHUT_RD);
  std::byte rest{};
  while (recv(socket, &rest, sizeof(rest), MSG_DONTWAIT) > 0) {
  }
  codec::AttachReply reply;
  reply.error = why;
  reply.boot = options_.boot;
  (void)send(connection, reply, FileDescriptor());
}

void AttachServer::forget(ClientId client) {
  if (const Connection* const connection = connection_of(client)) end_connection(connection->id);
}

void AttachServer::retire(ClientId client) {
  if (const Connection* const connection = connection_of(client)) {
    waiting_[connection->user].insert(connection->id);
  }
}

const AttachServer::Connection* AttachServer::connection_of(ClientId client) const {
  for (const auto& [id, connection] : connections_) {
    if (connection.has_entered && connection.client == client) return &connection;
  }
  return nullptr;
}

void AttachServer::end_connection(std::uint64_t id) {
  const auto found = connections_.find(id);
  waiting_[found->second.user].erase(id);
  connections_.erase(found);
}

void AttachServer::receive(std::uint64_t id) {
  Connection& connection = connections_.at(id);
  for (int i = 0; i < kPacketsPerWake; ++i) {
    switch (receive_packet(connection)) {
      case Received::answered:
        break;
      case Received::nothing:
        return;
      case Received::end:
        end_connection(id);
        return;
    }
  }
}  // more may wait: others first, the loop asks again

AttachServer::Received AttachServer::receive_packet(Connection& connection) {
  std::array<std::byte, codec::kAttachPacketBytesMax> packet;
  // Descriptors that a peer passes are closed by the kernel: no control buffer is given.
  const ssize_t count =
      recv(connection.socket.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Received::nothing;
  // An empty packet and the end look alike in SEQPACKET: both end the connection.
  if (count <= 0) return Received::end;
  const auto size = static_cast<std::size_t>(count);
  FileDescriptor passed;
  codec::AttachReply reply;
  auto answered =
      size > packet.size()
          ? Result<codec::AttachReply>(refuse_packet({ErrorCode::too_large, "over 1 KiB", {}}))
          : answer(connection, std::span(packet).first(size), passed);
  if (answered) {
    reply = *answered;
  } else {
    reply.error = answered.error();
  }
  reply.boot = options_.boot;
  return send(connection, reply, passed) ? Received::answered : Received::end;
}

Error AttachServer::refuse_packet(const Error& error) {
  if (is_worth_logging(++counters_.malformed_attaches)) {
    log_.write(LogLevel::warn, "attach_malformed",
               {{"reason", error.reason}, {"count", counters_.malformed_attaches}});
  }
  return error;
}

Result<codec::AttachReply> AttachServer::answer(Connection& connection,
                                                std::span<const std::byte> packet,
                                                FileDescriptor& passed) {
  const auto request = codec::decode_attach_request(packet);
  if (!request) return refuse_packet(request.error());
  if (request->protocol_version != kProtocolVersion) {
    return Error{ErrorCode::mismatch, "protocol version", "protocol_version"};
  }
  if (request->kind == codec::AttachKind::enter) return enter(connection, request->admin);
  if (!connection.has_entered) return Error{ErrorCode::denied, "enter first", "kind"};
  KV_TRY(Memory memory, options_.memory(connection.client, request->kind));
  passed = std::move(memory.descriptor);
  codec::AttachReply reply;
  reply.bytes = memory.bytes;
  reply.writable = memory.writable;
  return reply;
}

Result<codec::AttachReply> AttachServer::enter(Connection& connection, bool wants_admin) {
  if (connection.has_entered) return Error{ErrorCode::exists, "this connection entered", {}};
  FileDescriptor process = open_process(connection.process);
  if (!process.is_open()) {
    return Error{ErrorCode::unavailable, "the service cannot watch this process", {}};
  }
  // The id may have passed to another process since the connect; then this end is closed.
  if (has_hung_up(connection.socket.get())) {
    return Error{ErrorCode::unavailable, "the process is gone", {}};
  }
  KV_TRY(const Ticket ticket, options_.enter({.user = connection.user,
                                              .process = connection.process,
                                              .process_descriptor = std::move(process),
                                              .wants_admin = wants_admin}));
  connection.has_entered = true;
  waiting_[connection.user].erase(connection.id);
  connection.client = ticket.client;
  ++counters_.attached_clients;
  codec::AttachReply reply;
  reply.client = ticket.client;
  reply.secret = ticket.secret;
  return reply;
}

bool AttachServer::send(const Connection& connection, const codec::AttachReply& reply,
                        const FileDescriptor& passed) const {
  std::vector<std::byte> bytes = codec::encode_attach_reply(reply);
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (passed.is_open()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int descriptor = passed.get();
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  }
  // A peer that does not read its replies is dropped, not waited for.
  const ssize_t sent = sendmsg(connection.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size());
}

}  // namespace kv::shell
