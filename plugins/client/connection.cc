#include "plugins/client/connection.h"

#include <algorithm>
#include <system_error>

#include <unistd.h>

#include "plugins/client/loss.h"
#include "plugins/client/reply_decoder.h"

namespace kv::client {
namespace {

constexpr std::size_t kReadyNoticesMax = 65'536;
constexpr Error kLate{ErrorCode::deadline, "the service did not answer in time", {}};

}  // namespace

Connection::Connection(const Options& options, AttachSocket attach, DealerSocket socket,
                       const AttachAnswer& identity)
    : process_(getpid()),
      attach_path_(options.addresses.attach),
      attach_(std::move(attach)),
      socket_(std::move(socket)),
      boot_(identity.boot),
      secret_(identity.secret),
      client_(identity.client),
      last_sent_(Clock::now()) {}

Result<std::unique_ptr<Connection>> Connection::open(const Options& options, Deadline deadline) {
  KV_TRY(auto attach, AttachSocket::connect(options.addresses.attach, deadline));
  KV_TRY(const auto identity, attach.enter(options.admin, deadline));
  KV_TRY(auto socket, DealerSocket::connect(options.addresses.service));
  std::unique_ptr<Connection> made(
      new Connection(options, std::move(attach), std::move(socket), identity));
  const HelloMessage hello{
      .name = options.name, .instance = options.instance, .rank = options.rank};
  KV_TRY(const auto answer, made->ask<HelloAnswer>(hello, deadline));
  if (answer.message_bytes != 0) {
    made->limits_.bytes =
        std::clamp<std::size_t>(answer.message_bytes, MessageLimits::kBytesMin, kRequestBytesMax);
    made->encoder_.limit_bytes(made->limits_.bytes);
  }
  KV_TRY_VOID(made->start_heartbeats(answer.lease_ms));
  return made;
}

Connection::~Connection() {
  if (heartbeats_.joinable()) {
    {
      const std::lock_guard lock(stop_mutex_);
      stop_ = true;
    }
    stop_changed_.notify_all();
    heartbeats_.join();
  }
  // For an expired client, Bye says that it touches no slot any more.
  if (state_ == State::attached || state_ == State::expired) {
    (void)call(ByeMessage{}, in(kByeTime));
  }
}

Result<ReplyMessage> Connection::call(const RequestMessage& message, Deadline deadline,
                                      std::optional<RequestId>* id) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::attached && !std::holds_alternative<ByeMessage>(message)) {
    return lost_error();
  }
  if (Clock::now() >= deadline) return kLate;
  const bool repeats = id != nullptr && id->has_value();
  RequestId request = repeats ? **id : next_request();
  saw_corrupt_ = false;
  auto reply = exchange(message, deadline, request);
  if (id != nullptr) *id = request;
  if (!reply) {
    if (reply.error().code == ErrorCode::deadline && was_silent()) return give_up_lease();
    const bool garbled = reply.error().code == ErrorCode::deadline && saw_corrupt_;
    if (garbled) return Error{ErrorCode::corrupt, "the service sent no valid reply in time", {}};
    return reply.error();
  }
  if (reply->error.code != ErrorCode::ok) return reply->error;
  return reply;
}

Result<ReplyMessage> Connection::exchange(const RequestMessage& message, Deadline deadline,
                                          RequestId& id) {
  KV_TRY(auto frame, encode(id, message));
  Clock::time_point send_at = Clock::now();
  std::optional<Error> busy;
  while (true) {
    auto now = Clock::now();
    bool blocked = false;
    if (now >= send_at) {
      blocked = !send(frame);
      if (!blocked) send_at = resend_time(deadline);
    }
    wait(blocked, std::min(deadline, blocked ? resend_time(deadline) : send_at));
    // What was sent before a hang-up is lost: the sooner it is repeated, the sooner a service that
    // restarted tells so.
    if (!watch_attach_) send_at = std::min(send_at, Clock::now() + kResendTimeMin);
    while (auto reply = receive()) {
      if (state_ == State::restarted) return lost_error();
      if (reply->request != id) continue;  // late, or a heartbeat's
      if (reply->error.code != ErrorCode::busy) return std::move(*reply);
      // A new id: the refusal may be what the service keeps for the old one.
      busy = reply->error;
      id = next_request();
      KV_TRY(frame, encode(id, message));
      send_at = Clock::now() + std::chrono::microseconds(std::max(reply->retry_after_us, 1'000U));
    }
    const bool lost = state_ == State::restarted || state_ == State::gone ||
                      (state_ == State::expired && !std::holds_alternative<ByeMessage>(message));
    if (lost) return lost_error();
    if (Clock::now() >= deadline) return busy.value_or(kLate);
  }
}

Result<std::span<const std::byte>> Connection::encode(RequestId request,
                                                      const RequestMessage& message) {
  return encoder_.encode({.client = client_,
                          .secret = secret_,
                          .request = request,
                          .notices_acknowledged = last_notice_},
                         message);
}

// Repeating a request renews the lease, so that no heartbeat is needed beside it.
Deadline Connection::resend_time(Deadline deadline) const {
  const auto now = Clock::now();
  const Clock::duration slice = std::max<Clock::duration>((deadline - now) / 4, kResendTimeMin);
  return now + std::min(slice, heartbeat_);
}

Error Connection::lost_error() const {
  switch (state_) {
    case State::expired:
      return {ErrorCode::stale, "the lease expired: attach again", {}};
    case State::restarted:
      return {ErrorCode::stale, kServiceRestarted, {}};
    case State::attached:
    case State::gone:
      break;
  }
  return {ErrorCode::unavailable, kServiceGone, {}};
}

std::optional<ReplyMessage> Connection::receive() {
  while (auto frame = socket_.receive()) {
    auto reply = decode_reply(frame->bytes());
    if (!reply) {
      saw_corrupt_ = true;  // it has no id to blame: a reply that does not come is repeated
      continue;
    }
    note(*reply);
    return std::move(*reply);
  }
  return std::nullopt;
}

void Connection::note(const ReplyMessage& reply) {
  if (reply.boot != boot_) {
    if (state_ == State::gone) state_ = State::restarted;
    if (state_ != State::restarted) lose(State::restarted);
    return;
  }
  if (reply.error.code != ErrorCode::stale) {
    overslept_ = false;
  } else if (state_ == State::attached) {
    state_ = State::expired;  // the notice may be lost, and nobody keeps it for who has ended
  }
  for (const Notice& notice : reply.notices) {
    if (notice.number <= last_notice_) continue;
    last_notice_ = notice.number;
    if (notice.kind == NoticeKind::lease_expired) {
      state_ = State::expired;
      continue;
    }
    if (ready_.size() >= kReadyNoticesMax) ready_.erase(ready_.begin());
    ready_.insert_or_assign(notice.sequence, notice.code);
  }
}

void Connection::wait(bool for_send, Deadline deadline) {
  const int descriptor = watch_attach_ ? attach_.descriptor() : -1;
  if (socket_.wait(for_send, descriptor, deadline)) watch_attach_ = false;
  if (!watch_attach_) look_for_service();
}

// The attach socket hung up: the service ended, or it only dropped the connection. Nobody listening
// tells the two apart at once, without waiting for the deadline.
void Connection::look_for_service() {
  const auto probe = AttachSocket::connect(attach_path_, Clock::now());
  if (!probe && probe.error().code == ErrorCode::unavailable && state_ != State::gone) {
    lose(State::gone);
  }
}

Result<ErrorCode> Connection::wait_ready(SequenceId sequence, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  Clock::time_point send_at = resend_time(deadline);
  while (true) {
    if (const auto found = ready_.find(sequence); found != ready_.end()) {
      const ErrorCode code = found->second;
      ready_.erase(found);
      return code;
    }
    if (state_ != State::attached) return lost_error();
    const auto now = Clock::now();
    if (now >= deadline) return was_silent() ? give_up_lease() : kLate;
    if (now >= send_at) {
      send_heartbeat();  // its reply repeats notices that were lost
      send_at = resend_time(deadline);
    }
    wait(false, std::min(deadline, send_at));
    while (receive().has_value()) {
    }
  }
}

// Nothing was sent for a lease: this process stood still, or nobody is there to send to.
bool Connection::is_silent() const { return Clock::now() - last_sent_ >= lease_; }

// Or it was so, and what was sent since then got no reply.
bool Connection::was_silent() const { return is_silent() || overslept_; }

// The service may not have told so yet, but whoever was silent for so long is no client any more.
Error Connection::give_up_lease() {
  if (state_ == State::attached) state_ = State::expired;
  return lost_error();
}

void Connection::forget(SequenceId sequence) {
  const std::lock_guard lock(mutex_);
  ready_.erase(sequence);
}

Result<PoolMemory> Connection::device_pool(std::uint64_t bytes, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::attached) return lost_error();
  return attach_.device_pool(bytes, deadline);
}

Result<PoolMemory> Connection::host_arena(Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::attached) return lost_error();
  return attach_.host_arena(deadline);
}

void Connection::send_heartbeat() {
  const auto frame = encode(next_request(), HeartbeatMessage{});
  if (frame) (void)send(*frame);
}

bool Connection::send(std::span<const std::byte> frame) {
  if (!socket_.send(frame)) return false;
  const auto now = Clock::now();
  if (is_silent()) overslept_ = true;
  last_sent_ = now;
  return true;
}

// A service that is gone gives nothing to others any more.
void Connection::lose(State state) {
  if (is_silent()) overslept_ = true;
  state_ = state;
}

bool Connection::is_of_this_process() const { return process_ == getpid(); }

bool Connection::held_its_blocks() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::attached && is_silent()) return false;
  return state_ != State::expired && !overslept_;
}

Result<void> Connection::start_heartbeats(std::uint32_t lease_ms) {
  lease_ = std::chrono::milliseconds(lease_ms);
  heartbeat_ = std::clamp<Clock::duration>(std::chrono::milliseconds(lease_ms) / 4,
                                           std::chrono::milliseconds(20), std::chrono::minutes(1));
  try {
    heartbeats_ = std::thread([this] { run_heartbeats(); });
  } catch (const std::system_error&) {
    return Error{ErrorCode::unavailable, "no thread for the heartbeats", {}};
  }
  return {};
}

void Connection::run_heartbeats() {
  std::unique_lock stop_lock(stop_mutex_);
  while (!stop_changed_.wait_for(stop_lock, heartbeat_ / 2, [this] { return stop_; })) {
    // A caller that holds the lock waits for a reply, and renews the lease itself.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    while (receive().has_value()) {
    }
    if (state_ == State::attached && Clock::now() - last_sent_ >= heartbeat_ / 2) send_heartbeat();
  }
}

}  // namespace kv::client
