// InProcessService: the whole service without sockets: an Engine, memory for its pools and a
// synchronous executor that copies real bytes with real checksums. When a call returns, everything
// that it started (loads, saves, demotion) has ended. Time is virtual: leases do not run out by
// themselves.
//
// Owner: the test; sessions must not outlive it. Threads: none. Cost: the copies of each call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/base/time_point.h"
#include "allocator/namespace.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/inputs.h"
#include "tests/support/in_process_executor.h"
#include "tiering/stores/disk_store.h"

namespace kv::client {
class Session;
}

namespace kv::testing {

class InProcessService {
 public:
  struct Options {
    core::Engine::Options engine;  // tier_bytes of the disk: 0 turns it off
    // Where the disk tier lies (a DiskStore). Empty: a MemoryBlobStore, which survives restart()
    // too.
    std::string disk_directory;
  };
  explicit InProcessService(const Options& options);
  ~InProcessService();
  InProcessService(const InProcessService&) = delete;
  InProcessService& operator=(const InProcessService&) = delete;
  InProcessService(InProcessService&&) = delete;
  InProcessService& operator=(InProcessService&&) = delete;

  // A new client of this tenant; its end says Bye. After restart() it answers `stale`.
  [[nodiscard]] std::unique_ptr<client::Session> session(std::string_view tenant = "test");

  // requires of all verbs: the request is accepted (KV_CHECK).
  core::DemoteReply demote(Tier tier);
  core::FlushReply flush();
  [[nodiscard]] core::StatusReply status() const { return engine_->status(); }
  core::LookupReply lookup(const NamespaceFields& fields, std::span<const Token> tokens,
                           std::string_view tenant = "test");
  // A new Engine with empty device and host tiers, which recovers what lies on disk. Not a flush.
  void restart();

  [[nodiscard]] const core::Engine& engine() const { return *engine_; }
  [[nodiscard]] const InProcessExecutor& executor() const { return executor_; }
  [[nodiscard]] InProcessExecutor& executor() { return executor_; }
  // The disk tier, when no directory was given.
  [[nodiscard]] MemoryBlobStore& memory_disk() { return memory_disk_; }

  // --- for sessions
  [[nodiscard]] std::uint64_t boot() const { return boot_; }
  [[nodiscard]] ClientId attach(core::ClientRole role, std::string_view tenant);
  // Steps the engine and carries out everything that follows from it.
  void drive(const core::InputView& input);
  // The reply to this request. requires: drive() was called with it.
  [[nodiscard]] core::Reply take_reply(ClientId client, RequestId request);
  // Notices of the client since the last call, oldest first.
  [[nodiscard]] std::vector<core::Notice> take_notices(ClientId client);

 private:
  struct Pending;
  void step(const core::InputView& input);
  void carry_out();
  void start();
  void open_disk(const KvLayout& layout);
  [[nodiscard]] std::optional<KvLayout> disk_layout() const;
  void recover();
  [[nodiscard]] core::Reply admin_request(core::InputView input);
  [[nodiscard]] core::RequestHeader admin_header();

  Options options_;
  std::unique_ptr<core::Engine> engine_;
  InProcessExecutor executor_;
  MemoryBlobStore memory_disk_;
  std::optional<KvLayout> memory_disk_layout_;  // once it was written to
  std::unique_ptr<DiskStore> disk_;
  core::Actions actions_;
  std::vector<Pending> pending_;
  std::map<std::pair<ClientId, RequestId>, core::Reply> replies_;
  std::map<ClientId, std::vector<core::Notice>> notices_;
  std::uint64_t boot_ = 0;
  std::uint64_t next_client_ = 1;
  ClientId admin_;
  std::uint64_t admin_request_ = 0;
  TimePoint now_{};
};

}  // namespace kv::testing
