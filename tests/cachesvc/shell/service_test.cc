// The whole service over its real sockets, in process: a thread runs it, clients are made by hand.
#include "cachesvc/shell/service.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "allocator/base/prng.h"
#include "cachesvc/shell/unix_address.h"
#include "tests/cachesvc/shell/flip_a_byte.h"
#include "tests/cachesvc/shell/memory_store.h"
#include "tests/cachesvc/shell/pool_client.h"
#include "tests/cachesvc/shell/running_service.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"

namespace kv::shell {
namespace {

using tests::eventually;
using tests::options_in;
using tests::PoolClient;
using tests::RunningService;
using tests::TempDir;
using tests::TestClient;
using tests::TestLayout;
using wire::ErrorCode;

TEST(Service, AttachHelloAndStatusOverRealSockets) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient client(dir.path(), false);
  ASSERT_TRUE(client.is_attached());
  const auto hello = client.hello();
  ASSERT_EQ(hello.code(), ErrorCode::ok);
  EXPECT_EQ(hello->body_as_HelloReply()->lease_ms(), 10'000U);
  EXPECT_EQ(hello->body_as_HelloReply()->credits(), 64U);
  EXPECT_EQ(hello->boot()->a(), client.ticket().boot_a);
  EXPECT_EQ(hello->boot()->b(), client.ticket().boot_b);
  const auto status = client.status();
  ASSERT_EQ(status.code(), ErrorCode::ok);
  EXPECT_EQ(status->body_as_StatusReply()->clients(), 1U);
  EXPECT_EQ(status->body_as_StatusReply()->block_tokens(), 0U);  // no pool yet
}

TEST(Service, ThePoolIsTheOneThatTheServiceCopiesFrom) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  EXPECT_EQ(client.slot_bytes(), TestLayout().block_bytes());
  EXPECT_EQ(client.slot_count(), 64U);
  client.publish(1, 40, 7);  // 2 full blocks and a partial one
  EXPECT_TRUE(eventually([&] { return client.counter("saved_blocks.disk") == 2; }));
  EXPECT_EQ(client.counter("saved_blocks.host"), 2U);

  const auto demoted = client.demote(wire::Tier::device);
  ASSERT_EQ(demoted.code(), ErrorCode::ok);
  EXPECT_EQ(demoted->body_as_DemoteReply()->dropped_blocks(), 2U);
  client.wipe_device();
  const auto hit = client.admit_again(2, 40);
  EXPECT_EQ(hit.device_tokens, 0U);
  EXPECT_EQ(hit.host_tokens, 32U);
  EXPECT_TRUE(client.holds(hit.slots[0], 7));
  EXPECT_TRUE(client.holds(hit.slots[1], 8));
}

TEST(Service, TheWrongSecretIsDeniedAndAnUnknownClientIsStale) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient good(dir.path(), false);
  ASSERT_EQ(good.hello().code(), ErrorCode::ok);
  auto ticket = good.ticket();
  ticket.secret_b ^= 1U;
  TestClient liar(dir.path(), ticket);
  liar.set_request(10);
  EXPECT_EQ(liar.bye().code(), ErrorCode::denied);
  ticket = good.ticket();
  ticket.client += 1;
  TestClient stranger(dir.path(), ticket);
  const auto refused = stranger.status();
  EXPECT_EQ(refused.code(), ErrorCode::stale);
  EXPECT_EQ(refused->boot()->a(), good.ticket().boot_a);
  // The core saw neither: the client is there, and its replies still go to it.
  const auto status = good.status();
  ASSERT_EQ(status.code(), ErrorCode::ok);
  EXPECT_EQ(status->body_as_StatusReply()->clients(), 1U);
  EXPECT_EQ(good.counter("stale_requests"), 0U);
}

TEST(Service, TheNewestIdentityGetsTheReplies) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient first(dir.path(), false);
  ASSERT_EQ(first.hello().code(), ErrorCode::ok);
  TestClient second(dir.path(), first.ticket());
  second.set_request(1);
  EXPECT_EQ(second.status().code(), ErrorCode::ok);
  EXPECT_FALSE(first.receive(std::chrono::milliseconds(0)).has_arrived());
  first.set_request(2);
  EXPECT_EQ(first.status().code(), ErrorCode::ok);
}

TEST(Service, TheSameRequestAgainGetsTheSameReplyAndHasNoSecondEffect) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  client.client().set_request(50);
  const auto first = client.client().open(9, {1, 2, 3});
  ASSERT_EQ(first.code(), ErrorCode::ok);
  client.client().set_request(50);
  const auto again = client.client().open(9, {1, 2, 3});
  EXPECT_EQ(again.code(), ErrorCode::ok);  // not `exists`
  EXPECT_EQ(again.bytes, first.bytes);
  EXPECT_EQ(client.counter("repeated_requests"), 1U);
}

TEST(Service, ASenselessBodyGetsAnErrorReply) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient client(dir.path(), false);
  ASSERT_EQ(client.hello().code(), ErrorCode::ok);
  const auto refused = client.attach_pool({.block_tokens = 17});
  EXPECT_EQ(refused.code(), ErrorCode::invalid);
  EXPECT_EQ(refused->field()->str(), "block_tokens");
  EXPECT_EQ(client.status().code(), ErrorCode::ok);
}

TEST(Service, GarbageFramesAreDroppedAndTheServiceGoesOn) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient client(dir.path(), false);
  Prng prng(11);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::vector<std::uint8_t>> frames(1 + prng.below(3));
    for (auto& frame : frames) {
      frame.resize(prng.below(400));
      for (std::uint8_t& byte : frame) byte = static_cast<std::uint8_t>(prng.next());
    }
    client.send_frames(frames);
  }
  EXPECT_EQ(client.hello().code(), ErrorCode::ok);
}

// Without any handshake of ZeroMQ.
TEST(Service, RawBytesOnTheRequestSocketDoNoHarm) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  Prng prng(12);
  const sockaddr_un address = unix_address(dir.path() + "/service.sock");
  for (int i = 0; i < 200; ++i) {
    const FileDescriptor raw(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(raw.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    std::vector<std::uint8_t> bytes(prng.below(200));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(prng.next());
    // ZMTP 1.0: an empty identity and a frame of 3 bytes.
    if (i % 2 == 0) bytes = {1, 0, 4, 0, 'a', 'b', 'c'};
    (void)send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  TestClient client(dir.path(), false);
  EXPECT_EQ(client.hello().code(), ErrorCode::ok);
}

TEST(Service, TwoDirectoriesRunTwoServices) {
  const TempDir one, two;
  const RunningService first(options_in(one.path()));
  const RunningService second(options_in(two.path()));
  TestClient a(one.path(), false);
  TestClient b(two.path(), false);
  EXPECT_EQ(a.hello().code(), ErrorCode::ok);
  EXPECT_EQ(b.hello().code(), ErrorCode::ok);
  EXPECT_NE(a.ticket().boot_a, b.ticket().boot_a);
  TestClient lost(two.path(), a.ticket());
  lost.set_request(1);
  EXPECT_EQ(lost.status().code(), ErrorCode::stale);
}

TEST(Service, ASecondStartOnTheSameDirectoryIsRefusedAndTheFirstGoesOn) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  const auto second = Service::make(options_in(dir.path()));
  ASSERT_TRUE(std::holds_alternative<StartProblem>(second));
  EXPECT_EQ(std::get<StartProblem>(second).message,
            "address in use: another service runs on " + dir.path());
  TestClient client(dir.path(), false);
  EXPECT_EQ(client.hello().code(), ErrorCode::ok);
}

TEST(Service, AClosedAttachConnectionChangesNothing) {
  const TempDir dir;
  const RunningService service(options_in(dir.path()));
  TestClient client(dir.path(), false);
  ASSERT_EQ(client.hello().code(), ErrorCode::ok);
  client.close_attach();
  TestClient other(dir.path(), false);  // its answer shows that the loop went on
  ASSERT_EQ(other.hello().code(), ErrorCode::ok);
  EXPECT_NE(other.ticket().client, client.ticket().client);  // equal names, two clients
  EXPECT_EQ(client.status()->body_as_StatusReply()->clients(), 2U);
}

TEST(Service, AClientThatSaidByeMakesRoomForAnother) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.client_capacity = 2;
  const RunningService service(options);
  TestClient first(dir.path(), false);
  TestClient second(dir.path(), false);
  ASSERT_EQ(first.hello().code(), ErrorCode::ok);
  ASSERT_EQ(second.hello().code(), ErrorCode::ok);
  EXPECT_FALSE(TestClient(dir.path(), false).is_attached());
  ASSERT_EQ(first.bye().code(), ErrorCode::ok);
  TestClient third(dir.path(), false);
  ASSERT_TRUE(third.is_attached());
  EXPECT_EQ(third.hello().code(), ErrorCode::ok);
  EXPECT_EQ(first.status().code(), ErrorCode::stale);
}

TEST(Service, ASilentClientLosesItsLeaseAndItsSlotsAreFencedUntilItSaysBye) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.lease = std::chrono::seconds(1);
  const RunningService service(options);
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  ASSERT_EQ(client.client().open(1, std::vector<std::uint32_t>(20, 5)).code(), ErrorCode::ok);
  ASSERT_EQ(client.client().admit(1, 0).code(), ErrorCode::ok);
  TestClient observer(dir.path(), false);
  ASSERT_TRUE(eventually([&] { return observer.counter("expired_clients") == 1; }));
  const auto fenced = [&] {
    return observer.status()->body_as_StatusReply()->tiers()->Get(0)->fenced();
  };
  EXPECT_EQ(fenced(), 2U);
  EXPECT_EQ(client.client().status().code(), ErrorCode::stale);
  EXPECT_EQ(client.client().bye().code(), ErrorCode::ok);
  EXPECT_EQ(fenced(), 0U);
}

// Its process lives on and holds its connection open.
TEST(Service, ASilentClientThatHoldsNothingEndsAndMakesRoomForAnother) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.lease = std::chrono::seconds(1);
  options.config.clients_per_user = 2;
  const RunningService service(options);
  TestClient observer(dir.path(), false);
  for (std::uint64_t life = 1; life <= 3; ++life) {
    SCOPED_TRACE(life);
    TestClient silent(dir.path(), false);
    ASSERT_TRUE(silent.is_attached());
    ASSERT_EQ(silent.open(1, std::vector<std::uint32_t>(20, 5)).code(), ErrorCode::unavailable);
    ASSERT_TRUE(eventually([&] { return observer.counter("expired_clients") == life; }));
    EXPECT_EQ(observer.status()->body_as_StatusReply()->clients(), 1U);
    EXPECT_FALSE(silent.attach().receive().has_arrived);  // the service closed it
    const auto told = silent.receive();
    ASSERT_TRUE(told.has_arrived());
    ASSERT_EQ(told->notices()->size(), 1U);
    EXPECT_EQ(told->notices()->Get(0)->kind(), wire::NoticeKind::lease_expired);
    EXPECT_EQ(silent.status().code(), ErrorCode::stale);
    EXPECT_EQ(silent.bye().code(), ErrorCode::stale);
  }
}

TEST(Service, WithoutAHostTierItsArenaIsUnavailable) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.host_bytes = 0;
  options.config.disk_bytes = 0;
  const RunningService service(options);
  TestClient client(dir.path(), false);
  EXPECT_EQ(client.attach().ask(wire::AttachKind::host_arena).code, ErrorCode::unavailable);
  EXPECT_EQ(client.attach().ask(wire::AttachKind::device_pool).code, ErrorCode::ok);
}

// ---------------------------------------------------------------- disk
TEST(Service, WhatFlushReportedDurableIsHitAfterARestart) {
  const TempDir dir;
  {
    RunningService service(options_in(dir.path()));
    PoolClient client(dir.path());
    ASSERT_TRUE(client.is_ready());
    client.publish(1, 40, 7);
    const auto flushed = client.client().flush();
    ASSERT_EQ(flushed.code(), ErrorCode::ok);
    EXPECT_EQ(flushed->body_as_FlushReply()->durable_blocks(), 2U);
    EXPECT_EQ(service.end(), Service::Ended::clean);
  }
  const RunningService service(options_in(dir.path()));
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  ASSERT_TRUE(
      eventually([&] { return !client.client().status()->body_as_StatusReply()->recovering(); }));
  EXPECT_EQ(client.counter("recovered_blocks"), 2U);
  const auto hit = client.admit_again(2, 40);
  EXPECT_EQ(hit.disk_tokens, 32U);
  EXPECT_TRUE(client.holds(hit.slots[0], 7));
  EXPECT_TRUE(client.holds(hit.slots[1], 8));
}

TEST(Service, TheEndItselfSavesWhatWasPublished) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.config.write_through = false;
  {
    RunningService service(options);
    PoolClient client(dir.path());
    ASSERT_TRUE(client.is_ready());
    client.publish(1, 33, 1);
    EXPECT_EQ(client.counter("saved_blocks.disk"), 0U);
    EXPECT_EQ(service.end(), Service::Ended::clean);
  }
  const RunningService service(options);
  PoolClient client(dir.path());
  ASSERT_TRUE(
      eventually([&] { return !client.client().status()->body_as_StatusReply()->recovering(); }));
  EXPECT_EQ(client.counter("recovered_blocks"), 2U);
}

TEST(Service, AFlippedByteOnTheDiskIsACountedMissAndNeverServed) {
  const TempDir dir;
  {
    RunningService service(options_in(dir.path()));
    PoolClient client(dir.path());
    client.publish(1, 40, 7);
    ASSERT_EQ(client.client().flush().code(), ErrorCode::ok);
    EXPECT_EQ(service.end(), Service::Ended::clean);
  }
  // The second block's bytes.
  ASSERT_EQ(tests::flip_a_byte(dir.path() + "/disk", PoolClient::pattern(8)), 1);
  const RunningService service(options_in(dir.path()));
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  ASSERT_TRUE(eventually([&] { return client.counter("recovered_blocks") == 2; }));
  const auto hit = client.admit_again(2, 40);  // again after the failed load
  EXPECT_EQ(hit.device_tokens + hit.host_tokens + hit.disk_tokens, 16U);
  EXPECT_TRUE(client.holds(hit.slots[0], 7));
  EXPECT_EQ(client.counter("corrupt_blocks.disk"), 1U);
}

TEST(Service, AnotherModelOnTheDiskIsAMismatchForThePool) {
  const TempDir dir;
  {
    RunningService service(options_in(dir.path()));
    PoolClient client(dir.path());
    client.publish(1, 40, 7);
    EXPECT_EQ(service.end(), Service::Ended::clean);
  }
  const RunningService service(options_in(dir.path()));
  TestClient client(dir.path(), false);
  ASSERT_EQ(client.hello().code(), ErrorCode::ok);
  const auto refused = client.attach_pool({.block_tokens = 16, .layer_count = 3});
  EXPECT_EQ(refused.code(), ErrorCode::mismatch);
  EXPECT_EQ(refused->field()->str(), "layer_count");
}

TEST(Service, AnUnreadableDiskLeavesTheServiceWithoutThatTier) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() + "/disk");
  std::ofstream(dir.path() + "/disk/format") << "something else";
  RunningService service(options_in(dir.path()));
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  client.publish(1, 40, 7);
  const auto flushed = client.client().flush();
  ASSERT_EQ(flushed.code(), ErrorCode::ok);
  EXPECT_EQ(flushed->body_as_FlushReply()->durable_blocks(), 0U);
  EXPECT_EQ(client.client().status()->body_as_StatusReply()->tiers()->Get(2)->slots(), 0U);
  EXPECT_EQ(service.end(), Service::Ended::clean);
}

TEST(Service, ADiskThatCannotBeOpenedIsOffAndNothingIsTriedThere) {
  const TempDir dir;
  auto options = options_in(dir.path());
  options.opener = [](const KvLayout&) -> Result<std::unique_ptr<BlobStore>> {
    return Error{kv::ErrorCode::unavailable, "no disk", {}};
  };
  RunningService service(options);
  PoolClient client(dir.path());
  ASSERT_TRUE(client.is_ready());
  EXPECT_TRUE(eventually([&] {
    return client.client().status()->body_as_StatusReply()->tiers()->Get(2)->slots() == 0;
  }));
  client.publish(1, 40, 7);
  EXPECT_TRUE(eventually([&] { return client.counter("saved_blocks.host") == 2; }));
  EXPECT_EQ(client.counter("transfers_started"), 1U) << "the copy to the host, and no other";
  EXPECT_EQ(client.counter("failed_blocks.disk"), 0U);
  const auto hit = client.admit_again(2, 40);
  EXPECT_EQ(hit.device_tokens, 32U);
  EXPECT_EQ(client.client().flush().code(), ErrorCode::unavailable);
  EXPECT_EQ(service.end(), Service::Ended::unsaved);
}

TEST(Service, AHungDiskDelaysNoRequestAndTheEndDoesNotWaitForIt) {
  const TempDir dir;
  tests::Gate gate;
  tests::StoreLog log;
  auto options = options_in(dir.path());
  options.end_time_max = std::chrono::milliseconds(300);
  options.opener = [&](const KvLayout&) -> Result<std::unique_ptr<BlobStore>> {
    return std::unique_ptr<BlobStore>(std::make_unique<tests::MemoryStore>(gate, log));
  };
  gate.close();
  RunningService service(options);
  {
    PoolClient client(dir.path());
    ASSERT_TRUE(client.is_ready());
    client.publish(1, 40, 7);
    ASSERT_TRUE(eventually([&] { return client.counter("saved_blocks.host") == 2; }));
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) ASSERT_EQ(client.client().status().code(), ErrorCode::ok);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_EQ(client.counter("saved_blocks.disk"), 0U);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(service.end(), Service::Ended::hung);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  gate.open();  // so that this process can go on
}

// In a process of its own. The first signal starts a flush that hangs; only the second can end it.
[[noreturn]] void serve_and_signal_twice(const std::string& dir) {
  tests::Gate gate;
  tests::StoreLog log;
  auto options = options_in(dir);
  options.handle_signals = true;
  options.end_time_max = std::chrono::minutes(1);
  options.opener = [&](const KvLayout&) -> Result<std::unique_ptr<BlobStore>> {
    return std::unique_ptr<BlobStore>(std::make_unique<tests::MemoryStore>(gate, log));
  };
  gate.close();
  const RunningService service(options);
  PoolClient client(dir);
  if (!client.is_ready()) std::_Exit(78);  // nothing would hang
  client.publish(1, 40, 7);
  std::raise(SIGTERM);
  std::raise(SIGTERM);
  gate.pass();
  std::_Exit(77);
}

TEST(ServiceDeathTest, ASecondSignalEndsItAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempDir dir;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EXIT(serve_and_signal_twice(dir.path()), testing::ExitedWithCode(EXIT_FAILURE), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace kv::shell
