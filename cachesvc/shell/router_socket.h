// RouterSocket: the ROUTER that requests arrive at and replies leave by. Everything ZeroMQ needs
// care with is inside: its descriptor is edge-triggered and any receive or send may eat the edge,
// so has_request() reads ZMQ_EVENTS again, and is to be asked before the loop waits. Owner: the
// service. Threads: the loop thread only. Cost: a receive or send is a queue operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "allocator/base/result.h"

namespace kv::shell {

class RouterSocket {
 public:
  struct Options {
    std::string endpoint;                 // ipc://PATH
    std::uint64_t message_bytes_max = 0;  // a longer one ends the connection
    int receive_queue_max = 64;           // messages of one peer that wait to be received
    int send_queue_max = 1'024;           // messages to one peer that it did not read yet
  };
  // The socket file gets mode 0660, and goes with this value while it is this socket's.
  // fails: unavailable (the address, or ZeroMQ itself).
  [[nodiscard]] static Result<std::unique_ptr<RouterSocket>> bind(const Options& options);
  ~RouterSocket();
  RouterSocket(const RouterSocket&) = delete;
  RouterSocket& operator=(const RouterSocket&) = delete;
  RouterSocket(RouterSocket&&) = delete;
  RouterSocket& operator=(RouterSocket&&) = delete;

  [[nodiscard]] int descriptor() const;
  [[nodiscard]] bool has_request() const;

  enum class Received : std::uint8_t { none, request, malformed };
  // Takes the next message. A request is one body frame after the peer's identity; `identity` and
  // `body` are valid until the next receive.
  [[nodiscard]] Received receive();
  [[nodiscard]] std::string_view identity() const;
  [[nodiscard]] std::span<const std::byte> body() const;

  enum class Sent : std::uint8_t { sent, queue_full, unknown_peer, failed };
  // Never waits.
  [[nodiscard]] Sent send(std::string_view identity, std::span<const std::byte> body);

 private:
  struct State;
  explicit RouterSocket(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kv::shell
