// EventLoop: calls functions when a descriptor is readable, a time has come or a signal arrived.
// The only part that knows Boost.Asio. Owner: the service. Threads: everything is called on the
// thread in run(); post() and stop() from any. Cost: one epoll wake for each event.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "allocator/base/result.h"

namespace kv::shell {

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  EventLoop(EventLoop&&) = delete;
  EventLoop& operator=(EventLoop&&) = delete;

  // As long as it lives, its function is called. A function may end its own Watch. It must end
  // before the loop, and a descriptor's before the descriptor is closed.
  class Watch {
   public:
    struct State;  // opaque: what Asio waits on
    Watch() = default;
    // Shared: a call that is already queued when the Watch ends still looks at it.
    explicit Watch(std::shared_ptr<State> state);
    Watch(Watch&& other) noexcept = default;
    Watch& operator=(Watch&& other) noexcept;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch();

   private:
    void end();
    std::shared_ptr<State> state_;
  };

  // The descriptor stays the caller's. Called again while it stays readable. fails: unavailable.
  [[nodiscard]] Result<Watch> when_readable(int descriptor, std::function<void()> call);
  [[nodiscard]] Watch every(std::chrono::milliseconds period, std::function<void()> call);
  // SIGTERM, SIGINT and, unless it is ignored by now, SIGHUP, each time. fails: unavailable.
  [[nodiscard]] Result<Watch> when_asked_to_end(std::function<void()> call);

  void post(std::function<void()> call);
  void run();  // until stop()
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kv::shell
