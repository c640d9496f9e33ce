#include "plugins/client/attach.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "plugins/client/aligned_frame.h"
#include "plugins/client/default_dir.h"
#include "plugins/client/loss.h"
#include "plugins/client/static_text.h"
#include "plugins/client/wait_time.h"
#include "schemas/attach_generated.h"

namespace kv::client {
namespace {

constexpr Error kLate{
    ErrorCode::deadline, "the service did not answer on the attach socket in time", {}};
constexpr Error kGone{ErrorCode::unavailable, kAttachClosed, {}};
constexpr Error kNobody{ErrorCode::unavailable, kNobodyAnswers, {}};
constexpr std::size_t kPacketBytesMax = 4'096;
constexpr std::size_t kDescriptorsMax = 4;

static_assert(static_cast<int>(AttachKind::host_arena) ==
              static_cast<int>(wire::AttachKind::host_arena));

// False when the deadline passed first.
bool wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    pollfd entry{.fd = descriptor, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, wait_milliseconds(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the call that follows reports it
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

Result<void> send_packet(int descriptor, std::span<const std::byte> packet, Deadline deadline) {
  while (true) {
    if (send(descriptor, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return kGone;
    if (!wait_for(descriptor, POLLOUT, deadline)) return kLate;
  }
}

}  // namespace

std::vector<std::byte> encode_attach_request(AttachKind kind, bool admin) {
  flatbuffers::FlatBufferBuilder builder(128);
  const auto request = wire::CreateAttachRequest(builder, kProtocolVersion,
                                                 static_cast<wire::AttachKind>(kind), admin);
  wire::FinishAttachMessageBuffer(
      builder,
      wire::CreateAttachMessage(builder, wire::AttachBody::AttachRequest, request.Union()));
  const auto bytes = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return {bytes.begin(), bytes.end()};
}

Result<AttachAnswer> decode_attach_reply(std::span<const std::byte> packet) {
  constexpr Error kCorrupt{ErrorCode::corrupt, "a packet is no valid attach reply", "attach"};
  const AlignedFrame aligned(packet);
  flatbuffers::Verifier verifier(aligned.data(), aligned.size(), 8, 16);
  if (!wire::VerifyAttachMessageBuffer(verifier)) return kCorrupt;
  const wire::AttachMessage& message = *wire::GetAttachMessage(aligned.data());
  const wire::AttachReply* reply = message.body_as_AttachReply();
  if (reply == nullptr) return kCorrupt;
  if (static_cast<int>(reply->code()) >= kErrorCodeCount) return kCorrupt;
  if (reply->code() != wire::ErrorCode::ok) {
    const auto code = static_cast<ErrorCode>(reply->code());
    const auto* reason = reply->reason();
    const auto text =
        reason == nullptr ? std::string_view() : std::string_view(reason->c_str(), reason->size());
    return Error{code, static_text(text, error_name(code)), {}};
  }
  AttachAnswer answer;
  answer.client = ClientId(reply->client());
  answer.bytes = reply->bytes();
  answer.writable = reply->writable();
  if (reply->boot() != nullptr) answer.boot = {reply->boot()->a(), reply->boot()->b()};
  if (reply->secret() != nullptr) answer.secret = {reply->secret()->a(), reply->secret()->b()};
  return answer;
}

// One received packet with the descriptors that came beside it; closes what nobody took.
struct AttachSocket::Packet {
  alignas(16) std::array<std::byte, kPacketBytesMax> data{};
  std::size_t bytes = 0;
  std::array<int, kDescriptorsMax> descriptors{-1, -1, -1, -1};
  std::size_t descriptor_count = 0;

  Packet() = default;
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;
  Packet(Packet&&) = delete;
  Packet& operator=(Packet&&) = delete;
  ~Packet() {
    for (std::size_t i = 0; i < descriptor_count; ++i) close(descriptors[i]);
  }

  Result<void> receive(int socket_descriptor, Deadline deadline) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kDescriptorsMax)> control{};
    iovec vector{.iov_base = data.data(), .iov_len = data.size()};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t received = -1;
    while (received < 0) {
      if (!wait_for(socket_descriptor, POLLIN, deadline)) return kLate;
      received = recvmsg(socket_descriptor, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
      if (received < 0 && errno != EINTR && errno != EAGAIN) return kGone;
    }
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
         part = CMSG_NXTHDR(&header, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count && descriptor_count < kDescriptorsMax; ++i) {
        std::memcpy(&descriptors[descriptor_count++], CMSG_DATA(part) + i * sizeof(int),
                    sizeof(int));
      }
    }
    if (received == 0) return kGone;
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return Error{ErrorCode::corrupt, "an attach reply is longer than its kind allows", "attach"};
    }
    bytes = static_cast<std::size_t>(received);
    return {};
  }
};

Result<AttachSocket> AttachSocket::connect(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() > kSocketPathBytesMax) {
    return Error{ErrorCode::too_large, "a socket path has at most 107 bytes", "dir"};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  AttachSocket made;
  made.descriptor_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made.descriptor_ < 0) return Error{ErrorCode::unavailable, "no socket can be made", {}};
  while (::connect(made.descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) <
         0) {
    if (errno == EACCES || errno == EPERM) {
      return Error{ErrorCode::denied, "the service's directory belongs to somebody else", "dir"};
    }
    if (errno != EAGAIN && errno != EINTR) return kNobody;
    // The backlog is full, and a Unix socket offers no event for its room: look again soon.
    if (std::chrono::steady_clock::now() >= deadline) return kLate;
    (void)poll(nullptr, 0, 5);
  }
  return made;
}

AttachSocket::AttachSocket(AttachSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), lost_(std::exchange(other.lost_, false)) {}

AttachSocket& AttachSocket::operator=(AttachSocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(lost_, other.lost_);
  return *this;
}

AttachSocket::~AttachSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<AttachAnswer> AttachSocket::exchange(AttachKind kind, bool admin, Deadline deadline,
                                            Packet& packet) {
  if (lost_ || descriptor_ < 0) return kGone;
  lost_ = true;  // until the answer is here
  const auto sent = send_packet(descriptor_, encode_attach_request(kind, admin), deadline);
  // A service that refuses a connection says why before it closes it.
  const auto received = packet.receive(descriptor_, deadline);
  if (!received) return sent ? received.error() : sent.error();
  lost_ = false;
  return decode_attach_reply(std::span(packet.data).first(packet.bytes));
}

Result<AttachAnswer> AttachSocket::enter(bool admin, Deadline deadline) {
  Packet packet;
  return exchange(AttachKind::enter, admin, deadline, packet);
}

Result<PoolMemory> AttachSocket::device_pool(std::uint64_t bytes, Deadline deadline) {
  Packet packet;
  KV_TRY(const auto answer, exchange(AttachKind::device_pool, false, deadline, packet));
  if (packet.descriptor_count != 1 || answer.bytes < bytes || !answer.writable) {
    return Error{ErrorCode::corrupt, "the service passed no writable pool of the size it said",
                 "pool"};
  }
  return PoolMemory::map(packet.descriptors[0], bytes, true);
}

Result<PoolMemory> AttachSocket::host_arena(Deadline deadline) {
  Packet packet;
  KV_TRY(const auto answer, exchange(AttachKind::host_arena, false, deadline, packet));
  if (packet.descriptor_count != 1 || answer.bytes == 0) {
    return Error{ErrorCode::corrupt, "the service passed no host arena", "arena"};
  }
  return PoolMemory::map(packet.descriptors[0], answer.bytes, false);
}

}  // namespace kv::client
