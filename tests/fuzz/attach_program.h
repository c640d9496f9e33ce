// A run of the attach socket, driven by arbitrary bytes: each few bytes are one event (a
// connection, a packet of any bytes, a well-formed request, an end). What the server answers is
// compared with a model of its own: one reply to each packet, the right error, a descriptor when
// and only when one was asked for after entering.
// Owner: the fuzz target or a test. Threads: the server's loop has one of its own. Cost: a round
// trip over a Unix socket each event.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/cachesvc/shell/test_client.h"

namespace kv::testing {

// The server under test; one serves many programs.
class AttachHarness {
 public:
  static constexpr std::uint64_t kTicketsMax = 3;  // of one program: more are `exhausted`

  AttachHarness();
  ~AttachHarness();
  AttachHarness(const AttachHarness&) = delete;
  AttachHarness& operator=(const AttachHarness&) = delete;
  AttachHarness(AttachHarness&&) = delete;
  AttachHarness& operator=(AttachHarness&&) = delete;

  [[nodiscard]] const std::string& path() const;
  void begin_program();  // nobody has entered

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class AttachProgram {
 public:
  // Both outlive the program.
  AttachProgram(AttachHarness& harness, std::span<const std::uint8_t> bytes);

  // Runs all events. A broken promise stops the process (KV_CHECK).
  void run();

  struct Counts {
    std::uint32_t packets = 0, entered = 0, memories = 0, refused = 0, ended = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Connection {
    std::unique_ptr<tests::AttachConnection> socket;
    bool has_entered = false;
  };

  std::uint8_t take();
  void event();
  void exchange(Connection& connection, std::span<const std::uint8_t> packet);
  [[nodiscard]] wire::ErrorCode expected(const Connection& connection,
                                         std::span<const std::uint8_t> packet) const;
  [[nodiscard]] std::vector<std::uint8_t> any_packet();
  [[nodiscard]] std::vector<std::uint8_t> request_packet();

  AttachHarness& harness_;
  std::span<const std::uint8_t> bytes_;
  std::array<Connection, 4> connections_;
  std::uint64_t last_client_ = 0;
  Counts counts_;
};

}  // namespace kv::testing
