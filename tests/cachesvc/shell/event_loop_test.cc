#include "cachesvc/shell/event_loop.h"

#include <csignal>
#include <optional>
#include <thread>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace kv::shell {
namespace {

class EventLoopTest : public testing::Test {
 protected:
  void SetUp() override { descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
  void TearDown() override { close(descriptor_); }
  void make_readable() const { ASSERT_EQ(eventfd_write(descriptor_, 1), 0); }
  int descriptor_ = -1;
  EventLoop loop_;
};

TEST_F(EventLoopTest, ADescriptorThatStaysReadableIsToldAgain) {
  int calls = 0;
  auto watch = loop_.when_readable(descriptor_, [&] {
    if (++calls == 3) loop_.stop();  // it was never read: readable all the time
  });
  ASSERT_TRUE(watch.has_value());
  make_readable();
  loop_.run();
  EXPECT_EQ(calls, 3);
}

TEST_F(EventLoopTest, AFunctionMayEndItsOwnWatchAndIsNotCalledAgain) {
  int calls = 0;
  std::optional<EventLoop::Watch> watch;
  auto made = loop_.when_readable(descriptor_, [&] {
    ++calls;
    watch.reset();
    loop_.post([&] { loop_.post([&] { loop_.stop(); }); });
  });
  ASSERT_TRUE(made.has_value());
  watch = *std::move(made);
  make_readable();
  loop_.run();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, AnEndedWatchLeavesTheDescriptorOpen) {
  {
    auto watch = loop_.when_readable(descriptor_, [] {});
    ASSERT_TRUE(watch.has_value());
  }
  make_readable();
  eventfd_t value = 0;
  EXPECT_EQ(eventfd_read(descriptor_, &value), 0);
  EXPECT_EQ(value, 1U);
}

TEST_F(EventLoopTest, ADescriptorThatIsNoneIsRefused) {
  EXPECT_EQ(loop_.when_readable(-1, [] {}).error().code, ErrorCode::unavailable);
}

TEST_F(EventLoopTest, APeriodComesAgainAndAgain) {
  int calls = 0;
  const auto start = std::chrono::steady_clock::now();
  const EventLoop::Watch watch = loop_.every(std::chrono::milliseconds(2), [&] {
    if (++calls == 5) loop_.stop();
  });
  loop_.run();
  EXPECT_EQ(calls, 5);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(10));
}

TEST_F(EventLoopTest, PostAndStopWorkFromAnotherThread) {
  bool called = false;
  std::thread other([&] {
    loop_.post([&] { called = true; });
    loop_.post([&] { loop_.stop(); });
  });
  loop_.run();
  other.join();
  EXPECT_TRUE(called);
}

TEST_F(EventLoopTest, SignalsToEndAreToldEachTime) {
  int calls = 0;
  auto watch = loop_.when_asked_to_end([&] {
    if (++calls == 2) {
      loop_.stop();
    } else {
      std::raise(SIGINT);
    }
  });
  ASSERT_TRUE(watch.has_value());
  loop_.post([] { std::raise(SIGTERM); });
  loop_.run();
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace kv::shell
