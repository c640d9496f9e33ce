// What programs say when the service was lost: where it was, and how to go on.
#include "plugins/client/loss.h"

#include <gtest/gtest.h>

#include "plugins/client/client.h"
#include "tests/plugins/client/temporary_dir.h"

namespace kv::client {
namespace {

std::string said(const Error& error, const std::string& endpoint = {}) {
  const auto text = loss_text(error, endpoint.empty() ? "/d" : "", endpoint);
  return text ? text->what + "; " + text->remedy : "no loss";
}

TEST(Loss, OfAServiceThatIsNotThereSaysHowToStartIt) {
  const test::TemporaryDir dir;
  Client::Options options;
  options.dir = dir.path();
  const auto refused = Client::connect(options);
  ASSERT_FALSE(refused);
  const auto text = loss_text(refused.error(), dir.path(), {}).value_or(LossText());
  EXPECT_EQ(text.what, "no service answers on ipc://" + dir.path() + "/service.sock");
  EXPECT_EQ(text.remedy, "start one: cachesvc serve --dir " + dir.path());
  EXPECT_EQ(said(refused.error(), "ipc:///e/x.sock"),
            "no service answers on ipc:///e/x.sock; start one: cachesvc serve --endpoint "
            "ipc:///e/x.sock");
}

TEST(Loss, OfAServiceThatEndedOrRestartedIsOneSentenceWithoutTheLibrarysWords) {
  const std::string ended =
      "the service on ipc:///d/service.sock ended meanwhile; start it (cachesvc serve --dir /d) "
      "and run this again";
  EXPECT_EQ(
      said({ErrorCode::unavailable, "the service closed the attach socket: attach again", {}}),
      ended);
  EXPECT_EQ(said({ErrorCode::unavailable, "the service is gone: attach again once it runs", {}}),
            ended);
  EXPECT_EQ(said({ErrorCode::stale, "service restarted: attach again", {}}),
            "the service on ipc:///d/service.sock restarted meanwhile; run this again");
  for (const char* reason : {"the lease expired: attach again", "unknown client: attach again"}) {
    EXPECT_EQ(said({ErrorCode::stale, reason, "client"}),
              "the service on ipc:///d/service.sock gave this client up, as after a pause longer "
              "than client.lease; run this again");
  }
}

TEST(Loss, IsNotWhatARunningServiceRefuses) {
  EXPECT_EQ(said({ErrorCode::stale, "the namespace has a newer epoch already", "epoch"}),
            "no loss");
  EXPECT_EQ(said({ErrorCode::unavailable, "no pool is attached yet", {}}), "no loss");
  EXPECT_EQ(said({ErrorCode::exhausted, "as many clients as client.capacity", {}}), "no loss");
}

TEST(LimitKey, IsTheFieldOrTheLastWordOfARefusal) {
  EXPECT_EQ(limit_key({ErrorCode::exhausted, "as many clients as client.capacity", {}}),
            "client.capacity");
  EXPECT_EQ(limit_key({ErrorCode::exhausted, "too many", "client.prompt_tokens"}),
            "client.prompt_tokens");
  EXPECT_EQ(limit_key({ErrorCode::exhausted, "no slot is free", {}}), "");
  EXPECT_EQ(limit_key({ErrorCode::mismatch, "not client.capacity", {}}), "");
}

}  // namespace
}  // namespace kv::client
