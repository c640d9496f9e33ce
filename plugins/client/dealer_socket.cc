#include "plugins/client/dealer_socket.h"

#include <cerrno>
#include <cstdint>
#include <utility>

#include "plugins/client/messages.h"
#include "plugins/client/wait_time.h"

namespace kv::client {
namespace {

// ZMQ_ZERO_COPY_RECV, which Debian's header leaves undeclared. Off: frames arrive aligned. Where
// the option does not exist, the decoder copies.
constexpr int kZeroCopyReceive = 10;
constexpr int kQueueMessagesMax = 1'024;

bool set(void* socket, int option, int value) {
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

}  // namespace

Result<DealerSocket> DealerSocket::connect(const std::string& endpoint) {
  DealerSocket made;
  made.context_ = zmq_ctx_new();
  if (made.context_ == nullptr) return Error{ErrorCode::unavailable, "no ZeroMQ context", {}};
  (void)zmq_ctx_set(made.context_, kZeroCopyReceive, 0);
  (void)zmq_ctx_set(made.context_, ZMQ_BLOCKY, 0);
  made.socket_ = zmq_socket(made.context_, ZMQ_DEALER);
  if (made.socket_ == nullptr) return Error{ErrorCode::unavailable, "no ZeroMQ socket", {}};
  const auto reply_bytes_max = static_cast<std::int64_t>(kReplyBytesMax);
  const bool configured =
      set(made.socket_, ZMQ_LINGER, 0) && set(made.socket_, ZMQ_IMMEDIATE, 1) &&
      set(made.socket_, ZMQ_SNDHWM, kQueueMessagesMax) &&
      set(made.socket_, ZMQ_RCVHWM, kQueueMessagesMax) &&
      set(made.socket_, ZMQ_RECONNECT_IVL, 20) && set(made.socket_, ZMQ_RECONNECT_IVL_MAX, 500) &&
      zmq_setsockopt(made.socket_, ZMQ_MAXMSGSIZE, &reply_bytes_max, sizeof reply_bytes_max) == 0;
  if (!configured) return Error{ErrorCode::unavailable, "a ZeroMQ option was refused", {}};
  if (zmq_connect(made.socket_, endpoint.c_str()) != 0) {
    return Error{ErrorCode::invalid, "no valid endpoint", "endpoint"};
  }
  return made;
}

DealerSocket::DealerSocket(DealerSocket&& other) noexcept
    : context_(std::exchange(other.context_, nullptr)),
      socket_(std::exchange(other.socket_, nullptr)) {}

DealerSocket& DealerSocket::operator=(DealerSocket&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(socket_, other.socket_);
  return *this;
}

DealerSocket::~DealerSocket() {
  if (socket_ != nullptr) zmq_close(socket_);
  if (context_ == nullptr) return;
  while (zmq_ctx_term(context_) != 0 && errno == EINTR) {
  }
}

bool DealerSocket::send(std::span<const std::byte> frame) {
  int sent = -1;
  do {
    sent = zmq_send(socket_, frame.data(), frame.size(), ZMQ_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

std::optional<Frame> DealerSocket::receive() {
  while (true) {
    Frame frame;
    if (zmq_msg_recv(frame.raw(), socket_, ZMQ_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      return std::nullopt;
    }
    if (zmq_msg_more(frame.raw()) == 0) return frame;
    // The other frames of a message are there with its first one.
    for (bool more = true; more;) {
      Frame rest;
      more = zmq_msg_recv(rest.raw(), socket_, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(rest.raw()) != 0;
    }
  }
}

bool DealerSocket::wait(bool for_send, int descriptor, Deadline deadline) {
  const auto events = static_cast<short>(for_send ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN);
  zmq_pollitem_t items[2] = {{socket_, 0, events, 0}, {nullptr, descriptor, ZMQ_POLLIN, 0}};
  const int ready = zmq_poll(items, descriptor < 0 ? 1 : 2, wait_milliseconds(deadline));
  return ready > 0 && descriptor >= 0 && items[1].revents != 0;
}

}  // namespace kv::client
