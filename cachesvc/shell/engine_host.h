// EngineHost: drives the Engine in the service: requests from the ROUTER socket, reports of the
// workers and time go in; replies, notices and transfers go out. Owner: the service. Threads: the
// loop thread only; nothing here waits. Cost: a turn takes at most kRequestsPerTurn requests, then
// gives way to the other events of the loop.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/core/engine.h"
#include "cachesvc/shell/block_memory.h"
#include "cachesvc/shell/client_registry.h"
#include "cachesvc/shell/completion_queue.h"
#include "cachesvc/shell/copy_workers.h"
#include "cachesvc/shell/disk_worker.h"
#include "cachesvc/shell/event_loop.h"
#include "cachesvc/shell/log.h"
#include "cachesvc/shell/router_socket.h"
#include "cachesvc/wire/reply_encoder.h"
#include "cachesvc/wire/request_decoder.h"
#include "cachesvc/wire/shell_counters.h"

namespace kv::shell {

class EngineHost {
 public:
  static constexpr int kRequestsPerTurn = 64;

  // All outlive the host.
  struct Parts {
    EventLoop& loop;
    const Logger& log;
    RouterSocket& router;
    ClientRegistry& clients;
    BlockMemory& memory;
    CompletionQueue& completions;
    CopyWorkers& copies;
    DiskWorker& disk;
    codec::ShellCounters& counters;
  };
  struct Options {
    core::Engine::Options engine;
    codec::Id128 boot;
    ClientId own_client;  // for the flush at the end; no one else's
    std::size_t message_bytes_max = codec::kMessageBytesMax;  // a longer request is too_large
    std::function<void(ClientId)> bye;                        // a client said it; may be empty
    std::string disk_path;                                    // for messages
    std::function<void(ClientId)> ended{};  // with its lease, nothing of it is fenced; may be empty
  };

  EngineHost(const Parts& parts, const Options& options);

  // Blocks of this layout are on the disk: makes the tiers for it, and recovers them while serving.
  void recover(const KvLayout& layout);
  // Why the configured disk tier is off, for people: status says so.
  void set_disk_problem(std::string problem) { encoder_.set_disk_problem(std::move(problem)); }

  // A client was taken in; its process is dead (or it said Bye and is forgotten).
  void attach(ClientId id, const ClientRegistry::Client& client);
  void remove(ClientId id);

  void tick();  // time passed: at least every 100 ms
  // What waits: completions, requests, work that goes on. Comes back by itself when more waits.
  void turn();

  // No request is read any more.
  void stop_receiving() { is_receiving_ = false; }
  // Makes everything durable that can be; then `done` is called, once.
  void flush(std::function<void(const core::Reply&)> done);

  // One line a tier for the corrupt and the failed blocks that no line told yet. By itself at most
  // once a second: a broken disk must not fill the log.
  void log_bad_blocks();

  [[nodiscard]] core::StatusReply status() const { return engine_.status(); }

 private:
  void step(const core::InputView& input);
  void receive_requests();
  void receive_request(std::span<const std::byte> frame, std::string_view identity);
  [[nodiscard]] bool reads_replies(ClientRegistry::Client& client, const codec::Envelope& envelope);
  void refuse(std::string_view identity, const codec::Envelope& envelope, const Error& error);

  void carry_out();
  void define_memory();
  void start_transfers();
  void send_replies();
  void send_notices();
  void end_clients();
  void send(ClientRegistry::Client& client, std::span<const std::byte> frame);
  RouterSocket::Sent send(std::string_view identity, std::span<const std::byte> frame);

  void handle(const TransferCompletion& completion);
  void handle(const DiskOpened& completion);
  void handle(const DiskScanned& completion);
  void handle(const DiskSyncCompletion& completion);
  void report_disk_failure(const Error& error);
  void log_bad_blocks_seldom();

  Parts parts_;
  ClientId own_client_;
  std::size_t message_bytes_max_;
  std::function<void(ClientId)> bye_;
  std::string disk_path_;
  std::function<void(ClientId)> ended_;
  core::Engine engine_;
  codec::RequestDecoder decoder_;
  codec::ReplyEncoder encoder_;
  core::Actions actions_;
  std::vector<Completion> completions_;
  std::vector<core::RecoveredEntry> recovered_;
  std::vector<Token> recovered_tokens_;
  std::vector<ClientId> told_;  // clients that got their notices with a reply of this step
  std::function<void(const core::Reply&)> flushed_;
  std::uint64_t own_request_ = 0;
  RequestId flush_request_;
  std::array<std::uint64_t, kTierCount> logged_corrupt_{}, logged_failed_{};
  TimePoint ticked_at_;
  TimePoint bad_blocks_logged_at_{};
  bool has_bad_blocks_ = false;
  bool continue_wanted_ = false;
  bool turn_posted_ = false;
  bool is_receiving_ = true;
  bool is_recovering_ = false;
};

}  // namespace kv::shell
