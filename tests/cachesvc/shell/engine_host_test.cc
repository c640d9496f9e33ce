// EngineHost between real sockets and a store in memory: what it counts, and what the Engine never
// sees.
#include "cachesvc/shell/engine_host.h"

#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>

#include "cachesvc/shell/kernel_sources.h"
#include "tests/cachesvc/shell/memory_store.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"

namespace kv::shell {
namespace {

using tests::TestClient;
using wire::ErrorCode;

class EngineHostTest : public testing::Test {
 protected:
  void SetUp() override {
    auto memory = BlockMemory::make(65'536, 131'072);
    auto completions = CompletionQueue::make();
    auto router = RouterSocket::bind(
        {.endpoint = "ipc://" + dir_.path() + "/service.sock", .message_bytes_max = 1U << 20U});
    ASSERT_TRUE(memory.has_value() && completions.has_value() && router.has_value());
    memory_ = std::make_unique<BlockMemory>(*std::move(memory));
    completions_ = *std::move(completions);
    router_ = *std::move(router);
    copies_ = std::make_unique<CopyWorkers>(1, *memory_, *completions_);
    disk_ = std::make_unique<DiskWorker>(
        [this](const KvLayout&) -> Result<std::unique_ptr<BlobStore>> {
          if (disk_fails_) return Error{kv::ErrorCode::corrupt, "broken", {}};
          return std::unique_ptr<BlobStore>(
              std::make_unique<tests::MemoryStore>(gate_, store_log_));
        },
        *memory_, *completions_);
    EngineHost::Options options;
    options.engine.tier_bytes = {65'536, 131'072, 1U << 20U, 0};
    options.engine.client_capacity = 8;
    options.engine.lease = lease_;
    options.boot = {1, 2};
    options.own_client = ClientId(1);
    const EngineHost::Parts parts{loop_,         log_,     *router_, clients_, *memory_,
                                  *completions_, *copies_, *disk_,   counters_};
    host_ = std::make_unique<EngineHost>(parts, options);
  }
  void start() {
    auto requests = loop_.when_readable(router_->descriptor(), [this] { host_->turn(); });
    auto done = loop_.when_readable(completions_->descriptor(), [this] { host_->turn(); });
    ASSERT_TRUE(requests.has_value() && done.has_value());
    requests_watch_ = *std::move(requests);
    done_watch_ = *std::move(done);
    tick_watch_ = loop_.every(std::chrono::milliseconds(20), [this] { host_->tick(); });
    thread_ = std::thread([this] { loop_.run(); });
  }
  // The loop's thread is over; counters can be read.
  const codec::ShellCounters& stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    return counters_;
  }
  void TearDown() override { (void)stop(); }

  // As the attach server does, before start().
  tests::AttachConnection::Reply take_in(core::ClientRole role) {
    ClientRegistry::Client client;
    client.secret = {7, 8};
    client.role = role;
    client.tenant = "uid:0";
    const ClientId id = clients_.add(std::move(client)).value();
    host_->attach(id, *clients_.find(id));
    tests::AttachConnection::Reply ticket;
    ticket.client = id.value;
    ticket.secret_a = 7;
    ticket.secret_b = 8;
    return ticket;
  }

  tests::TempDir dir_;
  Logger log_{"off"};
  tests::Gate gate_;
  tests::StoreLog store_log_;
  bool disk_fails_ = false;
  Duration lease_ = std::chrono::seconds(10);
  EventLoop loop_;
  ClientRegistry clients_{8, 8, ClientId(100)};
  codec::ShellCounters counters_;
  std::unique_ptr<BlockMemory> memory_;
  std::unique_ptr<CompletionQueue> completions_;
  std::unique_ptr<RouterSocket> router_;
  std::unique_ptr<CopyWorkers> copies_;
  std::unique_ptr<DiskWorker> disk_;
  std::unique_ptr<EngineHost> host_;
  EventLoop::Watch requests_watch_, done_watch_, tick_watch_;
  std::thread thread_;
};

TEST_F(EngineHostTest, CountsWhatItRefusesAndTheEngineSeesOnlyTheRest) {
  auto ticket = take_in(core::ClientRole::runner);
  start();
  {
    TestClient client(dir_.path(), ticket);
    ASSERT_EQ(client.hello().code(), ErrorCode::ok);                                // request
    ASSERT_EQ(client.attach_pool({.block_tokens = 3}).code(), ErrorCode::invalid);  // refused
    client.send_frames({{1, 2, 3}});  // malformed: no request
    client.send_frames({{1}, {2}});   // malformed: two frames
    auto wrong = ticket;
    wrong.secret_a = 9;
    TestClient liar(dir_.path(), wrong);
    ASSERT_EQ(liar.status().code(), ErrorCode::denied);  // denied
    wrong.client = 5;
    TestClient stranger(dir_.path(), wrong);
    ASSERT_EQ(stranger.status().code(), ErrorCode::stale);  // denied
    ASSERT_EQ(client.status().code(), ErrorCode::ok);       // request
  }
  const codec::ShellCounters& counters = stop();
  EXPECT_EQ(counters.received_requests, 2U);
  EXPECT_EQ(counters.invalid_requests, 1U);
  EXPECT_EQ(counters.malformed_frames, 2U);
  EXPECT_EQ(counters.denied_requests, 2U);
  EXPECT_EQ(counters.unsent_replies + counters.unread_replies, 0U);
  EXPECT_EQ(host_->status().clients, 1U);
}

TEST_F(EngineHostTest, ManyRequestsAtOnceAreAllAnsweredAcrossTurns) {
  std::vector<tests::AttachConnection::Reply> tickets;
  tickets.reserve(8);
  for (int i = 0; i < 8; ++i) tickets.push_back(take_in(core::ClientRole::observer));
  {
    // All wait in the socket's queues before the first turn: 8 x 40 > kRequestsPerTurn.
    std::vector<std::unique_ptr<TestClient>> clients;
    for (const auto& ticket : tickets) {
      clients.push_back(std::make_unique<TestClient>(dir_.path(), ticket));
      for (int i = 0; i < 40; ++i) clients.back()->send_status();
    }
    start();
    for (const auto& client : clients) {
      for (std::uint64_t i = 1; i <= 40; ++i) {
        const auto reply = client->receive();
        ASSERT_TRUE(reply.has_arrived());
        ASSERT_EQ(reply->request(), i);
        ASSERT_EQ(reply.code(), ErrorCode::ok);
      }
    }
  }
  EXPECT_EQ(stop().received_requests, 320U);
}

TEST_F(EngineHostTest, AfterStopReceivingNoRequestIsAnswered) {
  const auto ticket = take_in(core::ClientRole::runner);
  host_->stop_receiving();
  start();
  TestClient client(dir_.path(), ticket);
  client.send_status();
  EXPECT_FALSE(client.receive(std::chrono::milliseconds(100)).has_arrived());
  EXPECT_EQ(stop().received_requests, 0U);
}

TEST_F(EngineHostTest, AFlushOfNothingIsDoneAtOnceAndOnlyOnce) {
  int calls = 0;
  host_->flush([&](const core::Reply& reply) {
    ++calls;
    EXPECT_EQ(reply.error.code, kv::ErrorCode::ok);
  });
  for (int i = 0; i < 5; ++i) host_->tick();
  EXPECT_EQ(calls, 1);
}

TEST_F(EngineHostTest, ALayoutOnTheDiskDefinesTheFormatAndAnEmptyIndexEndsTheRecovery) {
  KvLayout layout;
  layout.groups = {{.layer_count = 2, .kv_head_count = 1, .head_dim_k = 4, .head_dim_v = 4}};
  host_->recover(layout);
  EXPECT_EQ(host_->status().block_tokens, 16U);
  EXPECT_TRUE(host_->status().recovering);
  EXPECT_TRUE(tests::eventually([&] {
    host_->turn();
    return !host_->status().recovering;
  }));
  EXPECT_EQ(counters_.disk_failures, 0U);
}

TEST_F(EngineHostTest, ADiskThatFailsAfterItsLayoutWasReadEndsTheRecoveryAndIsCounted) {
  disk_fails_ = true;
  KvLayout layout;
  layout.groups = {{.layer_count = 2, .kv_head_count = 1, .head_dim_k = 4, .head_dim_v = 4}};
  host_->recover(layout);
  EXPECT_TRUE(tests::eventually([&] {
    host_->turn();
    return !host_->status().recovering;
  }));
  EXPECT_EQ(counters_.disk_failures, 1U);
}

TEST_F(EngineHostTest, ALayoutWhoseBlockDoesNotFitIsCountedAndNotOpened) {
  KvLayout layout;
  layout.groups = {{.layer_count = 32, .kv_head_count = 8, .head_dim_k = 128, .head_dim_v = 128}};
  host_->recover(layout);
  EXPECT_EQ(counters_.disk_failures, 1U);
  EXPECT_EQ(host_->status().block_tokens, 0U);
  EXPECT_FALSE(host_->status().recovering);
}

class PausedHost : public EngineHostTest {
 protected:
  PausedHost() { lease_ = std::chrono::milliseconds(500); }
};

// Nothing is sent at all, so that no request that waited can hide it.
TEST_F(PausedHost, TellsTheEngineSoThatNobodysLeaseEndsMeanwhile) {
  (void)take_in(core::ClientRole::runner);
  host_->tick();
  (void)poll(nullptr, 0, 1'500);  // the pause: three leases without a tick
  host_->tick();
  EXPECT_EQ(host_->status().counters.expired_clients, 0U);
  EXPECT_TRUE(tests::eventually([&] {
    host_->tick();
    return host_->status().counters.expired_clients == 1;
  })) << "who is silent afterwards is found out";
}

}  // namespace
}  // namespace kv::shell
