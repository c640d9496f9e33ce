#include "tests/cachesvc/shell/test_client.h"

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

namespace kv::tests {
namespace {

using Clock = std::chrono::steady_clock;

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return left.count() > 0 ? static_cast<int>(left.count()) : 0;
}

}  // namespace

bool eventually(const std::function<bool()>& met, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (!met()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// ---------------------------------------------------------------- attach socket
AttachConnection::AttachConnection(const std::string& path) {
  socket_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(socket_);
    socket_ = -1;
  }
}

AttachConnection::~AttachConnection() {
  if (socket_ >= 0) close(socket_);
}

void AttachConnection::send_bytes(std::span<const std::uint8_t> bytes) const {
  (void)::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void AttachConnection::send(wire::AttachKind kind, bool admin, std::uint32_t version) const {
  flatbuffers::FlatBufferBuilder builder;
  const auto request = wire::CreateAttachRequest(builder, version, kind, admin);
  wire::FinishAttachMessageBuffer(
      builder,
      wire::CreateAttachMessage(builder, wire::AttachBody::AttachRequest, request.Union()));
  send_bytes({builder.GetBufferPointer(), builder.GetSize()});
}

AttachConnection::Reply AttachConnection::receive() const {
  pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(kPatience.count())) != 1) return {};
  alignas(8) std::array<std::uint8_t, 1'024> bytes{};
  alignas(cmsghdr) std::array<std::byte, 256> control{};
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
  if (count <= 0) return {};
  flatbuffers::Verifier verifier(bytes.data(), static_cast<std::size_t>(count));
  if (!wire::VerifyAttachMessageBuffer(verifier)) return {};
  const auto* body = wire::GetAttachMessage(bytes.data())->body_as_AttachReply();
  if (body == nullptr) return {};
  Reply reply;
  reply.has_arrived = true;
  reply.code = body->code();
  if (body->reason() != nullptr) reply.reason = body->reason()->str();
  if (body->boot() != nullptr) {
    reply.boot_a = body->boot()->a();
    reply.boot_b = body->boot()->b();
  }
  reply.client = body->client();
  if (body->secret() != nullptr) {
    reply.secret_a = body->secret()->a();
    reply.secret_b = body->secret()->b();
  }
  reply.bytes = body->bytes();
  reply.writable = body->writable();
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&reply.descriptor, CMSG_DATA(header), sizeof(int));
  }
  return reply;
}

AttachConnection::Reply AttachConnection::ask(wire::AttachKind kind, bool admin) const {
  send(kind, admin);
  return receive();
}

// ---------------------------------------------------------------- requests
TestClient::TestClient(const std::string& dir, bool admin)
    : attach_(std::make_unique<AttachConnection>(dir + "/attach.sock")) {
  if (!attach_->is_open()) return;
  const auto reply = attach_->ask(wire::AttachKind::enter, admin);
  if (reply.code != wire::ErrorCode::ok) return;
  ticket_ = reply;
  connect(dir);
}

TestClient::TestClient(const std::string& dir, const AttachConnection::Reply& ticket)
    : ticket_(ticket) {
  connect(dir);
}

TestClient::~TestClient() {
  if (socket_ != nullptr) zmq_close(socket_);
  if (context_ != nullptr) zmq_ctx_term(context_);
}

void TestClient::connect(const std::string& dir) {
  context_ = zmq_ctx_new();
  socket_ = zmq_socket(context_, ZMQ_DEALER);
  const int no_linger = 0;
  zmq_setsockopt(socket_, ZMQ_LINGER, &no_linger, sizeof(no_linger));
  zmq_connect(socket_, ("ipc://" + dir + "/service.sock").c_str());
}

void TestClient::set_secret(std::uint64_t a, std::uint64_t b) {
  ticket_.secret_a = a;
  ticket_.secret_b = b;
}

void TestClient::become(const AttachConnection::Reply& ticket) {
  ticket_ = ticket;
  request_ = 0;
  acknowledged_ = 0;
  notices_.clear();
}

void TestClient::send_frames(const std::vector<std::vector<std::uint8_t>>& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    zmq_send(socket_, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  }
}

TestClient::Reply TestClient::receive(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  zmq_pollitem_t wait{.socket = socket_, .fd = 0, .events = ZMQ_POLLIN, .revents = 0};
  if (zmq_poll(&wait, 1, left_ms(deadline)) != 1) return {};
  zmq_msg_t message;
  zmq_msg_init(&message);
  Reply reply;
  if (zmq_msg_recv(&message, socket_, ZMQ_DONTWAIT) >= 0) {
    const auto* data = static_cast<const std::uint8_t*>(zmq_msg_data(&message));
    reply.bytes.assign(data, data + zmq_msg_size(&message));
  }
  zmq_msg_close(&message);
  flatbuffers::Verifier verifier(reply.bytes.data(), reply.bytes.size());
  if (!wire::VerifyReplyBuffer(verifier)) return {};
  return reply;
}

void TestClient::keep_notices(const Reply& reply) {
  if (reply->notices() == nullptr) return;
  for (const wire::Notice* notice : *reply->notices()) {
    if (notice->number() <= acknowledged_) continue;
    acknowledged_ = notice->number();
    notices_.push_back(*notice);
  }
}

std::uint64_t TestClient::send(wire::RequestBody type, const Body& body) {
  flatbuffers::FlatBufferBuilder builder;
  const auto offset = body(builder);
  const wire::Id128 secret(ticket_.secret_a, ticket_.secret_b);
  ++request_;
  wire::FinishRequestBuffer(builder, wire::CreateRequest(builder, ticket_.client, &secret, request_,
                                                         acknowledged_, type, offset));
  const std::uint8_t* const data = builder.GetBufferPointer();
  send_frames({{data, data + builder.GetSize()}});
  return request_;
}

void TestClient::send_status() {
  send(wire::RequestBody::Status,
       [](auto& builder) { return wire::CreateStatus(builder).Union(); });
}

TestClient::Reply TestClient::ask(wire::RequestBody type, const Body& body) {
  const std::uint64_t request = send(type, body);
  const auto deadline = Clock::now() + kPatience;
  while (true) {
    auto reply = receive(std::chrono::milliseconds(left_ms(deadline)));
    if (!reply.has_arrived()) return reply;
    keep_notices(reply);
    if (reply->request() == request) return reply;
  }
}

wire::ErrorCode TestClient::notice(std::uint64_t sequence) {
  const auto deadline = Clock::now() + kPatience;
  while (true) {
    for (std::size_t i = 0; i < notices_.size(); ++i) {
      if (notices_[i].sequence() != sequence) continue;
      const wire::ErrorCode code = notices_[i].code();
      notices_.erase(notices_.begin() + static_cast<std::ptrdiff_t>(i));
      return code;
    }
    const auto message = receive(std::chrono::milliseconds(left_ms(deadline)));
    if (!message.has_arrived()) return wire::ErrorCode::deadline;
    keep_notices(message);
  }
}

TestClient::Reply TestClient::hello() {
  return ask(wire::RequestBody::Hello,
             [](auto& builder) { return wire::CreateHelloDirect(builder, 1, "test").Union(); });
}

TestClient::Reply TestClient::bye() {
  return ask(wire::RequestBody::Bye,
             [](auto& builder) { return wire::CreateBye(builder).Union(); });
}

TestClient::Reply TestClient::attach_pool(const TestLayout& layout) {
  return ask(wire::RequestBody::AttachPool, [&](auto& builder) {
    const std::vector<wire::LayerGroup> groups = {
        wire::LayerGroup(0, 0, 0, layout.layer_count, 1, 4, 4, 0, 0)};
    const auto made = wire::CreateLayoutDirect(builder, layout.block_tokens, &groups);
    return wire::CreateAttachPool(builder, made).Union();
  });
}

namespace {

auto make_namespace(flatbuffers::FlatBufferBuilder& builder) {
  const std::vector<std::uint8_t> weights = {'w', '1'};
  const std::vector<std::uint8_t> config = {'c'};
  return wire::CreateNamespaceDirect(builder, &weights, &config);
}

}  // namespace

TestClient::Reply TestClient::open(std::uint64_t sequence,
                                   const std::vector<std::uint32_t>& tokens) {
  return ask(wire::RequestBody::Open, [&](auto& builder) {
    return wire::CreateOpenDirect(builder, sequence, make_namespace(builder), &tokens).Union();
  });
}

TestClient::Reply TestClient::admit(std::uint64_t sequence, std::uint32_t new_tokens) {
  return ask(wire::RequestBody::Admit, [&](auto& builder) {
    return wire::CreateAdmit(builder, sequence, new_tokens).Union();
  });
}

TestClient::Reply TestClient::step(std::uint64_t step_seq, std::uint64_t completed,
                                   const std::vector<TestStepItem>& items) {
  return ask(wire::RequestBody::Step, [&](auto& builder) {
    std::vector<wire::StepItem> sent;
    std::vector<std::uint32_t> tokens;
    for (const TestStepItem& item : items) {
      sent.emplace_back(item.sequence, static_cast<std::uint8_t>(item.op),
                        static_cast<std::uint32_t>(tokens.size()),
                        static_cast<std::uint32_t>(item.tokens.size()), item.value);
      tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
    }
    return wire::CreateStepDirect(builder, step_seq, completed, &sent, &tokens).Union();
  });
}

TestClient::Reply TestClient::lookup(const std::vector<std::uint32_t>& tokens) {
  return ask(wire::RequestBody::Lookup, [&](auto& builder) {
    return wire::CreateLookupDirect(builder, make_namespace(builder), &tokens).Union();
  });
}

TestClient::Reply TestClient::status() {
  return ask(wire::RequestBody::Status,
             [](auto& builder) { return wire::CreateStatus(builder).Union(); });
}

TestClient::Reply TestClient::demote(wire::Tier tier) {
  return ask(wire::RequestBody::Demote,
             [&](auto& builder) { return wire::CreateDemote(builder, tier).Union(); });
}

TestClient::Reply TestClient::flush() {
  return ask(wire::RequestBody::Flush,
             [](auto& builder) { return wire::CreateFlush(builder).Union(); });
}

std::map<std::string, std::uint64_t> TestClient::counters() {
  std::map<std::string, std::uint64_t> found;
  const auto reply = status();
  if (!reply.has_arrived() || reply->body_as_StatusReply() == nullptr) return found;
  for (const wire::Counter* counter : *reply->body_as_StatusReply()->counters()) {
    found.emplace(counter->name()->str(), counter->value());
  }
  return found;
}

std::uint64_t TestClient::counter(const std::string& name) {
  const auto all = counters();
  const auto found = all.find(name);
  return found == all.end() ? 0 : found->second;
}

}  // namespace kv::tests
