#include "cachesvc/shell/router_socket.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <zmq.h>

#include "cachesvc/shell/config.h"
#include "cachesvc/shell/socket_file.h"

namespace kv::shell {
namespace {

// Of zmq.h's draft part, but honoured by this build: frames arrive in memory of their own, aligned,
// instead of as slices of the receive buffer. Where it is refused the decoder copies.
constexpr int kZeroCopyReceive = 10;
constexpr int kBacklog = 128;
constexpr int kLingerMs = 200;
constexpr int kHeartbeatMs = 1'000;
constexpr int kHeartbeatTimeoutMs = 5'000;
// With a domain libzmq refuses peers of ZMTP 1.0 and 2.0, whose handshake aborts the process when
// it meets the end of the socket (zmtp_engine.cpp, process_routing_id_msg). Nobody answers for it.
constexpr std::string_view kZapDomain = "cachesvc";

struct Context {
  Context() : value(zmq_ctx_new()) {
    // Before the first socket. A refusal costs the decoder's copy, nothing else.
    if (value != nullptr) (void)zmq_ctx_set(value, kZeroCopyReceive, 0);
  }
  ~Context() {
    if (value != nullptr) zmq_ctx_term(value);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  Context(Context&&) = delete;
  Context& operator=(Context&&) = delete;
  void* value;
};

struct Socket {
  explicit Socket(void* context) : value(zmq_socket(context, ZMQ_ROUTER)) {}
  ~Socket() {
    if (value != nullptr) zmq_close(value);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket(Socket&&) = delete;
  Socket& operator=(Socket&&) = delete;
  [[nodiscard]] bool set(int option, int number) const {
    return zmq_setsockopt(value, option, &number, sizeof(number)) == 0;
  }
  void* value;
};

struct Frame {
  Frame() { zmq_msg_init(&value); }
  ~Frame() { zmq_msg_close(&value); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  Frame(Frame&&) = delete;
  Frame& operator=(Frame&&) = delete;
  [[nodiscard]] bool more() const { return zmq_msg_more(&value) != 0; }
  zmq_msg_t value{};
};

}  // namespace

struct RouterSocket::State {
  State() : socket(context.value) {}  // without a context there is no socket either
  bool receive(Frame& frame) const {
    while (zmq_msg_recv(&frame.value, socket.value, ZMQ_DONTWAIT) < 0) {
      if (errno != EINTR) return false;
    }
    return true;
  }

  // libzmq is given a listening socket: of its own one it would remove the file at the end, and at
  // the start, whoever's it is.
  [[nodiscard]] Result<void> listen(const std::string& endpoint) const {
    FileDescriptor given(fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0));
    if (!given.is_open()) return Error{ErrorCode::unavailable, "no descriptor is left", {}};
    if (!socket.set(ZMQ_USE_FD, given.get()) || zmq_bind(socket.value, endpoint.c_str()) != 0) {
      return Error{ErrorCode::unavailable, "ZeroMQ cannot listen there", {}};
    }
    (void)given.release();  // libzmq's listener closes it
    return {};
  }

  Context context;
  Socket socket;
  SocketFile file;  // goes before the socket ends
  Frame identity, body;
  int descriptor = -1;
};

RouterSocket::RouterSocket(std::unique_ptr<State> state) : state_(std::move(state)) {}
RouterSocket::~RouterSocket() = default;

Result<std::unique_ptr<RouterSocket>> RouterSocket::bind(const Options& options) {
  auto state = std::make_unique<State>();
  const Socket& socket = state->socket;
  if (socket.value == nullptr) return Error{ErrorCode::unavailable, "no ZeroMQ socket", {}};
  const auto bytes_max = static_cast<std::int64_t>(options.message_bytes_max);
  const bool is_set =
      socket.set(ZMQ_ROUTER_MANDATORY, 1) && socket.set(ZMQ_LINGER, kLingerMs) &&
      socket.set(ZMQ_SNDHWM, options.send_queue_max) &&
      socket.set(ZMQ_RCVHWM, options.receive_queue_max) &&
      socket.set(ZMQ_HEARTBEAT_IVL, kHeartbeatMs) &&
      socket.set(ZMQ_HEARTBEAT_TIMEOUT, kHeartbeatTimeoutMs) &&
      zmq_setsockopt(socket.value, ZMQ_ZAP_DOMAIN, kZapDomain.data(), kZapDomain.size()) == 0 &&
      zmq_setsockopt(socket.value, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max)) == 0;
  if (!is_set) return Error{ErrorCode::unavailable, "a ZeroMQ option was refused", {}};

  const std::string path(ipc_path(options.endpoint));
  KV_TRY(state->file, SocketFile::listen(path, SOCK_STREAM, kBacklog));
  KV_TRY_VOID(state->listen(options.endpoint));
  std::size_t bytes = sizeof(state->descriptor);
  if (zmq_getsockopt(socket.value, ZMQ_FD, &state->descriptor, &bytes) != 0) {
    return Error{ErrorCode::unavailable, "no ZeroMQ descriptor", {}};
  }
  return std::unique_ptr<RouterSocket>(new RouterSocket(std::move(state)));
}

int RouterSocket::descriptor() const { return state_->descriptor; }

bool RouterSocket::has_request() const {
  int events = 0;
  std::size_t bytes = sizeof(events);
  if (zmq_getsockopt(state_->socket.value, ZMQ_EVENTS, &events, &bytes) != 0) return false;
  return (events & ZMQ_POLLIN) != 0;
}

RouterSocket::Received RouterSocket::receive() {
  if (!state_->receive(state_->identity)) return Received::none;
  if (!state_->identity.more() || !state_->receive(state_->body)) return Received::malformed;
  if (!state_->body.more()) return Received::request;
  Frame rest;  // messages are whole: the rest of this one is there
  do {
    if (!state_->receive(rest)) break;
  } while (rest.more());
  return Received::malformed;
}

std::string_view RouterSocket::identity() const {
  zmq_msg_t& frame = state_->identity.value;
  return {static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame)};
}

std::span<const std::byte> RouterSocket::body() const {
  zmq_msg_t& frame = state_->body.value;
  return {static_cast<const std::byte*>(zmq_msg_data(&frame)), zmq_msg_size(&frame)};
}

RouterSocket::Sent RouterSocket::send(std::string_view identity, std::span<const std::byte> body) {
  void* const socket = state_->socket.value;
  if (zmq_send(socket, identity.data(), identity.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
    if (errno == EAGAIN) return Sent::queue_full;
    return errno == EHOSTUNREACH ? Sent::unknown_peer : Sent::failed;
  }
  // With the identity accepted the peer's queue takes the whole message.
  return zmq_send(socket, body.data(), body.size(), ZMQ_DONTWAIT) < 0 ? Sent::failed : Sent::sent;
}

}  // namespace kv::shell
