#include "tests/fuzz/attach_program.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocator/base/check.h"
#include "cachesvc/shell/attach_server.h"
#include "tests/cachesvc/shell/temp_dir.h"

namespace kv::testing {
namespace {

constexpr std::size_t kPacketBytesMax = 1'024;
constexpr std::uint64_t kMemoryBytes = 4'096;
constexpr std::uint64_t kSecret = 0x5EC2E7;

wire::AttachKind kind_of(codec::AttachKind kind) { return static_cast<wire::AttachKind>(kind); }

}  // namespace

struct AttachHarness::State {
  tests::TempDir dir;
  std::string path = dir.path() + "/attach.sock";
  shell::Logger log{"off"};
  codec::ShellCounters counters;
  shell::EventLoop loop;
  FileDescriptor memory;
  std::atomic<std::uint64_t> tickets{0};  // of this program
  std::uint64_t next_client = 100;
  std::unique_ptr<shell::AttachServer> server;
  std::thread thread;
};

AttachHarness::AttachHarness() : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.memory = FileDescriptor(memfd_create("pool", MFD_CLOEXEC));
  shell::AttachServer::Options options;
  options.path = state.path;
  options.boot = {11, 22};
  options.waiting_max = 1'000'000;  // those of earlier programs may not be seen as closed yet
  options.counters = &state.counters;
  options.enter = [&state](shell::AttachServer::Peer) -> Result<shell::AttachServer::Ticket> {
    if (state.tickets.load() >= kTicketsMax) return Error{ErrorCode::exhausted, "full", {}};
    ++state.tickets;
    return shell::AttachServer::Ticket{.client = ClientId(++state.next_client),
                                       .secret = {kSecret, state.next_client}};
  };
  options.memory = [&state](ClientId,
                            codec::AttachKind kind) -> Result<shell::AttachServer::Memory> {
    if (kind_of(kind) == wire::AttachKind::host_arena) {
      return Error{ErrorCode::unavailable, "this tier is off", "kind"};
    }
    return shell::AttachServer::Memory{
        .descriptor = FileDescriptor(fcntl(state.memory.get(), F_DUPFD_CLOEXEC, 0)),
        .bytes = kMemoryBytes,
        .writable = true};
  };
  auto server = shell::AttachServer::make(state.loop, state.log, std::move(options));
  KV_CHECK(server.has_value());
  state.server = *std::move(server);
  state.thread = std::thread([&state] { state.loop.run(); });
}

AttachHarness::~AttachHarness() {
  state_->loop.stop();
  state_->thread.join();
  state_->server.reset();
}

const std::string& AttachHarness::path() const { return state_->path; }
void AttachHarness::begin_program() { state_->tickets = 0; }

AttachProgram::AttachProgram(AttachHarness& harness, std::span<const std::uint8_t> bytes)
    : harness_(harness), bytes_(bytes) {
  harness_.begin_program();
}

std::uint8_t AttachProgram::take() {
  if (bytes_.empty()) return 0;
  const std::uint8_t byte = bytes_.front();
  bytes_ = bytes_.subspan(1);
  return byte;
}

void AttachProgram::run() {
  constexpr int kEventsMax = 64;  // a round trip each
  for (int i = 0; i < kEventsMax && !bytes_.empty(); ++i) event();
}

void AttachProgram::event() {
  const std::uint8_t choice = take();
  Connection& connection = connections_[choice % connections_.size()];
  if (connection.socket == nullptr) {
    connection = {std::make_unique<tests::AttachConnection>(harness_.path()), false};
    KV_CHECK(connection.socket->is_open());
  }
  switch ((choice >> 2U) % 8U) {
    case 0:
      connection = {};
      ++counts_.ended;
      return;
    case 1:
    case 2:
    case 3:
      exchange(connection, any_packet());
      return;
    default:
      exchange(connection, request_packet());
      return;
  }
}

// Bytes of the input as they are; seldom more than a packet may have.
std::vector<std::uint8_t> AttachProgram::any_packet() {
  const std::uint8_t length = take();
  const std::size_t count = std::min<std::size_t>(length, bytes_.size());
  std::vector<std::uint8_t> packet(bytes_.begin(),
                                   bytes_.begin() + static_cast<std::ptrdiff_t>(count));
  bytes_ = bytes_.subspan(count);
  if (length == 0xFF) packet.resize(kPacketBytesMax + 1);
  return packet;
}

// A well-formed request of chosen numbers; now and then with one byte changed.
std::vector<std::uint8_t> AttachProgram::request_packet() {
  const std::uint8_t numbers = take();
  flatbuffers::FlatBufferBuilder builder;
  const std::uint32_t version = (numbers & 0x18U) == 0x18U ? take() : 1;
  const auto request = wire::CreateAttachRequest(
      builder, version, static_cast<wire::AttachKind>(numbers & 3U), (numbers & 4U) != 0);
  wire::FinishAttachMessageBuffer(
      builder,
      wire::CreateAttachMessage(builder, wire::AttachBody::AttachRequest, request.Union()));
  std::vector<std::uint8_t> packet(builder.GetBufferPointer(),
                                   builder.GetBufferPointer() + builder.GetSize());
  if ((numbers & 0xE0U) == 0xE0U) packet[take() % packet.size()] ^= take();
  return packet;
}

void AttachProgram::exchange(Connection& connection, std::span<const std::uint8_t> packet) {
  connection.socket->send_bytes(packet);
  ++counts_.packets;
  if (packet.empty()) {  // looks like the end, and is one
    KV_CHECK(!connection.socket->receive().has_arrived);
    connection = {};
    ++counts_.ended;
    return;
  }
  const wire::ErrorCode code = expected(connection, packet);
  const auto reply = connection.socket->receive();
  KV_CHECK(reply.has_arrived);
  KV_CHECK(reply.code == code);
  KV_CHECK(reply.boot_a == 11 && reply.boot_b == 22);
  if (reply.descriptor >= 0) {
    KV_CHECK(code == wire::ErrorCode::ok && connection.has_entered);
    KV_CHECK(reply.bytes == kMemoryBytes && reply.writable);
    close(reply.descriptor);
    ++counts_.memories;
  } else if (code == wire::ErrorCode::ok) {
    KV_CHECK(!connection.has_entered && reply.client > last_client_);  // nobody else's id
    KV_CHECK(reply.secret_a == kSecret && reply.secret_b == reply.client);
    last_client_ = reply.client;
    connection.has_entered = true;
    ++counts_.entered;
  } else {
    KV_CHECK(reply.client == 0 && reply.secret_a == 0 && reply.secret_b == 0);
    ++counts_.refused;
  }
}

// What the server must say, from what the packet is (the decoder has a fuzzer of its own).
wire::ErrorCode AttachProgram::expected(const Connection& connection,
                                        std::span<const std::uint8_t> packet) const {
  if (packet.size() > kPacketBytesMax) return wire::ErrorCode::too_large;
  const auto request = codec::decode_attach_request(std::as_bytes(packet));
  if (!request) return static_cast<wire::ErrorCode>(request.error().code);
  if (request->protocol_version != 1) return wire::ErrorCode::mismatch;
  switch (request->kind) {
    case codec::AttachKind::enter:
      if (connection.has_entered) return wire::ErrorCode::exists;
      return counts_.entered >= AttachHarness::kTicketsMax ? wire::ErrorCode::exhausted
                                                           : wire::ErrorCode::ok;
    case codec::AttachKind::device_pool:
      return connection.has_entered ? wire::ErrorCode::ok : wire::ErrorCode::denied;
    case codec::AttachKind::host_arena:
      return connection.has_entered ? wire::ErrorCode::unavailable : wire::ErrorCode::denied;
  }
  return wire::ErrorCode::invalid;
}

}  // namespace kv::testing
