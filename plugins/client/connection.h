// Connection: one attached client: its identity, its DEALER socket, its lease. Sends a request
// until its reply came, keeps what notices say, and renews the lease from a thread of its own.
//
// Owner: one Client. Threads: one caller at a time, beside the heartbeat thread. The socket is
// shared under one lock rather than owned by an IO thread (see README). Cost: one message each way
// a call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include <sys/types.h>

#include "allocator/base/result.h"
#include "plugins/client/attach.h"
#include "plugins/client/dealer_socket.h"
#include "plugins/client/default_dir.h"
#include "plugins/client/messages.h"
#include "plugins/client/request_encoder.h"

namespace kv::client {

class Connection {
 public:
  struct Options {
    Addresses addresses;
    std::string name;
    bool admin = false;
    std::uint64_t instance = 0;
    std::uint32_t rank = 0;
  };
  // Attaches and says hello. fails: unavailable (no service), denied, mismatch, deadline.
  [[nodiscard]] static Result<std::unique_ptr<Connection>> open(const Options& options,
                                                                Deadline deadline);
  // Says goodbye, for at most kByeTime.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  Connection(Connection&&) = delete;
  Connection& operator=(Connection&&) = delete;

  // The reply to the message, or its error. Repeats the request (with its id, which has no second
  // effect) while no reply comes, and asks again while the service is `busy`. With `id`: repeats
  // that request where it is set, and tells which one it was. fails: deadline; stale (the service
  // restarted or the lease expired: attach again); unavailable (the service is gone); what the
  // service answers.
  [[nodiscard]] Result<ReplyMessage> call(const RequestMessage& message, Deadline deadline,
                                          std::optional<RequestId>* id = nullptr);
  template <class Answer>
  [[nodiscard]] Result<Answer> ask(const RequestMessage& message, Deadline deadline,
                                   std::optional<RequestId>* id = nullptr) {
    KV_TRY(auto reply, call(message, deadline, id));
    if (auto* answer = std::get_if<Answer>(&reply.body)) return std::move(*answer);
    return Error{ErrorCode::corrupt, "the reply is to another kind of request", "reply"};
  }

  // The code of the sequence's sequence_ready notice, which is then forgotten.
  [[nodiscard]] Result<ErrorCode> wait_ready(SequenceId sequence, Deadline deadline);
  void forget(SequenceId sequence);

  [[nodiscard]] Result<PoolMemory> device_pool(std::uint64_t bytes, Deadline deadline);
  [[nodiscard]] Result<PoolMemory> host_arena(Deadline deadline);

  // See Session. Without a word from the service it is decided by the own clock: the lease may have
  // run out when nothing was sent for that long.
  [[nodiscard]] bool held_its_blocks();

  // False in a forked child: the socket's and the heartbeats' threads, and whoever held the lock at
  // that moment, are not there. Nothing but abandon() may be called, and it must not be destroyed.
  [[nodiscard]] bool is_of_this_process() const;
  void abandon() { attach_ = AttachSocket(); }

  [[nodiscard]] const Id128& boot() const { return boot_; }
  [[nodiscard]] ClientId client() const { return client_; }
  [[nodiscard]] const MessageLimits& limits() const { return limits_; }

  static constexpr std::chrono::milliseconds kByeTime{250};
  static constexpr std::chrono::milliseconds kResendTimeMin{200};

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { attached, expired, restarted, gone };

  Connection(const Options& options, AttachSocket attach, DealerSocket socket,
             const AttachAnswer& identity);

  // All of these: requires the lock.
  [[nodiscard]] RequestId next_request() { return RequestId(++last_request_); }
  [[nodiscard]] Result<std::span<const std::byte>> encode(RequestId request,
                                                          const RequestMessage& message);
  [[nodiscard]] Deadline resend_time(Deadline deadline) const;
  [[nodiscard]] Error lost_error() const;
  [[nodiscard]] std::optional<ReplyMessage> receive();  // the next valid one, its notices noted
  void note(const ReplyMessage& reply);
  void wait(bool for_send, Deadline deadline);
  void send_heartbeat();
  [[nodiscard]] bool send(std::span<const std::byte> frame);
  void lose(State state);
  [[nodiscard]] bool is_silent() const;
  [[nodiscard]] bool was_silent() const;
  [[nodiscard]] Error give_up_lease();
  void look_for_service();
  [[nodiscard]] Result<ReplyMessage> exchange(const RequestMessage& message, Deadline deadline,
                                              RequestId& id);

  [[nodiscard]] Result<void> start_heartbeats(std::uint32_t lease_ms);
  void run_heartbeats();

  pid_t process_;
  std::string attach_path_;
  AttachSocket attach_;
  DealerSocket socket_;
  RequestEncoder encoder_;
  Id128 boot_, secret_;
  ClientId client_;
  MessageLimits limits_;  // set once, by the hello

  std::mutex mutex_;  // of everything above and below, but for the stop of the heartbeats
  State state_ = State::attached;
  std::uint64_t last_request_ = 0;
  std::uint64_t last_notice_ = 0;
  std::map<SequenceId, ErrorCode> ready_;
  bool watch_attach_ = true;  // its hang-up was not yet seen
  bool saw_corrupt_ = false;
  Clock::duration heartbeat_ = std::chrono::seconds(1);
  Clock::duration lease_ = std::chrono::minutes(1);
  Clock::time_point last_sent_;
  bool overslept_ = false;  // nothing was sent for a lease; no reply since then

  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread heartbeats_;
};

}  // namespace kv::client
