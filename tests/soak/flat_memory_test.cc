// A service that is used for long: what was taken comes back, and its memory stays flat.
#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cachesvc/shell/pool_client.h"
#include "tests/cachesvc/shell/test_client.h"
#include "tests/soak/service_process.h"

namespace kv::tests {
namespace {

constexpr std::uint64_t kGrowthMax = 8U << 20U;

// Counts of what must come back, as one text.
std::string holdings(TestClient& client) {
  const auto reply = client.status();
  if (!reply.has_arrived() || reply->body_as_StatusReply() == nullptr) return "no status";
  const auto* status = reply->body_as_StatusReply();
  std::string text = "clients " + std::to_string(status->clients()) + " sequences " +
                     std::to_string(status->sequences()) + " transfers " +
                     std::to_string(status->transfers_in_flight()) + " blocks " +
                     std::to_string(status->tree_blocks()) + " namespaces " +
                     std::to_string(status->namespaces()) + " metadata " +
                     std::to_string(status->metadata_bytes());
  for (const wire::TierStatus* tier : *status->tiers()) {
    text += " / " + std::to_string(tier->free()) + " " + std::to_string(tier->held()) + " " +
            std::to_string(tier->cached()) + " " + std::to_string(tier->fenced()) + " " +
            std::to_string(tier->arriving());
  }
  return text;
}

// Opens, admits and frees sequences of 3 tokens, many requests at a time; nothing is cacheable.
class ShortRequests {
 public:
  explicit ShortRequests(TestClient& client) : client_(client) {}

  void run(std::uint64_t sequence_count) {
    while (sequence_count > 0) {
      const std::uint64_t batch = std::min<std::uint64_t>(sequence_count, kBatch);
      std::uint64_t waiting = 0;
      for (std::uint64_t i = 0; i < batch; ++i) waiting += send_one();
      for (; waiting > 0; --waiting) {
        const auto reply = client_.receive();
        ASSERT_TRUE(reply.has_arrived());
        ASSERT_EQ(reply.code(), wire::ErrorCode::ok) << reply->reason()->str();
      }
      sequence_count -= batch;
      done_ += 3 * batch;
    }
  }
  [[nodiscard]] std::uint64_t done() const { return done_; }

 private:
  static constexpr std::uint64_t kBatch = 20;  // 60 requests: within the credits

  std::uint64_t send_one() {
    const std::uint64_t sequence = ++sequence_;
    client_.send(wire::RequestBody::Open, [&](auto& builder) {
      const std::vector<std::uint8_t> weights = {'w'};
      const std::vector<std::uint32_t> tokens = {1, 2, static_cast<std::uint32_t>(sequence)};
      const auto fields = wire::CreateNamespaceDirect(builder, &weights);
      return wire::CreateOpenDirect(builder, sequence, fields, &tokens).Union();
    });
    client_.send(wire::RequestBody::Admit,
                 [&](auto& builder) { return wire::CreateAdmit(builder, sequence, 0).Union(); });
    client_.send(wire::RequestBody::Step, [&](auto& builder) {
      const std::vector<wire::StepItem> items = {
          wire::StepItem(sequence, static_cast<std::uint8_t>(wire::StepOp::free), 0, 0, 0)};
      return wire::CreateStepDirect(builder, sequence, sequence, &items).Union();
    });
    return 3;
  }

  TestClient& client_;
  std::uint64_t sequence_ = 0;
  std::uint64_t done_ = 0;
};

// The first pool's attach has it opened, in its own time; a flush waits for that.
bool disk_is_open(TestClient& client) { return client.flush().code() == wire::ErrorCode::ok; }

// SCENARIOS LEAK-23
TEST(FlatMemory, OverAHundredThousandRequests) {
  ServiceProcess service;
  ASSERT_TRUE(service.is_ready()) << service.errors();
  PoolClient owner(service.dir());
  ASSERT_TRUE(owner.is_ready());
  ShortRequests requests(owner.client());
  requests.run(1'000);  // the allocator's caches, the reply ring
  ASSERT_TRUE(disk_is_open(owner.client()));
  const std::string before = holdings(owner.client());
  const std::uint64_t resident = service.resident_bytes();
  const std::size_t descriptors = service.descriptors();
  const std::uint64_t count = count_or("KV_SOAK_REQUESTS", 100'000);
  requests.run(count / 3 + 1);
  EXPECT_GE(requests.done(), count);
  EXPECT_EQ(holdings(owner.client()), before);
  EXPECT_TRUE(eventually([&] { return service.descriptors() <= descriptors; }));
  EXPECT_LT(service.resident_bytes(), resident + kGrowthMax);
  RecordProperty("growth_bytes", std::to_string(service.resident_bytes() - resident));
  EXPECT_EQ(service.end(), 0) << service.errors();
}

TEST(FlatMemory, OverTenThousandFailedRequests) {
  ServiceProcess service;
  ASSERT_TRUE(service.is_ready()) << service.errors();
  PoolClient owner(service.dir());
  ASSERT_TRUE(owner.is_ready());
  TestClient& client = owner.client();
  const auto fail = [&](std::uint64_t count) {
    std::uint64_t failed = 0;
    for (std::uint64_t sent = 0; sent < count;) {
      std::uint64_t waiting = 0;
      for (std::uint64_t i = 0; i < 10; ++i, ++waiting) {
        client.send(wire::RequestBody::Admit, [&](auto& builder) {  // unknown
          return wire::CreateAdmit(builder, 5'000 + i, 0).Union();
        });
      }
      for (std::uint64_t i = 0; i < 10; ++i, ++waiting) {
        client.send(wire::RequestBody::Tree, [](auto& builder) {  // over its limit
          return wire::CreateTree(builder, 5'000).Union();
        });
      }
      for (std::uint64_t i = 0; i < 10; ++i, ++waiting) {
        client.send(wire::RequestBody::Step, [](auto& builder) {  // step_seq does not rise
          return wire::CreateStep(builder, 0, 0).Union();
        });
      }
      sent += waiting;
      for (; waiting > 0; --waiting) {
        const auto reply = client.receive();
        if (!reply.has_arrived()) return failed;
        failed += reply.code() == wire::ErrorCode::ok ? 0 : 1;
      }
    }
    return failed;
  };
  ASSERT_EQ(fail(3'000), 3'000U);
  const std::string before = holdings(client);
  const std::uint64_t resident = service.resident_bytes();
  const std::uint64_t count = count_or("KV_SOAK_FAILURES", 10'000) / 30 * 30 + 30;
  EXPECT_EQ(fail(count), count);
  EXPECT_EQ(holdings(client), before);
  EXPECT_LT(service.resident_bytes(), resident + kGrowthMax);
  EXPECT_EQ(service.end(), 0) << service.errors();
}

TEST(FlatMemory, OverAThousandClientLives) {
  ServiceProcess service;
  ASSERT_TRUE(service.is_ready()) << service.errors();
  PoolClient witness(service.dir());
  ASSERT_TRUE(witness.is_ready());
  ASSERT_TRUE(disk_is_open(witness.client()));
  const auto live = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      TestClient client(service.dir(), false);
      ASSERT_EQ(client.hello().code(), wire::ErrorCode::ok);
      ASSERT_EQ(client.attach_pool({}).code(), wire::ErrorCode::ok);
      ASSERT_EQ(client.open(1, {1, 2, 3}).code(), wire::ErrorCode::ok);
      ASSERT_EQ(client.admit(1, 20).code(), wire::ErrorCode::ok);
      ASSERT_EQ(client.bye().code(), wire::ErrorCode::ok);  // with a sequence that is not freed
    }
  };
  live(50);
  const std::string before = holdings(witness.client());
  const std::uint64_t resident = service.resident_bytes();
  const std::size_t descriptors = service.descriptors();
  live(count_or("KV_SOAK_LIVES", 1'000));
  EXPECT_TRUE(eventually([&] { return holdings(witness.client()) == before; }))
      << before << "\n"
      << holdings(witness.client());
  // ZeroMQ closes the connections of the last ones in its own time.
  EXPECT_TRUE(eventually([&] { return service.descriptors() <= descriptors; }));
  EXPECT_LT(service.resident_bytes(), resident + kGrowthMax);
  EXPECT_EQ(service.end(), 0) << service.errors();
}

// The process of them all lives on, and none of them says Bye.
TEST(FlatMemory, OverAThousandClientsWhoseLeaseEnds) {
  ServiceProcess service({"client.lease=2s"});
  ASSERT_TRUE(service.is_ready()) << service.errors();
  PoolClient witness(service.dir());
  ASSERT_TRUE(witness.is_ready());
  ASSERT_TRUE(disk_is_open(witness.client()));
  std::uint64_t expired = 0;
  const auto live = [&](std::uint64_t count) {
    std::vector<std::unique_ptr<AttachConnection>> silent;
    for (std::uint64_t i = 0; i < count; ++i) {
      silent.push_back(std::make_unique<AttachConnection>(service.dir() + "/attach.sock"));
      ASSERT_EQ(silent.back()->ask(wire::AttachKind::enter).code, wire::ErrorCode::ok) << i;
      if (i % 64 != 0) continue;
      ASSERT_EQ(witness.client().status().code(), wire::ErrorCode::ok);
    }
    expired += count;
    ASSERT_TRUE(eventually([&] { return witness.client().counter("expired_clients") == expired; }));
    for (const auto& connection : silent) ASSERT_FALSE(connection->receive().has_arrived);
  };
  constexpr std::uint64_t kAtOnce = 500;  // client.per_user is 512
  live(kAtOnce);
  const std::string before = holdings(witness.client());
  const std::uint64_t resident = service.resident_bytes();
  const std::size_t descriptors = service.descriptors();
  for (std::uint64_t left = count_or("KV_SOAK_SILENT", 1'000); left > 0;) {
    const std::uint64_t count = std::min(left, kAtOnce);
    live(count);
    left -= count;
  }
  EXPECT_EQ(holdings(witness.client()), before);
  EXPECT_TRUE(eventually([&] { return service.descriptors() <= descriptors; }))
      << service.descriptors() << " after " << descriptors;
  EXPECT_LT(service.resident_bytes(), resident + kGrowthMax);
  EXPECT_EQ(service.end(), 0) << service.errors();
}

// Attaches, stores one block, begins another sequence and is killed. Exit code: what went wrong.
[[noreturn]] void store_and_die(const std::string& dir) {
  PoolClient client(dir);
  if (!client.is_ready()) _exit(3);
  client.publish(1, 17, 7);
  if (client.client().open(2, {1, 2, 3}).code() != wire::ErrorCode::ok) _exit(4);
  if (client.client().admit(2, 50).code() != wire::ErrorCode::ok) _exit(5);
  (void)raise(SIGKILL);
  _exit(6);
}

// SCENARIOS REC-11
TEST(FlatMemory, AHundredKilledClientsLeaveNothingButTheirBlock) {
  ServiceProcess service;
  ASSERT_TRUE(service.is_ready()) << service.errors();
  const std::size_t descriptors = service.descriptors();
  const std::uint64_t count = count_or("KV_SOAK_KILLED", 100);
  for (std::uint64_t i = 0; i < count; ++i) {
    const pid_t child = fork();  // this process has no thread yet
    if (child == 0) store_and_die(service.dir());
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  }
  {
    TestClient witness(service.dir(), false);
    ASSERT_TRUE(eventually([&] { return witness.counter("gone_clients") == count; }));
    const auto reply = witness.status();
    const auto* status = reply->body_as_StatusReply();
    EXPECT_EQ(status->clients(), 1U);
    EXPECT_EQ(status->sequences(), 0U);
    EXPECT_EQ(status->tree_blocks(), 1U);  // the same content each time
    EXPECT_EQ(status->tiers()->Get(0)->held(), 0U);
    EXPECT_EQ(status->tiers()->Get(0)->fenced(), 0U);
    EXPECT_EQ(status->tiers()->Get(0)->cached() + status->tiers()->Get(0)->free(),
              status->tiers()->Get(0)->slots());
    EXPECT_EQ(witness.bye().code(), wire::ErrorCode::ok);
  }
  // Eight or so for the disk store, which the first pool opened.
  EXPECT_TRUE(eventually([&] { return service.descriptors() < descriptors + 30; }))
      << service.descriptors() << " after " << descriptors;
  EXPECT_EQ(service.end(), 0) << service.errors();
}

}  // namespace
}  // namespace kv::tests
