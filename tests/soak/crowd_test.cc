// Many at once, none of them friendly: garbage on both sockets, clients that do not read, more
// clients and connections than there is room for. The others are served meanwhile, and counted.
#include <array>
#include <deque>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "allocator/base/prng.h"
#include "cachesvc/shell/unix_address.h"
#include "tests/cachesvc/shell/test_client.h"
#include "tests/soak/service_process.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::tests {
namespace {

constexpr std::uint64_t kGrowthMax = 8U << 20U;

FileDescriptor connect_raw(const std::string& path, int type) {
  FileDescriptor raw(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = shell::unix_address(path);
  if (connect(raw.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return FileDescriptor();
  }
  return raw;
}

std::vector<std::uint8_t> some_bytes(Prng& prng, std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(prng.next());
  return bytes;
}

constexpr std::size_t kGreetingBytes = 64;

// Sends the greeting of ZMTP 3.1 and waits for the other's: libzmq drops peers that do not wait.
bool greet(int raw) {
  std::vector<std::uint8_t> greeting = {0xFF, 0,    0, 0, 0,   0,   0,   0,
                                        1,    0x7F, 3, 1, 'N', 'U', 'L', 'L'};
  greeting.resize(kGreetingBytes);
  (void)send(raw, greeting.data(), greeting.size(), MSG_NOSIGNAL);
  std::size_t received = 0;
  return eventually([&] {
    std::array<char, kGreetingBytes> bytes{};
    const ssize_t count = recv(raw, bytes.data(), bytes.size() - received, 0);
    received += count > 0 ? static_cast<std::size_t>(count) : 0;
    return received == kGreetingBytes;
  });
}

// What comes behind a whole greeting: READY, and then frames of chance: a message, one that never
// ends, or one in the name of another.
std::vector<std::uint8_t> legal_garbage(Prng& prng) {
  std::vector<std::uint8_t> bytes;
  const bool is_named = prng.below(3) == 0;
  const auto name = static_cast<std::uint8_t>(is_named ? 5 : 0);
  for (const int byte :
       {4, 6 + 22 + 13 + name, 5, int{'R'}, int{'E'}, int{'A'}, int{'D'}, int{'Y'}}) {
    bytes.push_back(static_cast<std::uint8_t>(byte));
  }
  const std::string type("\x0BSocket-Type\0\0\0\6DEALER", 22);
  const std::string identity("\x08Identity\0\0\0", 12);
  bytes.insert(bytes.end(), type.begin(), type.end());
  bytes.insert(bytes.end(), identity.begin(), identity.end());
  bytes.push_back(name);
  if (is_named)
    bytes.insert(bytes.end(), {0, 0x6B, 0x8B, 0x45, static_cast<std::uint8_t>(prng.next())});
  const bool is_endless = prng.below(3) == 0;
  for (std::uint64_t left = is_endless ? 40 : 1 + prng.below(3); left > 0; --left) {
    const auto body = some_bytes(prng, prng.below(40));
    bytes.push_back(left > 1 || is_endless ? 1 : 0);
    bytes.push_back(static_cast<std::uint8_t>(body.size()));
    bytes.insert(bytes.end(), body.begin(), body.end());
  }
  return bytes;
}

// What a stranger says: nothing, chance, the beginning of a handshake and then chance, or a frame
// of ZMTP 1.0, which needs no handshake at all and is refused.
std::vector<std::uint8_t> garbage(Prng& prng) {
  std::vector<std::uint8_t> bytes;
  switch (prng.below(4)) {
    case 0:
      return bytes;
    case 1:
      bytes = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 0, 'N', 'U', 'L', 'L'};
      break;
    case 2:
      return {1, 0, 4, 0, 'a', 'b', 'c'};
    default:
      break;
  }
  const auto chance = some_bytes(prng, prng.below(600));
  bytes.insert(bytes.end(), chance.begin(), chance.end());
  return bytes;
}

// Connects, says something, and closes or stays for a while. True: each was accepted in the end.
void send_garbage(ServiceProcess& service, const std::string& path, int type, TestClient& witness) {
  const std::uint64_t count = count_or("KV_SOAK_CONNECTIONS", 10'000);
  constexpr std::size_t kStayMax = 100;
  constexpr std::uint64_t kPerQuestion = 50;
  std::deque<FileDescriptor> staying;
  Prng prng(31);
  std::uint64_t connected = 0, answered = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    // A full backlog is not refusal: the service accepts as it comes to it.
    FileDescriptor raw;
    ASSERT_TRUE(eventually([&] {
      raw = connect_raw(path, type);
      return raw.is_open();
    })) << service.errors();
    ++connected;
    // One of six on the request socket goes through the whole handshake.
    const bool is_legal = type == SOCK_STREAM && prng.below(6) == 0;
    ASSERT_TRUE(!is_legal || greet(raw.get()));
    const auto bytes = is_legal ? legal_garbage(prng) : garbage(prng);
    if (!bytes.empty()) (void)send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (prng.below(4) == 0) staying.push_back(std::move(raw));
    if (staying.size() > kStayMax) staying.pop_front();
    if (i % kPerQuestion != 0) continue;
    answered += witness.status().code() == wire::ErrorCode::ok ? 1 : 0;
  }
  EXPECT_EQ(connected, count);
  EXPECT_EQ(answered, (count + kPerQuestion - 1) / kPerQuestion);
}

TEST(Crowd, TenThousandStrangersOnTheRequestSocketDelayNobodyAndLeaveNothing) {
  ServiceProcess service;
  ASSERT_TRUE(service.is_ready()) << service.errors();
  TestClient witness(service.dir(), false);
  ASSERT_EQ(witness.hello().code(), wire::ErrorCode::ok);
  const std::size_t descriptors = service.descriptors();
  const std::uint64_t resident = service.resident_bytes();
  send_garbage(service, service.dir() + "/service.sock", SOCK_STREAM, witness);
  EXPECT_TRUE(eventually([&] { return service.descriptors() <= descriptors; }))
      << service.descriptors() << " after " << descriptors;
  EXPECT_GT(witness.counter("malformed_frames"), 100U);
  EXPECT_GT(witness.counter("refused_connections"), 100U);  // endless, or under a name
  EXPECT_LT(service.resident_bytes(), resident + kGrowthMax);
  EXPECT_EQ(service.end(), 0) << service.errors();
}

TEST(Crowd, TenThousandStrangersOnTheAttachSocketDelayNobodyAndLeaveNothing) {
  ServiceProcess service;
  ASSERT_TRUE(service.is_ready()) << service.errors();
  TestClient witness(service.dir(), false);
  ASSERT_EQ(witness.hello().code(), wire::ErrorCode::ok);
  const std::size_t descriptors = service.descriptors();
  const std::uint64_t resident = service.resident_bytes();
  send_garbage(service, service.dir() + "/attach.sock", SOCK_SEQPACKET, witness);
  EXPECT_TRUE(eventually([&] { return service.descriptors() <= descriptors; }))
      << service.descriptors() << " after " << descriptors;
  EXPECT_GT(witness.counter("malformed_attaches"), 1'000U);
  EXPECT_EQ(witness.counter("attached_clients"), 1U);
  EXPECT_LT(service.resident_bytes(), resident + kGrowthMax);
  EXPECT_EQ(service.end(), 0) << service.errors();
}

// SCENARIOS DEAD-07
TEST(Crowd, AClientThatDoesNotReadIsNotServedAndTheOthersAre) {
  ServiceProcess service({"client.lease=1s"});
  ASSERT_TRUE(service.is_ready()) << service.errors();
  TestClient witness(service.dir(), false);
  ASSERT_EQ(witness.hello().code(), wire::ErrorCode::ok);
  const std::uint64_t resident = service.resident_bytes();
  TestClient slow(service.dir(), false);
  ASSERT_EQ(slow.hello().code(), wire::ErrorCode::ok);
  const std::uint64_t count = count_or("KV_SOAK_UNREAD", 10'000);
  for (std::uint64_t i = 0; i < count; ++i) {
    slow.send_status();
    if (i % 1'000 != 0) continue;
    ASSERT_EQ(witness.status().code(), wire::ErrorCode::ok);
  }
  ASSERT_TRUE(eventually([&] {
    slow.send_status();
    return witness.counter("unread_requests") > 1'000;
  }));
  EXPECT_GE(witness.counter("unread_replies"), 1U);
  EXPECT_LT(service.resident_bytes(), resident + kGrowthMax);
  // It goes on asking, but that renews nothing: its lease ends.
  EXPECT_TRUE(eventually([&] {
    slow.send_status();
    return witness.counter("expired_clients") == 1;
  }));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(witness.status().code(), wire::ErrorCode::ok);
  // Once it reads, it is told: first what waited, then that it may ask again, then `stale`.
  EXPECT_TRUE(eventually([&] {
    slow.send_status();
    for (auto reply = slow.receive(std::chrono::milliseconds(1)); reply.has_arrived();
         reply = slow.receive(std::chrono::milliseconds(1))) {
      if (reply.code() == wire::ErrorCode::stale) return true;
    }
    return false;
  }));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(service.end(), 0) << service.errors();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Crowd, FourThousandClientsAreServedAndTheNextIsToldWhy) {
  constexpr std::uint64_t kClients = 4'096;
  ServiceProcess service({"client.capacity=4096", "client.per_user=4096"});
  ASSERT_TRUE(service.is_ready()) << service.errors();
  std::vector<AttachConnection::Reply> tickets;
  for (std::uint64_t i = 0; i < kClients; ++i) {
    const AttachConnection connection(service.dir() + "/attach.sock");
    tickets.push_back(connection.ask(wire::AttachKind::enter));
    ASSERT_EQ(tickets.back().code, wire::ErrorCode::ok) << i << " " << tickets.back().reason;
  }
  const AttachConnection next(service.dir() + "/attach.sock");
  const auto refused = next.ask(wire::AttachKind::enter);
  EXPECT_EQ(refused.code, wire::ErrorCode::exhausted);
  EXPECT_EQ(refused.reason, "as many clients as client.capacity");
  TestClient voice(service.dir(), tickets.front());  // speaks for each of them in turn
  for (const auto& ticket : tickets) {
    voice.become(ticket);
    ASSERT_EQ(voice.hello().code(), wire::ErrorCode::ok);
  }
  EXPECT_EQ(voice.status()->body_as_StatusReply()->clients(), kClients);
  EXPECT_EQ(voice.counter("refused_attaches"), 1U);
  EXPECT_EQ(service.end(), 0) << service.errors();
}

TEST(Crowd, WithoutDescriptorsNewOnesAreRefusedAndTheOthersGoOn) {
  ServiceProcess service;
  ASSERT_TRUE(service.is_ready()) << service.errors();
  TestClient witness(service.dir(), false);
  ASSERT_EQ(witness.hello().code(), wire::ErrorCode::ok);
  const std::size_t descriptors = service.descriptors();
  const rlimit few{.rlim_cur = descriptors + 100, .rlim_max = descriptors + 100};
  ASSERT_EQ(prlimit(service.id(), RLIMIT_NOFILE, &few, nullptr), 0);
  {
    std::vector<FileDescriptor> strangers;
    for (int i = 0; i < 300; ++i) {
      FileDescriptor raw = connect_raw(service.dir() + "/service.sock", SOCK_STREAM);
      if (raw.is_open()) strangers.push_back(std::move(raw));
    }
    ASSERT_TRUE(eventually([&] { return witness.counter("refused_connections") > 0; }));
    // What is left is not for connections: the attach socket says so instead of hanging.
    const AttachConnection late(service.dir() + "/attach.sock");
    const auto refused = late.ask(wire::AttachKind::enter);
    EXPECT_EQ(refused.code, wire::ErrorCode::exhausted);
    EXPECT_EQ(refused.reason, "too few descriptors are left");
    EXPECT_GE(witness.counter("refused_attach_connections"), 1U);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(witness.status().code(), wire::ErrorCode::ok);
  }
  EXPECT_TRUE(eventually([&] { return service.descriptors() <= descriptors; }));
  TestClient next(service.dir(), false);
  EXPECT_EQ(next.hello().code(), wire::ErrorCode::ok);
  EXPECT_EQ(service.end(), 0) << service.errors();
}

}  // namespace
}  // namespace kv::tests
