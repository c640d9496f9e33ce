// A client made by hand for the service's tests: a SEQPACKET connection and a DEALER, each message
// built with FlatBuffers here, so that what the service says is checked by something else than its
// own code. Threads: one. Every wait has a deadline; a missing reply is a failed test, not a hang.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "schemas/attach_generated.h"
#include "schemas/reply_generated.h"
#include "schemas/request_generated.h"

namespace kv::tests {

inline constexpr std::chrono::milliseconds kPatience(10'000);

// Calls `met` until it is true. False: it was not within the patience.
[[nodiscard]] bool eventually(const std::function<bool()>& met,
                              std::chrono::milliseconds patience = kPatience);

class AttachConnection {
 public:
  explicit AttachConnection(const std::string& path);         // is_open() says whether it worked
  explicit AttachConnection(int socket) : socket_(socket) {}  // connected; takes it over
  ~AttachConnection();
  AttachConnection(const AttachConnection&) = delete;
  AttachConnection& operator=(const AttachConnection&) = delete;
  AttachConnection(AttachConnection&&) = delete;
  AttachConnection& operator=(AttachConnection&&) = delete;

  [[nodiscard]] bool is_open() const { return socket_ >= 0; }
  [[nodiscard]] int socket() const { return socket_; }
  void send_bytes(std::span<const std::uint8_t> bytes) const;
  void send(wire::AttachKind kind, bool admin = false, std::uint32_t version = 1) const;

  struct Reply {
    bool has_arrived = false;  // else: the other side closed, or the patience is over
    wire::ErrorCode code = wire::ErrorCode::deadline;
    std::string reason;
    std::uint64_t boot_a = 0, boot_b = 0;
    std::uint64_t client = 0;
    std::uint64_t secret_a = 0, secret_b = 0;
    std::uint64_t bytes = 0;
    bool writable = false;
    int descriptor = -1;  // the caller's
  };
  [[nodiscard]] Reply receive() const;
  [[nodiscard]] Reply ask(wire::AttachKind kind, bool admin = false) const;

 private:
  int socket_ = -1;
};

// The layout of all service tests: one group, f32, 2 layers, 1 head, 4 + 4 channels: 64 bytes a
// token.
struct TestLayout {
  std::uint32_t block_tokens = 16;
  std::uint32_t layer_count = 2;
  [[nodiscard]] std::uint64_t block_bytes() const {
    return std::uint64_t{block_tokens} * layer_count * (4 + 4) * 4;
  }
};

struct TestStepItem {
  std::uint64_t sequence = 0;
  wire::StepOp op = wire::StepOp::append;
  std::uint32_t value = 0;
  std::vector<std::uint32_t> tokens;  // of append
};

class TestClient {
 public:
  // Attaches; is_attached() says whether it worked.
  TestClient(const std::string& dir, bool admin);
  // The same client over a connection of its own: another identity.
  TestClient(const std::string& dir, const AttachConnection::Reply& ticket);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;
  TestClient(TestClient&&) = delete;
  TestClient& operator=(TestClient&&) = delete;

  [[nodiscard]] bool is_attached() const { return ticket_.client != 0; }
  [[nodiscard]] const AttachConnection::Reply& ticket() const { return ticket_; }
  [[nodiscard]] AttachConnection& attach() { return *attach_; }
  void close_attach() { attach_.reset(); }
  void set_secret(std::uint64_t a, std::uint64_t b);
  // Speaks for another client from now on, over the same connection.
  void become(const AttachConnection::Reply& ticket);
  void set_request(std::uint64_t request) { request_ = request; }

  // A reply and the memory that it points into; without bytes, none came within the patience.
  struct Reply {
    std::vector<std::uint8_t> bytes;
    [[nodiscard]] bool has_arrived() const { return !bytes.empty(); }
    // requires: has_arrived(); a test that forgets it ends there.
    [[nodiscard]] const wire::Reply* operator->() const {
      if (bytes.empty()) throw std::runtime_error("no reply arrived");
      return wire::GetReply(bytes.data());
    }
    [[nodiscard]] wire::ErrorCode code() const {
      return has_arrived() ? (*this)->code() : wire::ErrorCode::deadline;
    }
  };
  // Sends and waits for the reply with its request id; notices of other messages are kept.
  [[nodiscard]] Reply hello();
  [[nodiscard]] Reply bye();
  [[nodiscard]] Reply attach_pool(const TestLayout& layout);
  [[nodiscard]] Reply open(std::uint64_t sequence, const std::vector<std::uint32_t>& tokens);
  [[nodiscard]] Reply admit(std::uint64_t sequence, std::uint32_t new_tokens);
  [[nodiscard]] Reply step(std::uint64_t step_seq, std::uint64_t completed,
                           const std::vector<TestStepItem>& items);
  [[nodiscard]] Reply lookup(const std::vector<std::uint32_t>& tokens);
  [[nodiscard]] Reply status();
  [[nodiscard]] Reply demote(wire::Tier tier);
  [[nodiscard]] Reply flush();
  // 0 when the status has no such counter.
  [[nodiscard]] std::uint64_t counter(const std::string& name);
  [[nodiscard]] std::map<std::string, std::uint64_t> counters();

  using Body = std::function<flatbuffers::Offset<void>(flatbuffers::FlatBufferBuilder&)>;
  [[nodiscard]] Reply ask(wire::RequestBody type, const Body& body);
  std::uint64_t send(wire::RequestBody type,
                     const Body& body);  // without waiting: the request's id
  void send_status();
  void send_frames(const std::vector<std::vector<std::uint8_t>>& frames);
  // The next message of the service, whatever it is.
  [[nodiscard]] Reply receive(std::chrono::milliseconds patience = kPatience);
  // Waits for a notice about this sequence; its code, or deadline.
  [[nodiscard]] wire::ErrorCode notice(std::uint64_t sequence);

 private:
  void keep_notices(const Reply& reply);
  void connect(const std::string& dir);

  std::unique_ptr<AttachConnection> attach_;
  AttachConnection::Reply ticket_;
  void* context_ = nullptr;
  void* socket_ = nullptr;
  std::uint64_t request_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::vector<wire::Notice> notices_;
};

}  // namespace kv::tests
