// The client library and a service that takes less than the protocol allows: what can be cut is
// cut, the rest is refused before it is sent.
#include <numeric>

#include <gtest/gtest.h>

#include "plugins/client/client.h"
#include "tests/cachesvc/shell/running_service.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"

namespace kv::tests {
namespace {

using std::chrono::seconds;

std::vector<Token> counted(std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), Token{0});
  return tokens;
}

TEST(ClientLimits, MessagesAreCutToWhatTheServiceTakes) {
  constexpr std::uint32_t kPrompt = 30'000;
  constexpr std::uint32_t kNew = 20'000;
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.message_bytes = 64U << 10U;
  options.config.device_bytes = 4U << 20U;
  options.config.sequences = 4'096;
  const RunningService service(options);
  client::Client::Options connect;
  connect.dir = dir.path();
  auto made = client::Client::connect(connect);
  ASSERT_TRUE(made.has_value()) << made.error().reason;
  client::Client& client = **made;
  KvLayout layout;
  layout.groups = {{.layer_count = 2, .kv_head_count = 1, .head_dim_k = 4, .head_dim_v = 4}};
  ASSERT_TRUE(client.attach_pool(layout, client::in(seconds(20))).has_value());

  NamespaceFields fields;
  const std::string salt(kNamespaceFieldBytesMax, 's');  // large fields leave less for tokens
  fields.salt = fields.adapter = fields.weights = salt;
  const auto prompt = counted(kPrompt);
  ASSERT_TRUE(client.open(SequenceId(1), fields, prompt, {}, client::in(seconds(20))).has_value());
  const auto admitted = client.admit(SequenceId(1), kNew, client::in(seconds(20)));
  ASSERT_TRUE(admitted.has_value()) << admitted.error().reason;
  EXPECT_EQ(admitted->account.prompt_tokens, kPrompt);

  client::StepRequest request;
  request.step_seq = 1;
  request.append = {{SequenceId(1), counted(kNew)}};
  for (std::uint64_t id = 0; id < 3'000; ++id) request.free.emplace_back(1'000 + id);
  request.free.emplace_back(1);
  const auto stepped = client.step(request, client::in(seconds(20)));
  ASSERT_TRUE(stepped.has_value()) << stepped.error().reason;
  EXPECT_EQ(stepped->failures.size(), 3'000U);  // nobody opened these
  ASSERT_EQ(stepped->ended.size(), 1U);
  EXPECT_EQ(stepped->ended[0].account.generated_tokens, kNew);

  // A look-up is one message.
  const auto refused = client.lookup(fields, prompt, client::in(seconds(20)));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, kv::ErrorCode::too_large);
  EXPECT_TRUE(client.lookup(fields, counted(9'000), client::in(seconds(20))).has_value());
  TestClient witness(dir.path(), false);
  EXPECT_EQ(witness.counter("oversized_requests"), 0U);
  EXPECT_EQ(witness.counter("malformed_frames"), 0U);
}

TEST(ClientLimits, TheHelloSaysHowLongAMessageMayBe) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.message_bytes = 100'000;
  const RunningService service(options);
  TestClient client(dir.path(), false);
  EXPECT_EQ(client.hello()->body_as_HelloReply()->message_bytes(), 100'000U);
}

}  // namespace
}  // namespace kv::tests
