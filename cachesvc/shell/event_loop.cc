#include "cachesvc/shell/event_loop.h"

#include <csignal>
#include <utility>  // before Asio: Boost 1.74 uses std::exchange without it

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

namespace kv::shell {
namespace {

using ErrorStatus = boost::system::error_code;

}  // namespace

struct EventLoop::State {
  boost::asio::io_context context{1};  // one thread runs it
};

struct EventLoop::Watch::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  State(State&&) = delete;
  State& operator=(State&&) = delete;
  virtual ~State() = default;
  virtual void end() = 0;

  std::function<void()> call;
  bool is_active = true;
};

// Each kind arms itself, calls, and arms itself again: the handler keeps the state alive.
namespace watches {

template <class Base>
struct Readable final : Base, std::enable_shared_from_this<Readable<Base>> {
  explicit Readable(boost::asio::io_context& context) : descriptor(context) {}
  void arm() {
    // Not speculative: Asio arms the descriptor anew, and a readable one is reported again.
    descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                          [self = this->shared_from_this()](const ErrorStatus& status) {
                            if (status || !self->is_active) return;
                            self->call();
                            if (self->is_active) self->arm();
                          });
  }
  void end() override {
    if (descriptor.is_open()) descriptor.release();  // the caller closes it
  }
  boost::asio::posix::stream_descriptor descriptor;
};

template <class Base>
struct Periodic final : Base, std::enable_shared_from_this<Periodic<Base>> {
  Periodic(boost::asio::io_context& context, std::chrono::milliseconds time)
      : timer(context), period(time) {}
  void arm() {
    timer.expires_after(period);
    timer.async_wait([self = this->shared_from_this()](const ErrorStatus& status) {
      if (status || !self->is_active) return;
      self->call();
      if (self->is_active) self->arm();
    });
  }
  void end() override { timer.cancel(); }
  boost::asio::steady_timer timer;
  std::chrono::milliseconds period;
};

template <class Base>
struct Signals final : Base, std::enable_shared_from_this<Signals<Base>> {
  explicit Signals(boost::asio::io_context& context) : set(context) {}
  void arm() {
    set.async_wait([self = this->shared_from_this()](const ErrorStatus& status, int) {
      if (status || !self->is_active) return;
      self->call();
      if (self->is_active) self->arm();
    });
  }
  void end() override {
    ErrorStatus ignored;
    ignored = set.cancel(ignored);
    ignored = set.clear(ignored);
  }
  boost::asio::signal_set set;
};

}  // namespace watches

EventLoop::Watch::Watch(std::shared_ptr<State> state) : state_(std::move(state)) {}
EventLoop::Watch::~Watch() { end(); }
EventLoop::Watch& EventLoop::Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    end();
    state_ = std::move(other.state_);
  }
  return *this;
}
void EventLoop::Watch::end() {
  if (state_ == nullptr) return;
  state_->is_active = false;
  state_->end();
  state_.reset();
}

EventLoop::EventLoop() : state_(std::make_unique<State>()) {}
EventLoop::~EventLoop() = default;

Result<EventLoop::Watch> EventLoop::when_readable(int descriptor, std::function<void()> call) {
  auto watch = std::make_shared<watches::Readable<Watch::State>>(state_->context);
  ErrorStatus status;
  if (watch->descriptor.assign(descriptor, status))
    return Error{ErrorCode::unavailable, "the descriptor cannot be watched", {}};
  watch->call = std::move(call);
  watch->arm();
  return Watch(std::move(watch));
}

EventLoop::Watch EventLoop::every(std::chrono::milliseconds period, std::function<void()> call) {
  auto watch = std::make_shared<watches::Periodic<Watch::State>>(state_->context, period);
  watch->call = std::move(call);
  watch->arm();
  return Watch(std::move(watch));
}

Result<EventLoop::Watch> EventLoop::when_asked_to_end(std::function<void()> call) {
  auto watch = std::make_shared<watches::Signals<Watch::State>>(state_->context);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    // nohup: whoever started this wants it to outlive the terminal.
    struct sigaction before{};
    const bool is_known = sigaction(signal, nullptr, &before) == 0;
    if (signal == SIGHUP && is_known && before.sa_handler == SIG_IGN) continue;
    ErrorStatus status;
    if (watch->set.add(signal, status))
      return Error{ErrorCode::unavailable, "signals cannot be watched", {}};
  }
  watch->call = std::move(call);
  watch->arm();
  return Watch(std::move(watch));
}

void EventLoop::post(std::function<void()> call) {
  boost::asio::post(state_->context, std::move(call));
}

void EventLoop::run() {
  const auto work = boost::asio::make_work_guard(state_->context);
  state_->context.run();
}

void EventLoop::stop() { state_->context.stop(); }

}  // namespace kv::shell
