// Admission: replies, notices, loads that fail, and calls that go on where one ended.
#include <atomic>

#include <gtest/gtest.h>

#include "tests/plugins/client/client_fixture.h"

namespace kv::test {
namespace {

using client::in;

bool is_admit(const Seen& request) { return request.type == wire::RequestBody::Admit; }

// Without a pool there are no groups, so an admission of blocks has no slots.
Bytes admit_reply(std::uint64_t request, bool ready, std::uint64_t device_tokens) {
  ReplyParts parts;
  parts.request = request;
  parts.body_type = wire::ReplyBody::AdmitReply;
  parts.body = [=](auto& builder) {
    const wire::Account account(40, device_tokens, 0, 0, 0, 40 - device_tokens, 0);
    return wire::CreateAdmitReply(builder, ready, &account, 1, 3).Union();
  };
  return reply_frame(parts);
}

wire::Notice ready_notice(std::uint64_t number, std::uint64_t sequence, wire::ErrorCode code) {
  return {number, sequence, wire::Account(), wire::NoticeKind::sequence_ready, code};
}

Bytes notice_frame(const std::vector<wire::Notice>& notices) {
  ReplyParts parts;
  parts.notices = notices;
  return reply_frame(parts);
}

TEST_F(ClientTest, IsAdmittedAtOnceWhereNothingIsToBeLoaded) {
  auto service = serve([](const Seen& request) -> Answers {
    if (!is_admit(request)) return std::nullopt;
    return std::vector<Bytes>{admit_reply(request.request, true, 16)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto admission = client->admit(SequenceId(9), 20, in(seconds(10)));
  ASSERT_TRUE(admission) << admission.error().reason;
  EXPECT_EQ(admission->account.hits(), 16U);
  EXPECT_EQ(admission->block_count, 3U);
  const auto sent = service->seen(wire::RequestBody::Admit);
  EXPECT_EQ(sent[0].message().body_as_Admit()->sequence(), 9U);
  EXPECT_EQ(sent[0].message().body_as_Admit()->max_new_tokens(), 20U);
}

TEST_F(ClientTest, WaitsForTheNoticeThatTheLoadsAreIn) {
  auto service = serve([](const Seen& request) -> Answers {
    if (!is_admit(request)) return std::nullopt;
    return std::vector<Bytes>{
        admit_reply(request.request, false, 16),
        notice_frame({ready_notice(1, 8, wire::ErrorCode::busy)}),  // another sequence's
        notice_frame(
            {ready_notice(1, 8, wire::ErrorCode::busy), ready_notice(2, 9, wire::ErrorCode::ok)})};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto admission = client->admit(SequenceId(9), 20, in(seconds(10)));
  ASSERT_TRUE(admission) << admission.error().reason;
  EXPECT_EQ(admission->account.hits(), 16U);
  EXPECT_EQ(service->seen(wire::RequestBody::Admit).size(), 1U);
  // The next request tells that the notices arrived.
  (void)client->flush(in(seconds(10)));
  EXPECT_EQ(service->seen(wire::RequestBody::Flush).at(0).notices_acknowledged, 2U);
}

TEST_F(ClientTest, AsksForANoticeThatWasLost) {
  auto service = serve([](const Seen& request) -> Answers {
    if (is_admit(request)) return std::vector<Bytes>{admit_reply(request.request, false, 16)};
    if (request.type != wire::RequestBody::Heartbeat) return std::nullopt;
    ReplyParts parts;
    parts.request = request.request;
    parts.notices = {ready_notice(1, 9, wire::ErrorCode::ok)};
    return std::vector<Bytes>{reply_frame(parts)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_TRUE(client->admit(SequenceId(9), 20, in(seconds(4))));
}

TEST_F(ClientTest, AdmitsAgainWhenALoadFailed) {
  std::atomic<int> count{0};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_admit(request)) return std::nullopt;
    if (++count == 1) {
      return std::vector<Bytes>{admit_reply(request.request, false, 32),
                                notice_frame({ready_notice(1, 9, wire::ErrorCode::busy)})};
    }
    return std::vector<Bytes>{admit_reply(request.request, true, 16)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto admission = client->admit(SequenceId(9), 20, in(seconds(10)));
  ASSERT_TRUE(admission) << admission.error().reason;
  EXPECT_EQ(admission->account.hits(), 16U) << "the failed block is no hit";
  const auto sent = service->seen(wire::RequestBody::Admit);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_NE(sent[0].request, sent[1].request);
}

TEST_F(ClientTest, LeavesTheChoiceToTheCallerWhenThePoolIsExhausted) {
  auto service = serve([](const Seen& request) -> Answers {
    if (!is_admit(request)) return std::nullopt;
    return std::vector<Bytes>{
        error_frame(request.request, wire::ErrorCode::exhausted, "no free slots", 1'000)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->admit(SequenceId(9), 20, in(seconds(10))).error().code, ErrorCode::exhausted);
  EXPECT_EQ(client->admit(SequenceId(9), 20, in(seconds(10))).error().code, ErrorCode::exhausted);
  const auto sent = service->seen(wire::RequestBody::Admit);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_NE(sent[0].request, sent[1].request);
}

TEST_F(ClientTest, GoesOnWithAnAdmissionWhoseReplyCameTooLate) {
  std::atomic<bool> answers{false};
  auto service = serve([&](const Seen& request) -> Answers {
    if (!is_admit(request)) return std::nullopt;
    if (!answers) return std::vector<Bytes>{};
    return std::vector<Bytes>{admit_reply(request.request, true, 16)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->admit(SequenceId(9), 20, in(milliseconds(50))).error().code,
            ErrorCode::deadline);
  answers = true;
  ASSERT_TRUE(client->admit(SequenceId(9), 20, in(seconds(10))));
  // The service admitted it once: a second id would be an admission of an admitted sequence.
  const auto sent = service->seen(wire::RequestBody::Admit);
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].request, sent[1].request);
}

TEST_F(ClientTest, GoesOnWaitingForLoadsThatTookLongerThanItsDeadline) {
  auto service = serve([](const Seen& request) -> Answers {
    if (!is_admit(request)) return std::nullopt;
    return std::vector<Bytes>{admit_reply(request.request, false, 16)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  const auto late = client->admit(SequenceId(9), 20, in(milliseconds(100)));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::deadline);
  service->send(notice_frame({ready_notice(1, 9, wire::ErrorCode::ok)}));
  const auto admission = client->admit(SequenceId(9), 20, in(seconds(10)));
  ASSERT_TRUE(admission) << admission.error().reason;
  EXPECT_EQ(admission->account.hits(), 16U);
  EXPECT_EQ(service->seen(wire::RequestBody::Admit).size(), 1U);
}

TEST_F(ClientTest, RefusesAnAdmissionWithSlotsThatNoPoolHas) {
  auto service = serve([](const Seen& request) -> Answers {
    if (!is_admit(request)) return std::nullopt;
    ReplyParts parts;
    parts.request = request.request;
    parts.body_type = wire::ReplyBody::AdmitReply;
    parts.body = [](auto& builder) {
      const auto slots = builder.CreateVector(std::vector<std::uint32_t>{1, 2, 3});
      return wire::CreateAdmitReply(builder, true, nullptr, 1, 3, slots).Union();
    };
    return std::vector<Bytes>{reply_frame(parts)};
  });
  auto client = attach();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->admit(SequenceId(9), 20, in(seconds(10))).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace kv::test
