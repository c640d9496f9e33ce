#include "cachesvc/shell/attach_server.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocator/base/prng.h"
#include "cachesvc/shell/unix_address.h"
#include "tests/cachesvc/shell/temp_dir.h"
#include "tests/cachesvc/shell/test_client.h"
#include "tiering/stores/host_arena.h"

namespace kv::shell {
namespace {

using tests::AttachConnection;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

class AttachServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = HostArena::make({.bytes = 1U << 20U, .huge_pages = false});
    ASSERT_TRUE(made.has_value());
    arena_ = std::make_unique<HostArena>(*std::move(made));
    auto server = AttachServer::make(
        loop_, log_,
        {.path = path_,
         .boot = {11, 22},
         .waiting_max = 4,
         .counters = &counters_,
         .enter = [this](AttachServer::Peer peer) { return enter(std::move(peer)); },
         .memory = [this](ClientId, codec::AttachKind kind) { return share(kind); }});
    ASSERT_TRUE(server.has_value());
    server_ = *std::move(server);
    thread_ = std::thread([this] { loop_.run(); });
  }
  void TearDown() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
    peers_.clear();
  }
  Result<AttachServer::Ticket> enter(AttachServer::Peer peer) {
    if (peers_.size() == 2) return Error{ErrorCode::exhausted, "full", {}};
    peers_.push_back(std::move(peer));
    return AttachServer::Ticket{.client = ClientId(100 + peers_.size()), .secret = {33, 44}};
  }
  Result<AttachServer::Memory> share(codec::AttachKind kind) const {
    if (kind == codec::AttachKind::device_pool) {
      return AttachServer::Memory{
          .descriptor = FileDescriptor(fcntl(arena_->descriptor(), F_DUPFD_CLOEXEC, 0)),
          .bytes = arena_->bytes().size(),
          .writable = true};
    }
    KV_TRY(const int descriptor, arena_->read_only_descriptor());
    return AttachServer::Memory{.descriptor = FileDescriptor(descriptor),
                                .bytes = arena_->bytes().size(),
                                .writable = false};
  }

  tests::TempDir dir_;
  std::string path_ = dir_.path() + "/attach.sock";
  Logger log_{"off"};
  std::unique_ptr<HostArena> arena_;
  EventLoop loop_;
  std::vector<AttachServer::Peer> peers_;  // of the loop's thread, until it ended
  codec::ShellCounters counters_;
  std::unique_ptr<AttachServer> server_;
  std::thread thread_;
};

TEST_F(AttachServerTest, AProcessOfTheSameUserGetsAnIdASecretAndTheBootId) {
  const AttachConnection connection(path_);
  const auto reply = connection.ask(wire::AttachKind::enter, true);
  ASSERT_TRUE(reply.has_arrived);
  EXPECT_EQ(reply.code, wire::ErrorCode::ok);
  EXPECT_EQ(reply.client, 101U);
  EXPECT_EQ(reply.secret_a, 33U);
  EXPECT_EQ(reply.secret_b, 44U);
  EXPECT_EQ(reply.boot_a, 11U);
  EXPECT_EQ(reply.boot_b, 22U);
  EXPECT_EQ(reply.descriptor, -1);
  loop_.stop();
  thread_.join();
  ASSERT_EQ(peers_.size(), 1U);
  EXPECT_EQ(peers_[0].process, getpid());  // from the kernel, not from the message
  EXPECT_EQ(peers_[0].user, geteuid());
  EXPECT_TRUE(peers_[0].wants_admin);
  EXPECT_TRUE(peers_[0].process_descriptor.is_open());
}

TEST_F(AttachServerTest, MemoryComesOnlyAfterEntering) {
  const AttachConnection connection(path_);
  const auto early = connection.ask(wire::AttachKind::device_pool);
  ASSERT_TRUE(early.has_arrived);
  EXPECT_EQ(early.code, wire::ErrorCode::denied);
  EXPECT_EQ(early.descriptor, -1);
  ASSERT_EQ(connection.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  const auto reply = connection.ask(wire::AttachKind::device_pool);
  ASSERT_EQ(reply.code, wire::ErrorCode::ok);
  EXPECT_EQ(reply.bytes, 1U << 20U);
  EXPECT_TRUE(reply.writable);
  ASSERT_GE(reply.descriptor, 0);
  void* const mapped =
      mmap(nullptr, 1U << 20U, PROT_READ | PROT_WRITE, MAP_SHARED, reply.descriptor, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  static_cast<char*>(mapped)[12'345] = 'k';
  EXPECT_EQ(static_cast<char>(arena_->bytes()[12'345]), 'k');  // the same memory
  munmap(mapped, 1U << 20U);
  close(reply.descriptor);
}

TEST_F(AttachServerTest, TheHostArenaCannotBeMappedForWriting) {
  const AttachConnection connection(path_);
  ASSERT_EQ(connection.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  const auto reply = connection.ask(wire::AttachKind::host_arena);
  ASSERT_EQ(reply.code, wire::ErrorCode::ok);
  EXPECT_FALSE(reply.writable);
  ASSERT_GE(reply.descriptor, 0);
  EXPECT_EQ(mmap(nullptr, 1U << 20U, PROT_READ | PROT_WRITE, MAP_SHARED, reply.descriptor, 0),
            MAP_FAILED);
  void* const mapped = mmap(nullptr, 1U << 20U, PROT_READ, MAP_SHARED, reply.descriptor, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  munmap(mapped, 1U << 20U);
  close(reply.descriptor);
}

TEST_F(AttachServerTest, AForgottenClientIsGivenNothingMoreAndTheOthersAre) {
  const AttachConnection first(path_), second(path_);
  ASSERT_EQ(first.ask(wire::AttachKind::enter).client, 101U);
  ASSERT_EQ(second.ask(wire::AttachKind::enter).client, 102U);
  loop_.post([this] { server_->forget(ClientId(101)); });
  EXPECT_FALSE(first.receive().has_arrived) << "the connection ends";
  EXPECT_FALSE(first.ask(wire::AttachKind::device_pool).has_arrived);
  const auto reply = second.ask(wire::AttachKind::device_pool);
  EXPECT_EQ(reply.code, wire::ErrorCode::ok);
  close(reply.descriptor);
}

TEST_F(AttachServerTest, EnteringTwiceIsRefused) {
  const AttachConnection connection(path_);
  ASSERT_EQ(connection.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  EXPECT_EQ(connection.ask(wire::AttachKind::enter).code, wire::ErrorCode::exists);
}

TEST_F(AttachServerTest, AnotherProtocolVersionIsAMismatch) {
  const AttachConnection connection(path_);
  connection.send(wire::AttachKind::enter, false, 2);
  EXPECT_EQ(connection.receive().code, wire::ErrorCode::mismatch);
}

TEST_F(AttachServerTest, NoMoreClientsThanAllowed) {
  const AttachConnection first(path_), second(path_), third(path_);
  ASSERT_EQ(first.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  ASSERT_EQ(second.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  EXPECT_EQ(third.ask(wire::AttachKind::enter).code, wire::ErrorCode::exhausted);
}

TEST_F(AttachServerTest, OfTooManyConnectionsThatDoNotEnterTheOldestMakesRoom) {
  const AttachConnection entered(path_);
  ASSERT_EQ(entered.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  std::vector<std::unique_ptr<AttachConnection>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<AttachConnection>(path_));
    // An answer shows that it was taken in.
    EXPECT_EQ(idle.back()->ask(wire::AttachKind::device_pool).code, wire::ErrorCode::denied);
  }
  const AttachConnection fifth(path_);
  EXPECT_EQ(fifth.ask(wire::AttachKind::device_pool).code, wire::ErrorCode::denied);
  const auto closed = idle.front()->receive();
  ASSERT_TRUE(closed.has_arrived);
  EXPECT_EQ(closed.code, wire::ErrorCode::exhausted);
  EXPECT_FALSE(idle.front()->receive().has_arrived);
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(idle[static_cast<std::size_t>(i)]->ask(wire::AttachKind::device_pool).code,
              wire::ErrorCode::denied);
  }
  // Whoever entered, earlier than all of them or now, is none of these.
  EXPECT_EQ(fifth.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  const AttachConnection sixth(path_);
  EXPECT_EQ(sixth.ask(wire::AttachKind::device_pool).code, wire::ErrorCode::denied);
  EXPECT_EQ(entered.ask(wire::AttachKind::enter).code, wire::ErrorCode::exists);
  EXPECT_EQ(idle[1]->ask(wire::AttachKind::device_pool).code, wire::ErrorCode::denied);
  loop_.stop();
  thread_.join();
  EXPECT_EQ(counters_.refused_attach_connections, 1U);
}

TEST_F(AttachServerTest, AClientThatSaidByeMakesRoomLikeOneThatNeverEntered) {
  const AttachConnection first(path_), second(path_);
  ASSERT_EQ(first.ask(wire::AttachKind::enter).client, 101U);
  ASSERT_EQ(second.ask(wire::AttachKind::enter).client, 102U);
  loop_.post([this] { server_->retire(ClientId(101)); });
  std::vector<std::unique_ptr<AttachConnection>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<AttachConnection>(path_));
    ASSERT_EQ(idle.back()->ask(wire::AttachKind::device_pool).code, wire::ErrorCode::denied);
  }
  EXPECT_EQ(first.receive().code, wire::ErrorCode::exhausted);
  EXPECT_FALSE(first.receive().has_arrived);
  EXPECT_EQ(second.ask(wire::AttachKind::enter).code, wire::ErrorCode::exists);
}

TEST_F(AttachServerTest, GarbageGetsAnErrorReplyAndTheConnectionGoesOn) {
  const AttachConnection connection(path_);
  Prng prng(7);
  for (int i = 0; i < 2'000; ++i) {
    std::vector<std::uint8_t> bytes(1 + prng.below(300));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(prng.next());
    connection.send_bytes(bytes);
    const auto reply = connection.receive();
    ASSERT_TRUE(reply.has_arrived);
    ASSERT_EQ(reply.code, wire::ErrorCode::invalid);
  }
  connection.send_bytes(std::vector<std::uint8_t>(5'000, 1));
  EXPECT_EQ(connection.receive().code, wire::ErrorCode::too_large);
  EXPECT_EQ(connection.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
}

TEST_F(AttachServerTest, DescriptorsThatAClientPassesAreNotKept) {
  const AttachConnection connection(path_);
  ASSERT_EQ(connection.ask(wire::AttachKind::enter).code, wire::ErrorCode::ok);
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    char byte = 'x';
    iovec part{.iov_base = &byte, .iov_len = 1};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int passed = STDERR_FILENO;
    std::memcpy(CMSG_DATA(header), &passed, sizeof(passed));
    ASSERT_EQ(sendmsg(connection.socket(), &message, 0), 1);
    ASSERT_EQ(connection.receive().code, wire::ErrorCode::invalid);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(AttachServerTest, WithoutADescriptorLeftItWaitsAndThenGoesOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan's check of a vptr opens a pipe: without descriptors it reports good code";
#endif
  const FileDescriptor client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = unix_address(path_);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};  // what is open stays open
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int connected =
      connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const char byte = 'x';
  const ssize_t sent = send(client.get(), &byte, 1, MSG_NOSIGNAL);
  pollfd answer{.fd = client.get(), .events = POLLIN, .revents = 0};
  const int early = poll(&answer, 1, 150);  // nobody could accept it
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(connected, 0);
  EXPECT_EQ(sent, 1);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(poll(&answer, 1, 10'000), 1);
  loop_.stop();
  thread_.join();
  EXPECT_GE(counters_.attach_pauses, 1U);
  EXPECT_LE(counters_.attach_pauses, 100U);  // it did not spin
}

TEST_F(AttachServerTest, AClientThatSendsAndLeavesDoesNoHarm) {
  for (int i = 0; i < 200; ++i) {
    const AttachConnection connection(path_);
    connection.send(wire::AttachKind::device_pool);
  }
  EXPECT_TRUE(tests::eventually([&] {
    const AttachConnection connection(path_);
    const auto reply = connection.ask(wire::AttachKind::device_pool);
    return reply.code == wire::ErrorCode::denied;
  }));
}

TEST_F(AttachServerTest, TheSocketFileIsForUserAndGroupOnlyAndIsRemovedAtTheEnd) {
  struct stat status{};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660U);
  loop_.stop();
  thread_.join();
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

// Runs as another user in a child; exit code 0: it was denied, whether it asked or not, and each
// connection closed.
int try_as_nobody(const std::string& path) {
  constexpr uid_t kNobody = 65'534;
  if (setuid(kNobody) != 0) return 2;
  const AttachConnection asking(path), idle(path);
  if (!asking.is_open() || !idle.is_open()) return 3;
  const auto reply = asking.ask(wire::AttachKind::enter);
  if (reply.code != wire::ErrorCode::denied || asking.receive().has_arrived) return 1;
  return idle.receive().code == wire::ErrorCode::denied && !idle.receive().has_arrived ? 0 : 5;
}

TEST(AttachServer, AProcessOfAnotherUserIsDeniedAndKeepsNoConnection) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const tests::TempDir dir;
  const std::string path = dir.path() + "/attach.sock";
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();  // before any thread of this test
  if (child == 0) {
    char go = 0;
    if (read(to_child[0], &go, 1) != 1) _exit(4);
    _exit(try_as_nobody(path));
  }
  EventLoop loop;
  const Logger log("off");
  int entered = 0;
  codec::ShellCounters counters;
  auto server = AttachServer::make(
      loop, log,
      {.path = path,
       .boot = {},
       .waiting_max = 4,
       .counters = &counters,
       .enter =
           [&](AttachServer::Peer) {
             ++entered;
             return Error{ErrorCode::invalid, "let in", {}};
           },
       .memory = [](ClientId,
                    codec::AttachKind) { return Error{ErrorCode::unavailable, "none", {}}; }});
  ASSERT_TRUE(server.has_value());
  // The modes keep others out already; open them, so that the credentials have to.
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(path, std::filesystem::perms(0666));
  ASSERT_EQ(write(to_child[1], "g", 1), 1);
  int status = -1;
  const EventLoop::Watch watch = loop.every(std::chrono::milliseconds(2), [&] {
    if (waitpid(child, &status, WNOHANG) == child) loop.stop();
  });
  loop.run();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(entered, 0);
  EXPECT_EQ(counters.denied_attaches, 2U);
  close(to_child[0]);
  close(to_child[1]);
}

}  // namespace
}  // namespace kv::shell
