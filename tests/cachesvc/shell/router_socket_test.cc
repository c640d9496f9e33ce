#include "cachesvc/shell/router_socket.h"

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zmq.h>

#include "cachesvc/shell/accept_guard.h"
#include "cachesvc/shell/event_loop.h"
#include "cachesvc/shell/receive_guard.h"
#include "cachesvc/shell/unix_address.h"
#include "cachesvc/shell/zmtp_stream.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::shell {
namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Dealer {
  explicit Dealer(const std::string& endpoint, const std::string& name = {})
      : context(zmq_ctx_new()) {
    socket = zmq_socket(context, ZMQ_DEALER);
    if (!name.empty()) zmq_setsockopt(socket, ZMQ_ROUTING_ID, name.data(), name.size());
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
  // Of the next whole request; empty when none comes.
  std::string next_body() {
    const bool came =
        tests::eventually([&] { return router_->receive() == RouterSocket::Received::request; });
    const auto body = router_->body();
    return came ? std::string(reinterpret_cast<const char*>(body.data()), body.size()) : "";
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
      [&] { return seen.size() >= 2; });
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

// libzmq ends the process when its listener meets EMFILE.
TEST_F(RouterSocketTest, ConnectionsWithoutADescriptorLeftAreRefusedAndTheOthersGoOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan's check of a vptr opens a pipe: without descriptors it reports good code";
#endif
  const Dealer dealer(endpoint_);
  dealer.send("before");
  ASSERT_EQ(next_body(), "before");
  const std::uint64_t refused = refused_connections();
  const sockaddr_un address = unix_address(dir_.path() + "/r.sock");
  const FileDescriptor stranger(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};  // what is open stays open
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int connected =
      connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const bool was_refused = tests::eventually([&] { return refused_connections() > refused; });
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(connected, 0);
  EXPECT_TRUE(was_refused);
  dealer.send("after");
  EXPECT_EQ(next_body(), "after");
  const Dealer next(endpoint_);
  next.send("new");
  EXPECT_EQ(next_body(), "new");
}

// A high number says that few are left: the connection is closed before the others starve. Of 1,024
// descriptors 64 are kept.
TEST_F(RouterSocketTest, TheLastDescriptorsAreNotForConnections) {
  const std::uint64_t refused = refused_connections();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{.rlim_cur = 1'024, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<FileDescriptor> taken;
  do {
    taken.emplace_back(dup(STDERR_FILENO));
  } while (taken.back().is_open() && taken.back().get() < 1'024 - 64 - 6);
  EXPECT_FALSE(is_of_reserve(taken.back().get()));
  std::vector<FileDescriptor> strangers;
  const sockaddr_un address = unix_address(dir_.path() + "/r.sock");
  for (int i = 0; i < 8; ++i) {
    FileDescriptor stranger(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    strangers.push_back(std::move(stranger));
  }
  const bool was_closed = tests::eventually([&] { return refused_connections() > refused; });
  // The strangers' own ends may have come from the reserve; connections may not.
  for (int i = 0; i < 64 - 8; ++i) {
    taken.emplace_back(dup(STDERR_FILENO));
    EXPECT_TRUE(taken.back().is_open()) << i;
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(was_closed);
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

// What libzmq takes for a peer of ZMTP 1.0, with and without its own greeting, and of ZMTP 2.0.
const std::vector<std::string>& old_greetings() {
  using std::string_literals::operator""s;
  static const std::vector<std::string> greetings = {
      "\x01\x00\x04\x00"
      "abc"s,
      "\xFF\0\0\0\0\0\0\0\x01\x7F\x00\x05\x00\x00"s,
      "\xFF\0\0\0\0\0\0\0\x01\x7F\x01\x05\x00\x00"s,
  };
  return greetings;
}

// Nobody listens there: it is closed, and sending fails.
FileDescriptor try_connect_stream(const std::string& endpoint) {
  FileDescriptor raw(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = unix_address(endpoint.substr(std::string("ipc://").size()));
  if (connect(raw.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return FileDescriptor();
  }
  return raw;
}

TEST_F(RouterSocketTest, APeerOfAnOldProtocolIsCutOffBeforeItCanSay) {
  for (const std::string& greeting : old_greetings()) {
    const FileDescriptor raw = try_connect_stream(endpoint_);
    ASSERT_EQ(send(raw.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(greeting.size()));
    std::array<char, 256> answer{};
    ssize_t count = 1;
    while (count > 0) count = recv(raw.get(), answer.data(), answer.size(), 0);  // its own greeting
    EXPECT_LE(count, 0);
    EXPECT_EQ(router_->receive(), RouterSocket::Received::none);
  }
  const Dealer dealer(endpoint_);
  dealer.send("of today");
  EXPECT_TRUE(
      tests::eventually([&] { return router_->receive() == RouterSocket::Received::request; }));
}

// Their handshake meets the end of the socket; libzmq aborts on that.
TEST_F(RouterSocketTest, EndsWhilePeersOfAnOldProtocolCome) {
  constexpr int kEnds = 300;
  std::atomic<bool> is_over{false};
  std::jthread peers([&is_over, endpoint = endpoint_] {
    const std::string& greeting = old_greetings().front();
    while (!is_over.load()) {
      FileDescriptor raw = try_connect_stream(endpoint);
      (void)send(raw.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
    }
  });
  for (int i = 0; i < kEnds; ++i) {
    router_.reset();
    SetUp();
  }
  is_over.store(true);
  peers.join();
  EXPECT_EQ(router_->receive(), RouterSocket::Received::none);
}

// Who takes the name that libzmq would give the next peer makes it end the process.
TEST_F(RouterSocketTest, APeerThatNamesItselfIsCutOff) {
  const std::uint64_t before = cut_connections();
  const std::string name("\0abcd", 5);
  const Dealer named(endpoint_, name);
  named.send("from the named");
  EXPECT_TRUE(tests::eventually([&] { return cut_connections() > before; }));
  const Dealer nameless(endpoint_);
  nameless.send("from the nameless");
  EXPECT_EQ(next_body(), "from the nameless");
}

TEST_F(RouterSocketTest, AMessageOfTooManyFramesNeverArrivesAndTheOthersDo) {
  const std::uint64_t before = cut_connections();
  const Dealer endless(endpoint_);
  for (std::uint32_t i = 0; i < ZmtpStream::kFramesMax; ++i) endless.send("part", true);
  endless.send("last");
  EXPECT_TRUE(tests::eventually([&] { return cut_connections() > before; }));
  const Dealer good(endpoint_);
  good.send("whole");
  EXPECT_EQ(next_body(), "whole");
}

}  // namespace
}  // namespace kv::shell
