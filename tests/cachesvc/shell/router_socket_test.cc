#include "cachesvc/shell/router_socket.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zmq.h>

#include "cachesvc/shell/event_loop.h"
#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::shell {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Dealer {
  explicit Dealer(const std::string& endpoint) : context(zmq_ctx_new()) {
    socket = zmq_socket(context, ZMQ_DEALER);
    const int none = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof(none));
    const int wait_ms = 10'000;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait_ms, sizeof(wait_ms));
    const int unlimited = 0;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof(unlimited));
    zmq_connect(socket, endpoint.c_str());
  }
  ~Dealer() {
    zmq_close(socket);
    zmq_ctx_term(context);
  }
  Dealer(const Dealer&) = delete;
  Dealer& operator=(const Dealer&) = delete;
  Dealer(Dealer&&) = delete;
  Dealer& operator=(Dealer&&) = delete;
  void send(std::string_view text, bool more = false) const {
    zmq_send(socket, text.data(), text.size(), more ? ZMQ_SNDMORE : 0);
  }
  [[nodiscard]] std::string receive() const {
    std::string text(1'000, '\0');
    const int count = zmq_recv(socket, text.data(), text.size(), 0);
    text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return text;
  }
  void* context;
  void* socket;
};

class RouterSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    endpoint_ = "ipc://" + dir_.path() + "/r.sock";
    auto bound = RouterSocket::bind({.endpoint = endpoint_, .message_bytes_max = 1U << 20U});
    ASSERT_TRUE(bound.has_value());
    router_ = *std::move(bound);
  }
  // Calls `turn` on every wake, and again as long as messages wait, until `done`.
  void run_until(const std::function<void()>& turn, const std::function<bool()>& done) {
    std::function<void()> pump = [&] {
      turn();
      if (done()) return loop_.stop();
      if (router_->has_request()) loop_.post(pump);
    };
    auto watch = loop_.when_readable(router_->descriptor(), pump);
    ASSERT_TRUE(watch.has_value());
    const EventLoop::Watch patience = loop_.every(std::chrono::seconds(20), [&] { loop_.stop(); });
    loop_.run();
  }
  tests::TempDir dir_;
  std::string endpoint_;
  EventLoop loop_;
  std::unique_ptr<RouterSocket> router_;
};

TEST_F(RouterSocketTest, AReplyGoesToTheIdentityThatAsked) {
  const Dealer first(endpoint_);
  const Dealer second(endpoint_);
  first.send("from first");
  second.send("from second");
  int answered = 0;
  run_until(
      [&] {
        while (router_->receive() == RouterSocket::Received::request) {
          const auto body = router_->body();
          const std::string text(reinterpret_cast<const char*>(body.data()), body.size());
          EXPECT_EQ(router_->send(router_->identity(), as_bytes("to" + text.substr(4))),
                    RouterSocket::Sent::sent);
          ++answered;
        }
      },
      [&] { return answered == 2; });
  EXPECT_EQ(first.receive(), "to first");
  EXPECT_EQ(second.receive(), "to second");
}

// With 64 a wake and a reply to each, a lost edge would leave messages behind.
TEST_F(RouterSocketTest, NoMessageIsLeftBehindWhenAWakeTakesOnlyAFew) {
  constexpr int kMessages = 900;
  const Dealer dealer(endpoint_);
  for (int i = 0; i < kMessages; ++i) dealer.send(std::to_string(i));
  int received = 0;
  run_until(
      [&] {
        for (int i = 0; i < 64 && router_->receive() == RouterSocket::Received::request; ++i) {
          const auto body = router_->body();
          const std::string text(reinterpret_cast<const char*>(body.data()), body.size());
          EXPECT_EQ(text, std::to_string(received));
          ++received;
          EXPECT_EQ(router_->send(router_->identity(), body), RouterSocket::Sent::sent);
        }
      },
      [&] { return received == kMessages; });
  ASSERT_EQ(received, kMessages);
  for (int i = 0; i < kMessages; ++i) ASSERT_EQ(dealer.receive(), std::to_string(i));
}

TEST_F(RouterSocketTest, MessagesOfMoreOrFewerFramesAreMalformedAndTheNextIsNot) {
  const Dealer dealer(endpoint_);
  dealer.send("a", true);
  dealer.send("b", true);
  dealer.send("c");
  dealer.send("good");
  std::vector<RouterSocket::Received> seen;
  run_until(
      [&] {
        for (auto got = router_->receive(); got != RouterSocket::Received::none;
             got = router_->receive()) {
          seen.push_back(got);
        }
      },
      [&] { return seen.size() == 2; });
  EXPECT_EQ(seen,
            (std::vector{RouterSocket::Received::malformed, RouterSocket::Received::request}));
  EXPECT_EQ(router_->body().size(), 4U);
}

TEST_F(RouterSocketTest, APeerThatIsNotThereIsSaidAndNothingWaits) {
  EXPECT_EQ(router_->send("nobody", as_bytes("x")), RouterSocket::Sent::unknown_peer);
}

TEST_F(RouterSocketTest, APeerThatDoesNotReadFillsItsQueueAndNothingWaits) {
  const Dealer dealer(endpoint_);
  dealer.send("hello");
  std::string identity;
  run_until(
      [&] {
        if (router_->receive() == RouterSocket::Received::request) identity = router_->identity();
      },
      [&] { return !identity.empty(); });
  const std::string kilobytes(65'536, 'x');
  bool is_full = false;
  for (int i = 0; i < 10'000 && !is_full; ++i) {
    is_full = router_->send(identity, as_bytes(kilobytes)) == RouterSocket::Sent::queue_full;
  }
  EXPECT_TRUE(is_full);
}

TEST_F(RouterSocketTest, TheSocketFileIsForUserAndGroupOnly) {
  struct stat status{};
  ASSERT_EQ(stat((dir_.path() + "/r.sock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660U);
}

TEST_F(RouterSocketTest, FramesOfAnySizeArriveAligned) {
  const Dealer dealer(endpoint_);
  constexpr int kMessages = 200;
  for (int i = 0; i < kMessages; ++i)
    dealer.send(std::string(static_cast<std::size_t>(40 + i), 'a'));
  int received = 0, misaligned = 0;
  run_until(
      [&] {
        while (router_->receive() == RouterSocket::Received::request) {
          misaligned += reinterpret_cast<std::uintptr_t>(router_->body().data()) % 8 == 0 ? 0 : 1;
          ++received;
        }
      },
      [&] { return received == kMessages; });
  EXPECT_EQ(misaligned, 0);
}

TEST_F(RouterSocketTest, AnEndpointThatCannotBeBoundIsAnError) {
  const auto bound = RouterSocket::bind(
      {.endpoint = "ipc://" + dir_.path() + "/none/r.sock", .message_bytes_max = 1U << 20U});
  EXPECT_EQ(bound.error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace kv::shell
