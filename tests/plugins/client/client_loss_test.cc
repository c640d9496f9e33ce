// Lost, late, doubled and garbled replies; a service that is slow, restarted or gone.
#include <atomic>

#include <gtest/gtest.h>

#include "tests/plugins/client/client_fixture.h"

namespace kv::test {
namespace {

using client::in;

bool is_status(const Seen& request) { return request.type == wire::RequestBody::Status; }

// SCENARIOS DEAD-08
TEST_F(ClientTest, DropsAnAnswerThatComesAfterItsDeadline) {
  std::atomic<std::uint64_t> first{0};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_status(request)) return std::nullopt;
    std::uint64_t none = 0;
    if (first.compare_exchange_strong(none, request.request)) return std::vector<Bytes>{};
    if (request.request == first) return std::vector<Bytes>{};
    // The late answer arrives just before the right one.
    return std::vector<Bytes>{status_reply(first, 1), status_reply(request.request, 2)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->status(in(milliseconds(100))).error().code, ErrorCode::deadline);
  for (int call = 0; call < 2; ++call) {
    const auto status = client->status(in(seconds(10)));
    ASSERT_TRUE(status) << status.error().reason;
    EXPECT_EQ(status->clients, 2U);
  }
}

TEST_F(ClientTest, RepeatsARequestUnderItsOwnIdWhenTheReplyIsLost) {
  std::atomic<int> count{0};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_status(request)) return std::nullopt;
    if (++count < 3) return std::vector<Bytes>{};
    return std::vector<Bytes>{status_reply(request.request, 4)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto status = client->status(in(seconds(4)));
  ASSERT_TRUE(status) << status.error().reason;
  EXPECT_EQ(status->clients, 4U);
  const auto sent = service->seen(wire::RequestBody::Status);
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].request, sent[1].request);
  EXPECT_EQ(sent[0].request, sent[2].request);
}

TEST_F(ClientTest, TakesADoubledReplyOnce) {
  std::atomic<std::uint32_t> count{0};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_status(request)) return std::nullopt;
    const std::uint32_t now = ++count;
    return std::vector<Bytes>{status_reply(request.request, now),
                              status_reply(request.request, now)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  for (std::uint32_t call = 1; call <= 3; ++call) {
    const auto status = client->status(in(seconds(10)));
    ASSERT_TRUE(status);
    EXPECT_EQ(status->clients, call);
  }
}

TEST_F(ClientTest, SkipsGarbledFramesAndSaysSoWhenNothingElseCame) {
  std::atomic<bool> recovers{true};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_status(request)) return std::nullopt;
    Bytes cut = status_reply(request.request, 1);
    cut.resize(cut.size() / 2);
    if (!recovers) return std::vector<Bytes>{cut};
    return std::vector<Bytes>{cut, Bytes(), status_reply(request.request, 6)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto status = client->status(in(seconds(10)));
  ASSERT_TRUE(status) << status.error().reason;
  EXPECT_EQ(status->clients, 6U);
  recovers = false;
  EXPECT_EQ(client->status(in(milliseconds(200))).error().code, ErrorCode::corrupt);
}

TEST_F(ClientTest, AsksABusyServiceAgainUntilItAnswers) {
  std::atomic<int> count{0};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_status(request)) return std::nullopt;
    if (++count < 4) {
      return std::vector<Bytes>{
          error_frame(request.request, wire::ErrorCode::busy, "too many requests", 2'000)};
    }
    return std::vector<Bytes>{status_reply(request.request, 5)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto status = client->status(in(seconds(10)));
  ASSERT_TRUE(status) << status.error().reason;
  const auto sent = service->seen(wire::RequestBody::Status);
  ASSERT_EQ(sent.size(), 4U);
  for (std::size_t i = 1; i < sent.size(); ++i) EXPECT_GT(sent[i].request, sent[i - 1].request);
}

TEST_F(ClientTest, ReportsBusyAtTheDeadline) {
  auto service = serve([](const Seen& request) -> Answers {
    if (!is_status(request)) return std::nullopt;
    return std::vector<Bytes>{
        error_frame(request.request, wire::ErrorCode::busy, "full", 10'000'000)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto time = time_of(
      [&] { EXPECT_EQ(client->status(in(milliseconds(150))).error().code, ErrorCode::busy); });
  EXPECT_GE(time, milliseconds(150));
  EXPECT_LT(time, seconds(3));
}

TEST_F(ClientTest, TellsARestartedServiceByItsBootIdAndAttachesAgain) {
  std::atomic<bool> restarted{false};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_status(request) || !restarted) return std::nullopt;
    return std::vector<Bytes>{status_reply(request.request, 1, {100, 200})};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  restarted = true;
  const auto status = client->status(in(seconds(10)));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::stale);
  EXPECT_EQ(status.error().reason, "service restarted: attach again");
  // No message is wasted on a service that does not know this client.
  const auto sent = service->seen(wire::RequestBody::Flush).size();
  EXPECT_EQ(client->flush(in(seconds(10))).error().code, ErrorCode::stale);
  EXPECT_EQ(service->seen(wire::RequestBody::Flush).size(), sent);

  service.reset();
  service = serve({}, {.boot = {100, 200}});
  ASSERT_TRUE(client->reattach(in(seconds(10))));
  EXPECT_EQ(client->boot(), (client::Id128{100, 200}));
  EXPECT_EQ(service->seen(wire::RequestBody::Hello).size(), 1U);
  EXPECT_TRUE(service->seen(wire::RequestBody::Bye).empty()) << "the new service has no old client";
}

TEST_F(ClientTest, NoticesAServiceThatRestartedBetweenTwoCalls) {
  auto service = serve({});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  service.reset();
  service = serve({}, {.boot = {100, 200}});
  const auto status = client->status(in(seconds(10)));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::stale);
  ASSERT_TRUE(client->reattach(in(seconds(10))));
  EXPECT_EQ(client->boot(), (client::Id128{100, 200}));
}

TEST_F(ClientTest, DoesNotWaitForAServiceThatIsGone) {
  auto service = serve({});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  service.reset();
  const auto time = time_of([&] {
    EXPECT_EQ(client->status(in(seconds(30))).error().code, ErrorCode::unavailable);
    EXPECT_EQ(client->flush(in(seconds(30))).error().code, ErrorCode::unavailable);
    EXPECT_EQ(client->reattach(in(seconds(30))).error().code, ErrorCode::unavailable);
    EXPECT_EQ(client->status(in(seconds(30))).error().code, ErrorCode::unavailable);
  });
  EXPECT_LT(time, seconds(5));
}

TEST_F(ClientTest, EndsItsAttachmentWhenTheLeaseExpired) {
  std::atomic<bool> expired{false};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_status(request) || !expired) return std::nullopt;
    ReplyParts parts;
    parts.request = request.request;
    parts.code = wire::ErrorCode::stale;
    parts.reason = "the lease expired";
    parts.notices = {{1, 0, wire::Account(), wire::NoticeKind::lease_expired, wire::ErrorCode::ok}};
    return std::vector<Bytes>{reply_frame(parts)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_TRUE(client->held_its_blocks());
  expired = true;
  EXPECT_EQ(client->status(in(seconds(10))).error().code, ErrorCode::stale);
  EXPECT_FALSE(client->held_its_blocks());
  EXPECT_EQ(client->flush(in(seconds(10))).error().code, ErrorCode::stale);
  EXPECT_TRUE(service->seen(wire::RequestBody::Flush).empty());
  ASSERT_TRUE(client->reattach(in(seconds(10))));
  // The old client says that it touches its slots no more; the new one is another.
  const auto byes = service->seen(wire::RequestBody::Bye);
  ASSERT_EQ(byes.size(), 1U);
  EXPECT_EQ(byes[0].client, 1U);
  EXPECT_EQ(service->seen(wire::RequestBody::Hello).back().client, 2U);
}

TEST_F(ClientTest, NeverHangsAtDestruction) {
  auto mute = serve([](const Seen& request) -> Answers {
    if (request.type == wire::RequestBody::Hello) return std::nullopt;
    return std::vector<Bytes>{};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_LT(time_of([&] { client.reset(); }), seconds(3));
  client = attach();
  ASSERT_NE(client, nullptr);
  mute.reset();
  EXPECT_LT(time_of([&] { client.reset(); }), seconds(3));
}

TEST_F(ClientTest, ACallWhoseDeadlinePassedIsNotSent) {
  auto service = serve({});
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->status(in(milliseconds(0))).error().code, ErrorCode::deadline);
  EXPECT_TRUE(service->seen(wire::RequestBody::Status).empty());
}

}  // namespace
}  // namespace kv::test
