#include "tests/plugins/client/fake_service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "allocator/base/check.h"

namespace kv::test {
namespace {

int listen_at(const std::string& path) {
  unlink(path.c_str());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  KV_CHECK(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  KV_CHECK(bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  KV_CHECK(listen(made, 16) == 0);
  return made;
}

void send_with_descriptor(int connection, const Bytes& packet, int descriptor) {
  iovec part{.iov_base = const_cast<std::byte*>(packet.data()), .iov_len = packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  (void)sendmsg(connection, &header, MSG_NOSIGNAL);
}

}  // namespace

FakeService::FakeService(const Options& options, Script script)
    : options_(options), script_(std::move(script)) {
  context_ = zmq_ctx_new();
  (void)zmq_ctx_set(context_, 10, 0);  // aligned frames
  router_ = zmq_socket(context_, ZMQ_ROUTER);
  const int linger = 100;
  KV_CHECK(zmq_setsockopt(router_, ZMQ_LINGER, &linger, sizeof linger) == 0);
  KV_CHECK(zmq_bind(router_, ("ipc://" + options.dir + "/service.sock").c_str()) == 0);
  listener_ = listen_at(options.dir + "/attach.sock");
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (options.pool_bytes > 0) {
    pool_file_ = memfd_create("kv-test-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    KV_CHECK(ftruncate(pool_file_, static_cast<off_t>(options.pool_bytes)) == 0);
    if (options.seal_pool) KV_CHECK(fcntl(pool_file_, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* base =
        mmap(nullptr, options.pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool_file_, 0);
    KV_CHECK(base != MAP_FAILED);
    pool_ = static_cast<std::byte*>(base);
  }
  thread_ = std::thread([this] { run(); });
}

FakeService::~FakeService() {
  stop_ = true;
  (void)eventfd_write(wake_, 1);
  thread_.join();
  for (const int connection : connections_) close(connection);
  close(listener_);
  close(wake_);
  if (pool_file_ >= 0) close(pool_file_);
  if (pool_ != nullptr) munmap(pool_, options_.pool_bytes);
  zmq_close(router_);
  zmq_ctx_term(context_);
}

void FakeService::send(Bytes frame) {
  {
    const std::lock_guard lock(mutex_);
    outbox_.push_back(std::move(frame));
  }
  (void)eventfd_write(wake_, 1);
}

std::vector<FakeService::Seen> FakeService::seen(wire::RequestBody type) const {
  const std::lock_guard lock(mutex_);
  std::vector<Seen> found;
  std::ranges::copy_if(seen_, std::back_inserter(found),
                       [type](const Seen& request) { return request.type == type; });
  return found;
}

bool FakeService::wait_seen(wire::RequestBody type, std::size_t count,
                            std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] {
    const auto found =
        std::ranges::count_if(seen_, [type](const Seen& request) { return request.type == type; });
    return static_cast<std::size_t>(found) >= count;
  });
}

void FakeService::run() {
  while (!stop_) {
    std::vector<zmq_pollitem_t> items{{router_, 0, ZMQ_POLLIN, 0},
                                      {nullptr, listener_, ZMQ_POLLIN, 0},
                                      {nullptr, wake_, ZMQ_POLLIN, 0}};
    for (const int connection : connections_) items.push_back({nullptr, connection, ZMQ_POLLIN, 0});
    if (zmq_poll(items.data(), static_cast<int>(items.size()), -1) < 0) continue;
    for (std::size_t i = 3; i < items.size(); ++i) {
      if (items[i].revents != 0) serve_attach(items[i].fd);
    }
    if (items[1].revents != 0) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection >= 0) connections_.push_back(connection);
    }
    if (items[0].revents != 0) serve_router();
    if (items[2].revents != 0) {
      eventfd_t ignored = 0;
      (void)eventfd_read(wake_, &ignored);
      std::deque<Bytes> frames;
      {
        const std::lock_guard lock(mutex_);
        frames.swap(outbox_);
      }
      for (const Bytes& frame : frames) push(frame);
    }
  }
}

void FakeService::serve_router() {
  while (true) {
    Bytes identity(64);
    const int identity_bytes = zmq_recv(router_, identity.data(), identity.size(), ZMQ_DONTWAIT);
    if (identity_bytes < 0) return;
    identity.resize(static_cast<std::size_t>(identity_bytes));
    Seen request;
    request.frame.resize(std::size_t{2} << 20);
    const int bytes = zmq_recv(router_, request.frame.data(), request.frame.size(), 0);
    KV_CHECK(bytes >= 0);
    request.frame.resize(static_cast<std::size_t>(bytes));
    flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(request.frame.data()),
                                   request.frame.size());
    KV_CHECK(wire::VerifyRequestBuffer(verifier));
    request.client = request.message().client();
    request.request = request.message().request();
    request.notices_acknowledged = request.message().notices_acknowledged();
    request.type = request.message().body_type();
    identity_ = identity;
    std::optional<std::vector<Bytes>> answers;
    if (script_) answers = script_(request);
    if (!answers.has_value()) answers = default_answer(request);
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(std::move(request));
      changed_.notify_all();
    }
    for (const Bytes& frame : *answers) push(frame);
  }
}

std::vector<Bytes> FakeService::default_answer(const Seen& request) const {
  ReplyParts parts;
  parts.boot = options_.boot;
  parts.request = request.request;
  if (request.type == wire::RequestBody::Hello) {
    parts.body_type = wire::ReplyBody::HelloReply;
    parts.body = [this](auto& builder) {
      return wire::CreateHelloReply(builder, options_.lease_ms, 64).Union();
    };
  }
  return {reply_frame(parts)};
}

void FakeService::push(const Bytes& frame) {
  (void)zmq_send(router_, identity_.data(), identity_.size(), ZMQ_SNDMORE);
  (void)zmq_send(router_, frame.data(), frame.size(), 0);
}

void FakeService::serve_attach(int connection) {
  alignas(16) std::byte packet[1'024];
  const ssize_t bytes = recv(connection, packet, sizeof packet, 0);
  if (bytes <= 0) {
    close(connection);
    std::erase(connections_, connection);
    return;
  }
  if (!options_.answer_attach) return;
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(packet),
                                 static_cast<std::size_t>(bytes));
  KV_CHECK(wire::VerifyAttachMessageBuffer(verifier));
  const auto& request = *wire::GetAttachMessage(packet)->body_as_AttachRequest();
  const bool wants_pool = request.kind() == wire::AttachKind::device_pool;
  if (!wants_pool) ++clients_;
  send_with_descriptor(connection,
                       attach_frame(wire::ErrorCode::ok, "", options_.boot, clients_, {11, 13},
                                    wants_pool ? options_.pool_bytes : 0),
                       wants_pool ? pool_file_ : -1);
}

}  // namespace kv::test
