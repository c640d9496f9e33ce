// FakeService: the sockets of a service with a script for its answers: a ROUTER and an attach
// socket in a thread of its own. Hello, Heartbeat and Bye are answered unless the script does.
// Owner: a test. Threads: the script runs in the service's thread; the rest may be called from any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "schemas/request_generated.h"
#include "tests/plugins/client/reply_frames.h"

namespace kv::test {

class FakeService {
 public:
  struct Seen {
    std::uint64_t client = 0;
    std::uint64_t request = 0;
    std::uint64_t notices_acknowledged = 0;
    wire::RequestBody type = wire::RequestBody::NONE;
    Bytes frame;  // the whole message
    [[nodiscard]] const wire::Request& message() const { return *wire::GetRequest(frame.data()); }
  };
  // Frames to send; nothing (nullopt) leaves the request to the default answers.
  using Script = std::function<std::optional<std::vector<Bytes>>(const Seen&)>;

  struct Options {
    std::string dir = {};
    wire::Id128 boot{7, 9};
    std::uint32_t lease_ms = 10'000;
    std::uint64_t pool_bytes = 0;
    bool seal_pool = true;
    bool answer_attach = true;
  };
  FakeService(const Options& options, Script script);
  ~FakeService();
  FakeService(const FakeService&) = delete;
  FakeService& operator=(const FakeService&) = delete;
  FakeService(FakeService&&) = delete;
  FakeService& operator=(FakeService&&) = delete;

  // To the client that sent last.
  void send(Bytes frame);
  // All requests of this type so far, oldest first.
  [[nodiscard]] std::vector<Seen> seen(wire::RequestBody type) const;
  // False when they have not come in time.
  [[nodiscard]] bool wait_seen(wire::RequestBody type, std::size_t count,
                               std::chrono::milliseconds time = std::chrono::seconds(10)) const;
  [[nodiscard]] std::byte* pool() const { return pool_; }

 private:
  void run();
  void serve_router();
  void serve_attach(int connection);
  void push(const Bytes& frame);
  std::vector<Bytes> default_answer(const Seen& request) const;

  Options options_;
  Script script_;
  void* context_ = nullptr;
  void* router_ = nullptr;
  int listener_ = -1;
  int wake_ = -1;
  int pool_file_ = -1;
  std::byte* pool_ = nullptr;
  std::vector<int> connections_;
  Bytes identity_;  // of the client that sent last
  std::uint64_t clients_ = 0;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Seen> seen_;
  std::deque<Bytes> outbox_;
  std::thread thread_;
};

}  // namespace kv::test
