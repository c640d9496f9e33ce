// Every limit of the shell reached over the real sockets: who goes over it gets an error of the
// closed set, status counts it, and the service goes on.
#include <gtest/gtest.h>

#include "cachesvc/wire/shell_counters.h"
#include "tests/cachesvc/shell/memory_store.h"
#include "tests/cachesvc/shell/pool_client.h"
#include "tests/cachesvc/shell/running_service.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"

namespace kv::shell {
namespace {

using tests::AttachConnection;
using tests::options_in;
using tests::RunningService;
using tests::TempDir;
using tests::TestClient;
using wire::ErrorCode;

constexpr std::uint32_t kTokensPerMessageMax = 65'536;
constexpr std::uint32_t kStepItemsMax = 4'096;

AttachConnection::Reply enter(const std::string& dir) {
  const AttachConnection connection(dir + "/attach.sock");
  return connection.ask(wire::AttachKind::enter);
}

auto make_namespace(flatbuffers::FlatBufferBuilder& builder, std::size_t salt_bytes = 0) {
  const std::vector<std::uint8_t> weights = {'w', '1'};
  const std::vector<std::uint8_t> salt(salt_bytes, 's');
  return wire::CreateNamespaceDirect(builder, &weights, nullptr, nullptr, nullptr, &salt);
}

TEST(Limits, EveryCounterOfTheShellIsThereAtZeroFromTheStart) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient client(dir.path(), false);
  const auto counters = client.counters();
  for (const codec::ShellCounterName& counter : codec::kShellCounterNames) {
    const auto found = counters.find(std::string(counter.name));
    ASSERT_NE(found, counters.end()) << counter.name;
    const bool is_this_client = counter.name == "attached_clients" ||
                                counter.name == "received_requests" ||
                                counter.name == "refused_connections";  // of the whole process
    if (!is_this_client) {
      EXPECT_EQ(found->second, 0U) << counter.name;
    }
  }
  EXPECT_EQ(counters.at("attached_clients"), 1U);
  EXPECT_EQ(counters.at("received_requests"), 1U);
}

TEST(Limits, ClientsOverTheCapacityAreExhausted) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.client_capacity = 3;
  const RunningService service(options);
  TestClient first(dir.path(), false);
  ASSERT_EQ(enter(dir.path()).code, ErrorCode::ok);
  ASSERT_EQ(enter(dir.path()).code, ErrorCode::ok);
  const auto refused = enter(dir.path());
  EXPECT_EQ(refused.code, ErrorCode::exhausted);
  EXPECT_EQ(refused.reason, "as many clients as client.capacity");
  EXPECT_EQ(refused.client, 0U);
  EXPECT_EQ(first.counter("refused_attaches"), 1U);
  EXPECT_EQ(first.counter("refused_attaches_of_user"), 0U);
  EXPECT_EQ(first.counter("attached_clients"), 3U);
}

TEST(Limits, ClientsOfOneUserOverItsPartAreExhausted) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.clients_per_user = 2;
  const RunningService service(options);
  TestClient first(dir.path(), false);
  TestClient second(dir.path(), false);
  const auto refused = enter(dir.path());
  EXPECT_EQ(refused.code, ErrorCode::exhausted);
  EXPECT_EQ(refused.reason, "as many clients of this user as client.per_user");
  EXPECT_EQ(first.counter("refused_attaches_of_user"), 1U);
  EXPECT_EQ(first.counter("refused_attaches"), 0U);
  ASSERT_EQ(second.bye().code(), ErrorCode::ok);
  EXPECT_EQ(enter(dir.path()).code, ErrorCode::ok);  // who said Bye makes room
}

TEST(Limits, ConnectionsToTheAttachSocketThatNeverEnterKeepNobodyOut) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient client(dir.path(), false);
  constexpr std::size_t kIdle = 200;
  std::vector<std::unique_ptr<AttachConnection>> idle;
  while (idle.size() < kIdle) {
    idle.push_back(std::make_unique<AttachConnection>(dir.path() + "/attach.sock"));
    ASSERT_EQ(idle.back()->ask(wire::AttachKind::device_pool).code, ErrorCode::denied);
  }
  EXPECT_EQ(client.counter("refused_attach_connections"), kIdle - 64);
  const auto closed = idle.front()->receive();
  EXPECT_EQ(closed.code, ErrorCode::exhausted);
  EXPECT_EQ(closed.reason, "too many connections that have not entered");
  TestClient late(dir.path(), false);
  EXPECT_EQ(late.hello().code(), ErrorCode::ok);
}

TEST(Limits, ConnectionsOfClientsThatSaidByeKeepNobodyOut) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.client_capacity = 2;
  const RunningService service(options);
  TestClient witness(dir.path(), false);
  std::vector<std::unique_ptr<TestClient>> gone;  // each with its attach connection
  while (gone.size() < 70) {
    gone.push_back(std::make_unique<TestClient>(dir.path(), false));
    ASSERT_EQ(gone.back()->bye().code(), ErrorCode::ok) << gone.size();
  }
  EXPECT_TRUE(tests::eventually([&] { return witness.counter("refused_attach_connections") > 0; }));
  EXPECT_EQ(witness.counter("refused_attach_connections"), 70U - 64U);
  EXPECT_EQ(gone.front()->attach().receive().code, ErrorCode::exhausted);
}

TEST(Limits, AMessageOverTheConfiguredBytesIsTooLargeAndItsClientGoesOn) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.message_bytes = 64U << 10U;
  const RunningService service(options);
  TestClient client(dir.path(), false);
  ASSERT_EQ(client.attach_pool({}).code(), ErrorCode::ok);
  ASSERT_EQ(client.open(1, std::vector<std::uint32_t>(15'000)).code(), ErrorCode::ok);
  const auto refused = client.open(2, std::vector<std::uint32_t>(20'000));
  EXPECT_EQ(refused.code(), ErrorCode::too_large);
  EXPECT_EQ(refused->field()->str(), "frame");
  EXPECT_EQ(client.counter("oversized_requests"), 1U);
  EXPECT_EQ(client.status()->body_as_StatusReply()->sequences(), 1U);
}

TEST(Limits, AMessageOverTheProtocolsBytesEndsItsConnectionAndNoOther) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient good(dir.path(), false);
  TestClient bad(dir.path(), false);
  ASSERT_EQ(bad.hello().code(), ErrorCode::ok);
  bad.send_frames({std::vector<std::uint8_t>((1U << 20U) + 1, 7)});
  ASSERT_EQ(good.hello().code(), ErrorCode::ok);
  EXPECT_EQ(good.counter("malformed_frames"), 0U);  // it never arrived
  // Its next request comes over a connection that ZeroMQ made anew, of the same client.
  TestClient again(dir.path(), bad.ticket());
  again.set_request(10);
  EXPECT_EQ(again.status().code(), ErrorCode::ok);
}

TEST(Limits, SequencesOverTheirNumberAreExhausted) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.sequences = 3;
  const RunningService service(options);
  TestClient client(dir.path(), false);
  ASSERT_EQ(client.attach_pool({}).code(), ErrorCode::ok);
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_EQ(client.open(i, {1}).code(), ErrorCode::ok);
  EXPECT_EQ(client.open(4, {1}).code(), ErrorCode::exhausted);
  EXPECT_EQ(client.counter("refused_sequences"), 1U);
}

TEST(Limits, ALayoutWhoseIndexWouldBeOverItsLimitIsTooLarge) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.index_bytes = 1'000;
  const RunningService service(options);
  TestClient client(dir.path(), false);
  const auto refused = client.attach_pool({});
  EXPECT_EQ(refused.code(), ErrorCode::too_large);
  EXPECT_NE(refused->reason()->str().find("limits.index_bytes"), std::string::npos);
  EXPECT_EQ(client.counter("too_large_requests"), 1U);
}

TEST(Limits, PromptTokensOverThoseOfAClientOrOfAllAreExhausted) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.client_prompt_tokens = 100'000;
  options.config.prompt_tokens = 150'000;
  const RunningService service(options);
  TestClient client(dir.path(), false);
  TestClient other(dir.path(), false);
  const std::vector<std::uint32_t> tokens(50'000, 1);
  ASSERT_EQ(client.attach_pool({}).code(), ErrorCode::ok);
  ASSERT_EQ(other.attach_pool({}).code(), ErrorCode::ok);
  ASSERT_EQ(client.open(1, tokens).code(), ErrorCode::ok);
  ASSERT_EQ(client.open(2, tokens).code(), ErrorCode::ok);
  const auto own = client.open(3, {1});
  EXPECT_EQ(own.code(), ErrorCode::exhausted);
  EXPECT_EQ(own->reason()->str(), "as many prompt tokens as client.prompt_tokens");
  ASSERT_EQ(other.open(1, tokens).code(), ErrorCode::ok);
  const auto all = other.open(2, {1});
  EXPECT_EQ(all.code(), ErrorCode::exhausted);
  EXPECT_EQ(all->reason()->str(), "as many prompt tokens as limits.prompt_tokens");
  EXPECT_EQ(client.counter("refused_prompt_tokens"), 2U);
  ASSERT_EQ(client.bye().code(), ErrorCode::ok);
  EXPECT_EQ(other.open(2, {1}).code(), ErrorCode::ok);
}

// The disk hangs, so that the first requests wait; everything beyond the window is busy at once.
TEST(Limits, TenThousandRequestsOverTheCreditsAreBusy) {
  const TempDir dir;
  tests::Gate gate;
  tests::StoreLog log;
  auto options = options_in(dir.path());
  options.config.credits = 4;
  options.end_time_max = std::chrono::milliseconds(300);
  options.opener = [&](const KvLayout&) -> Result<std::unique_ptr<BlobStore>> {
    return std::unique_ptr<BlobStore>(std::make_unique<tests::MemoryStore>(gate, log));
  };
  struct OpenAtTheEnd {  // before the service is destroyed, which waits for the disk
    explicit OpenAtTheEnd(tests::Gate& closed) : gate(closed) { gate.close(); }
    ~OpenAtTheEnd() { gate.open(); }
    OpenAtTheEnd(const OpenAtTheEnd&) = delete;
    OpenAtTheEnd& operator=(const OpenAtTheEnd&) = delete;
    OpenAtTheEnd(OpenAtTheEnd&&) = delete;
    OpenAtTheEnd& operator=(OpenAtTheEnd&&) = delete;
    tests::Gate& gate;
  };
  RunningService service(options);
  const OpenAtTheEnd opens(gate);
  {
    tests::PoolClient client(dir.path());
    TestClient witness(dir.path(), false);
    ASSERT_TRUE(client.is_ready());
    client.publish(1, 40, 7);
    for (int i = 0; i < 4; ++i) {
      client.client().send(wire::RequestBody::Flush,
                           [](auto& builder) { return wire::CreateFlush(builder).Union(); });
    }
    constexpr int kRequests = 10'000;
    constexpr int kAtOnce = 50;
    int busy = 0;
    for (int sent = 0; sent < kRequests; sent += kAtOnce) {
      for (int i = 0; i < kAtOnce; ++i) client.client().send_status();
      for (int i = 0; i < kAtOnce; ++i) {
        const auto reply = client.client().receive();
        ASSERT_TRUE(reply.has_arrived());
        EXPECT_GT(reply->retry_after_us(), 0U);
        busy += reply.code() == ErrorCode::busy ? 1 : 0;
      }
    }
    EXPECT_EQ(busy, kRequests);
    EXPECT_EQ(witness.counter("busy_requests"), static_cast<std::uint64_t>(kRequests));
  }
  EXPECT_EQ(service.end(), Service::Ended::hung);
}

// What one message may hold: each is refused as a whole, by name.
class MessageLimits : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(client_.attach_pool({}).code(), ErrorCode::ok); }
  void expect_too_large(wire::RequestBody type, const TestClient::Body& body,
                        const std::string& field) {
    const std::uint64_t before = client_.counter("invalid_requests");
    const auto refused = client_.ask(type, body);
    ASSERT_TRUE(refused.has_arrived()) << field;
    EXPECT_EQ(refused.code(), ErrorCode::too_large) << field;
    ASSERT_NE(refused->field(), nullptr) << field;
    EXPECT_EQ(refused->field()->str(), field);
    EXPECT_EQ(client_.counter("invalid_requests"), before + 1);
  }
  TempDir dir_;
  RunningService service_{options_in(dir_.path())};
  TestClient client_{dir_.path(), false};
};

TEST_F(MessageLimits, TokensOfAnOpen) {
  const auto open = [](std::size_t count) {
    return [count](flatbuffers::FlatBufferBuilder& builder) {
      const std::vector<std::uint32_t> tokens(count, 1);
      return wire::CreateOpenDirect(builder, 1, make_namespace(builder), &tokens).Union();
    };
  };
  expect_too_large(wire::RequestBody::Open, open(kTokensPerMessageMax + 1), "tokens");
  EXPECT_EQ(client_.ask(wire::RequestBody::Open, open(kTokensPerMessageMax)).code(), ErrorCode::ok);
}

TEST_F(MessageLimits, TokensOfALookup) {
  const auto lookup = [](std::size_t count) {
    return [count](flatbuffers::FlatBufferBuilder& builder) {
      const std::vector<std::uint32_t> tokens(count, 1);
      return wire::CreateLookupDirect(builder, make_namespace(builder), &tokens).Union();
    };
  };
  expect_too_large(wire::RequestBody::Lookup, lookup(kTokensPerMessageMax + 1), "tokens");
  EXPECT_EQ(client_.ask(wire::RequestBody::Lookup, lookup(kTokensPerMessageMax)).code(),
            ErrorCode::ok);
}

TEST_F(MessageLimits, ItemsAndTokensOfAStep) {
  const auto step = [](std::size_t items, std::size_t tokens) {
    return [items, tokens](flatbuffers::FlatBufferBuilder& builder) {
      const std::vector<wire::StepItem> sent(
          items, wire::StepItem(1, static_cast<std::uint8_t>(wire::StepOp::free), 0, 0, 0));
      const std::vector<std::uint32_t> words(tokens, 1);
      return wire::CreateStepDirect(builder, 1, 0, &sent, &words).Union();
    };
  };
  expect_too_large(wire::RequestBody::Step, step(kStepItemsMax + 1, 0), "items");
  expect_too_large(wire::RequestBody::Step, step(1, kTokensPerMessageMax + 1), "tokens");
  const auto taken =
      client_.ask(wire::RequestBody::Step, step(kStepItemsMax, kTokensPerMessageMax));
  ASSERT_EQ(taken.code(), ErrorCode::ok);  // with a failure for each item: no such sequence
  EXPECT_EQ(taken->body_as_StepReply()->failures()->size(), kStepItemsMax);
}

TEST_F(MessageLimits, NodesOfATree) {
  const auto tree = [](std::uint32_t nodes) {
    return [nodes](flatbuffers::FlatBufferBuilder& builder) {
      return wire::CreateTree(builder, nodes).Union();
    };
  };
  expect_too_large(wire::RequestBody::Tree, tree(1'001), "node_limit");
  EXPECT_EQ(client_.ask(wire::RequestBody::Tree, tree(1'000)).code(), ErrorCode::ok);
}

TEST_F(MessageLimits, BytesOfANameAndOfAField) {
  const auto hello = [](std::size_t bytes) {
    return [bytes](flatbuffers::FlatBufferBuilder& builder) {
      return wire::CreateHelloDirect(builder, 1, std::string(bytes, 'n').c_str()).Union();
    };
  };
  expect_too_large(wire::RequestBody::Hello, hello(129), "name");
  EXPECT_EQ(client_.ask(wire::RequestBody::Hello, hello(128)).code(), ErrorCode::ok);
  const auto open = [](std::size_t salt_bytes) {
    return [salt_bytes](flatbuffers::FlatBufferBuilder& builder) {
      return wire::CreateOpenDirect(builder, 1, make_namespace(builder, salt_bytes)).Union();
    };
  };
  expect_too_large(wire::RequestBody::Open, open(4'097), "salt");
  EXPECT_EQ(client_.ask(wire::RequestBody::Open, open(4'096)).code(), ErrorCode::ok);
}

TEST_F(MessageLimits, GroupsOfALayout) {
  expect_too_large(
      wire::RequestBody::AttachPool,
      [](flatbuffers::FlatBufferBuilder& builder) {
        const std::vector<wire::LayerGroup> groups(9, wire::LayerGroup(0, 0, 0, 1, 1, 4, 4, 0, 0));
        const auto layout = wire::CreateLayoutDirect(builder, 16, &groups);
        return wire::CreateAttachPool(builder, layout).Union();
      },
      "groups");
}

}  // namespace
}  // namespace kv::shell
