#include "cachesvc/shell/service.h"

#include <cstdlib>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>

#include "cachesvc/shell/accept_guard.h"
#include "cachesvc/shell/attach_server.h"
#include "cachesvc/shell/disk_place.h"
#include "cachesvc/shell/engine_host.h"
#include "cachesvc/shell/kernel_sources.h"
#include "cachesvc/shell/receive_guard.h"
#include "tiering/stores/disk_store.h"
#include "tiering/stores/open_attempt.h"

namespace kv::shell {
namespace {

constexpr std::chrono::milliseconds kTick(50);
constexpr std::uint32_t kNoticesSpare = 64;
constexpr std::size_t kOtherThreads = 6;            // the disk's, ZeroMQ's 2, RocksDB's 3
constexpr std::size_t kWaitingConnectionsMax = 64;  // of one user, to the attach socket

StartProblem to_problem(const Error& error, std::string_view what, std::string remedy) {
  return {std::string(what) + ": " + std::string(error.reason), std::move(remedy)};
}

DiskStore::Io to_io(std::string_view word) {
  if (word == "io_uring") return DiskStore::Io::io_uring_direct;
  if (word == "plain") return DiskStore::Io::plain;
  return DiskStore::Io::automatic;
}

std::string disk_path(const Config& config) { return config.dir + "/disk"; }

// Calls `on_opened` on the worker's thread.
DiskWorker::Opener disk_opener(const Config& config,
                               std::function<void(const DiskStore&)> on_opened) {
  return [config, report = std::move(on_opened)](
             const KvLayout& layout) -> Result<std::unique_ptr<BlobStore>> {
    KV_TRY(std::unique_ptr<DiskStore> store, DiskStore::open({.directory = disk_path(config),
                                                              .bytes = config.disk_bytes,
                                                              .io = to_io(config.disk_io)},
                                                             layout));
    report(*store);
    return std::unique_ptr<BlobStore>(std::move(store));
  };
}

core::Engine::Options engine_options(const Config& config, bool disk_is_usable) {
  core::Engine::Options options;
  options.tier_bytes[tier_index(Tier::device)] = config.device_bytes;
  options.tier_bytes[tier_index(Tier::host)] = config.host_bytes;
  options.tier_bytes[tier_index(Tier::disk)] = disk_is_usable ? config.disk_bytes : 0;
  options.client_capacity =
      config.client_capacity + 1;  // and the service's own, for the last flush
  options.sequence_capacity = config.sequences;
  options.prompt_tokens_max = config.prompt_tokens;
  options.client_prompt_tokens_max = config.client_prompt_tokens;
  options.index_bytes_max = config.index_bytes;
  options.message_bytes_max = static_cast<std::uint32_t>(config.message_bytes);
  options.credits_per_client = config.credits;
  options.lease = config.lease;
  options.hash_seed = random_id().a;
  options.write_through = config.write_through;
  return options;
}

// Libraries meet the lack of a thread with abort(): it is found out before them.
bool can_make_threads(std::size_t count) {
  std::mutex gate;
  std::vector<std::thread> threads;
  threads.reserve(count);
  bool could = true;
  {
    const std::lock_guard closed(gate);  // all of them at one time
    try {
      while (threads.size() < count) {
        threads.emplace_back([&gate] { const std::lock_guard passes(gate); });
      }
    } catch (const std::system_error&) {
      could = false;
    }
  }
  for (std::thread& thread : threads) thread.join();
  return could;
}

bool is_readable(int descriptor) {
  pollfd entry{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

// Ids start anew at each boot: a client of an earlier one is unknown (stale), not someone else.
// Small enough to be exact as a JSON number.
ClientId first_client() { return ClientId(((random_id().a & 0x7FFFFFFFU) << 20U) + 1); }

}  // namespace

// In the order of construction; what is below uses what is above.
struct Service::State {
  State(const Options& given, ServiceDir taken, BlockMemory made,
        std::unique_ptr<CompletionQueue> queue)
      : options(given),
        log(given.config.log_level),
        dir(std::move(taken)),
        memory(std::move(made)),
        completions(std::move(queue)),
        copies(given.config.transfer_workers, memory, *completions),
        disk(given.opener
                 ? given.opener
                 : disk_opener(given.config,
                               [this](const DiskStore& store) { report_opened_disk(store); }),
             memory, *completions),
        own_client(first_client()),
        clients(given.config.client_capacity, given.config.clients_per_user,
                ClientId(own_client.value + 1)) {}

  [[nodiscard]] Result<void> start();
  void start_engine();
  [[nodiscard]] std::string look_at_disk(std::optional<KvLayout>& found);
  void warn_of_small_disk(const std::string& path) const;
  [[nodiscard]] Result<AttachServer::Ticket> enter(AttachServer::Peer peer);
  void leave(ClientId id);
  void forget_connection(ClientId id);
  [[nodiscard]] Result<AttachServer::Memory> share(ClientId client, codec::AttachKind kind);
  void report_opened_disk(const DiskStore& store);
  void asked_to_end();
  void begin_end();
  void log_end(Ended how) const;

  Options options;
  Logger log;
  ServiceDir dir;
  EventLoop loop;
  BlockMemory memory;
  std::unique_ptr<CompletionQueue> completions;
  CopyWorkers copies;
  DiskWorker disk;
  codec::Id128 boot = random_id();
  ClientId own_client;
  codec::ShellCounters counters;
  std::unique_ptr<RouterSocket> router;
  ClientRegistry clients;
  std::unique_ptr<EngineHost> host;
  std::unique_ptr<AttachServer> attach;
  EventLoop::Watch requests_watch, completions_watch, tick_watch, signals_watch, end_watch;
  std::string_view disk_refusal;
  bool is_ending = false;
  bool is_saved = false;
};

Service::Service(std::unique_ptr<State> state) : state_(std::move(state)) {}
Service::~Service() = default;

std::variant<std::unique_ptr<Service>, StartProblem> Service::make(const Options& options) {
  const Config& config = options.config;
  const std::size_t thread_count = config.transfer_workers + kOtherThreads;
  if (!can_make_threads(thread_count)) {
    return StartProblem{"the system refuses the " + std::to_string(thread_count) +
                            " threads that the service needs",
                        "raise the limits of processes and memory, or lower transfer.workers"};
  }
  auto taken = ServiceDir::take(config);
  if (auto* problem = std::get_if<StartProblem>(&taken)) return std::move(*problem);
  auto memory = BlockMemory::make(config.device_bytes, config.host_bytes);
  if (!memory) {
    return to_problem(memory.error(), "no memory for the device and host tiers",
                      "lower device.bytes or host.bytes");
  }
  auto completions = CompletionQueue::make();
  if (!completions) {
    return to_problem(completions.error(), "start", "raise the limit of open files");
  }
  auto state = std::make_unique<State>(options, std::move(std::get<ServiceDir>(taken)),
                                       *std::move(memory), *std::move(completions));
  if (const auto started = state->start(); !started) {
    return to_problem(started.error(), config.endpoint, "check the directory and its mode");
  }
  return std::unique_ptr<Service>(new Service(std::move(state)));
}

Result<void> Service::State::start() {
  const Config& config = options.config;
  // A client within its credits never has more replies waiting; the rest is for notices. Twice
  // that: ZeroMQ learns of what was read in halves of a queue.
  const auto send_queue = static_cast<int>(2 * (config.credits + kNoticesSpare));
  // Up to the protocol's limit a message that is longer than limits.message_bytes gets an answer.
  KV_TRY(router, RouterSocket::bind({.endpoint = config.endpoint,
                                     .message_bytes_max = codec::kMessageBytesMax,
                                     .send_queue_max = send_queue}));
  const HostArena* const arena = memory.arena(Tier::host);
  if (arena != nullptr && !arena->is_write_sealed()) {
    log.write(LogLevel::warn, "host_arena_not_sealed",
              {{"effect", "a client that gets its own read-only descriptor reopened can write"}});
  }
  start_engine();
  KV_TRY(attach, AttachServer::make(
                     loop, log,
                     {.path = attach_path(config),
                      .boot = boot,
                      .waiting_max = kWaitingConnectionsMax,
                      .counters = &counters,
                      .enter = [this](AttachServer::Peer peer) { return enter(std::move(peer)); },
                      .memory = [this](ClientId client,
                                       codec::AttachKind kind) { return share(client, kind); }}));
  KV_TRY(requests_watch, loop.when_readable(router->descriptor(), [this] { host->turn(); }));
  KV_TRY(completions_watch,
         loop.when_readable(completions->descriptor(), [this] { host->turn(); }));
  tick_watch = loop.every(kTick, [this] {
    counters.refused_connections = refused_connections() + cut_connections();
    counters.dropped_log_lines = log.dropped_lines();
    host->tick();
  });
  if (options.handle_signals) {
    KV_TRY(signals_watch, loop.when_asked_to_end([this] { asked_to_end(); }));
  }
  return {};
}

void Service::State::start_engine() {
  const Config& config = options.config;
  std::optional<KvLayout> on_disk;
  bool disk_is_usable = config.disk_bytes > 0;
  std::string problem;
  if (disk_is_usable) {
    problem = look_at_disk(on_disk);
    disk_is_usable = problem.empty();
  }
  const EngineHost::Parts parts{loop,         log,    *router, clients, memory,
                                *completions, copies, disk,    counters};
  host = std::make_unique<EngineHost>(
      parts,
      EngineHost::Options{.engine = engine_options(config, disk_is_usable),
                          .boot = boot,
                          .own_client = own_client,
                          .message_bytes_max = static_cast<std::size_t>(config.message_bytes),
                          .bye =
                              [this](ClientId id) {
                                if (attach != nullptr) attach->retire(id);
                              },
                          .disk_path = disk_path(config),
                          .ended = [this](ClientId id) { forget_connection(id); }});
  if (!problem.empty()) host->set_disk_problem(std::move(problem));
  if (!on_disk) return;
  host->recover(*on_disk);
  if (counters.disk_failures > 0) disk_refusal = error_name(ErrorCode::too_large);
}

// The tier works all the same: it evicts when there is no room.
void Service::State::warn_of_small_disk(const std::string& path) const {
  const std::uint64_t wanted = options.config.disk_bytes;
  const std::uint64_t room = disk_place_bytes(path);
  if (room == 0 || room >= wanted) return;
  log.write(LogLevel::warn, "disk_space",
            {{"disk_bytes", wanted},
             {"room_bytes", room},
             {"remedy", "lower disk.bytes, or make room for " + path}});
}

// What lies there goes to `found`; the answer is why it cannot be used, or empty.
std::string Service::State::look_at_disk(std::optional<KvLayout>& found) {
  const std::string path = disk_path(options.config);
  std::string problem = disk_place_problem(path);
  ErrorCode code = ErrorCode::unavailable;
  std::string remedy = "make it a directory that this user may write; this run has no disk tier";
  if (problem.empty()) {
    auto peeked = DiskStore::peek(path);
    if (peeked) {
      found = *std::move(peeked);
      warn_of_small_disk(path);
      return {};
    }
    const Error& error = peeked.error();
    code = error.code;
    problem = path + ": " + std::string(error.reason);
    if (!error.field.empty()) problem += " (" + std::string(error.field) + ")";
    if (code == ErrorCode::corrupt || code == ErrorCode::unsupported) {
      remedy = "move " + path + " away; this run has no disk tier";
    }
  }
  disk_refusal = error_name(code);
  ++counters.disk_failures;
  log.write(LogLevel::error, "disk_refused",
            {{"code", error_name(code)}, {"reason", problem}, {"remedy", remedy}});
  return problem;
}

Result<AttachServer::Ticket> Service::State::enter(AttachServer::Peer peer) {
  const codec::Id128 secret = random_id();
  ClientRegistry::Client client;
  client.secret = secret;
  client.role = peer.wants_admin ? core::ClientRole::admin : core::ClientRole::runner;
  client.tenant = "uid:" + std::to_string(peer.user);
  client.user = peer.user;
  client.process = peer.process;
  client.process_descriptor = std::move(peer.process_descriptor);
  const int process = client.process_descriptor.get();
  const auto given = clients.add(std::move(client));
  if (!given) {
    const bool is_of_user = given.error().field == "client.per_user";
    ++(is_of_user ? counters.refused_attaches_of_user : counters.refused_attaches);
    return given.error();
  }
  const ClientId id = *given;
  ClientRegistry::Client& added = *clients.find(id);
  auto watch = loop.when_readable(process, [this, id] {
    log.write(LogLevel::debug, "client_gone", {{"client", id.value}});
    leave(id);
  });
  if (!watch) {
    clients.remove(id);
    return watch.error();
  }
  added.process_watch = *std::move(watch);
  log.write(LogLevel::debug, "client_attached",
            {{"client", id.value},
             {"tenant", added.tenant},
             {"process", static_cast<std::uint64_t>(added.process)}});
  host->attach(id, added);
  return AttachServer::Ticket{.client = id, .secret = secret};
}

void Service::State::leave(ClientId id) {
  forget_connection(id);
  host->remove(id);
}

void Service::State::forget_connection(ClientId id) {
  if (attach != nullptr) attach->forget(id);  // null while the service ends
}

Result<AttachServer::Memory> Service::State::share(ClientId client, codec::AttachKind kind) {
  // Who asks may be a child of the process that attached, which is no more: its death and this
  // request come in any order.
  const ClientRegistry::Client* const known = clients.find(client);
  if (known == nullptr || is_readable(known->process_descriptor.get())) {
    return Error{ErrorCode::stale, "the process that attached is dead: attach again", {}};
  }
  const bool is_device = kind == codec::AttachKind::device_pool;
  const HostArena* const arena = memory.arena(is_device ? Tier::device : Tier::host);
  if (arena == nullptr) return Error{ErrorCode::unavailable, "this tier is off", "kind"};
  // Readers get a descriptor that cannot be mapped for writing.
  int descriptor = -1;
  if (is_device) {
    descriptor = fcntl(arena->descriptor(), F_DUPFD_CLOEXEC, 0);
  } else {
    KV_TRY(descriptor, arena->read_only_descriptor());
  }
  if (descriptor < 0) return Error{ErrorCode::unavailable, "no descriptor left", {}};
  return AttachServer::Memory{.descriptor = FileDescriptor(descriptor),
                              .bytes = arena->bytes().size(),
                              .writable = is_device};
}

// On the disk worker's thread.
void Service::State::report_opened_disk(const DiskStore& store) {
  const bool is_direct = store.io() == DiskStore::Io::io_uring_direct;
  log.write(LogLevel::info, "disk_opened",
            {{"io", is_direct ? "io_uring" : "plain"}, {"reason", store.plain_reason()}});
  if (store.counters().damaged_indexes == 0) return;
  loop.post([this] {
    ++counters.damaged_indexes;
    log.write(LogLevel::warn, "disk_index_damaged",
              {{"kept_as", disk_path(options.config) + "/index.damaged"},
               {"effect", "the disk tier starts empty"}});
  });
}

void Service::State::asked_to_end() {
  if (is_ending) {
    OpenAttempt::forget(options.config.dir + "/disk");
    std::_Exit(EXIT_FAILURE);
  }
  begin_end();
}

// Nothing new comes in; what is in memory goes to disk; then the loop ends.
void Service::State::begin_end() {
  if (std::exchange(is_ending, true)) return;
  log.write(LogLevel::info, "ending");
  attach.reset();
  requests_watch = EventLoop::Watch();
  host->stop_receiving();
  end_watch = loop.every(options.end_time_max, [this] { loop.stop(); });
  host->flush([this](const core::Reply& reply) {
    is_saved = reply.error.code == ErrorCode::ok;
    if (const auto* flushed = std::get_if<core::FlushReply>(&reply.body)) {
      log.write(LogLevel::info, "flushed",
                {{"durable_blocks", flushed->durable_blocks},
                 {"unsaved_blocks", flushed->unsaved_blocks}});
    }
    loop.stop();
  });
}

void Service::State::log_end(Ended how) const {
  log.write(how == Ended::clean ? LogLevel::info : LogLevel::error, "ended",
            {{"how", how == Ended::clean     ? "clean"
                     : how == Ended::unsaved ? "unsaved"
                                             : "hung"},
             {"requests", counters.received_requests},
             {"malformed", counters.malformed_frames},
             {"invalid", counters.invalid_requests},
             {"denied", counters.denied_requests},
             {"unread", counters.unread_replies},
             {"unsent", counters.unsent_replies}});
}

std::string_view Service::disk_refusal() const { return state_->disk_refusal; }

Service::Ended Service::run() {
  State& state = *state_;
  state.loop.run();
  const auto deadline = std::chrono::steady_clock::now() + state.options.end_time_max;
  Ended how = state.is_saved ? Ended::clean : Ended::unsaved;
  if (!state.copies.finish(deadline) || !state.disk.finish(deadline)) how = Ended::hung;
  state.host->log_bad_blocks();
  state.log_end(how);
  return how;
}

void Service::request_end() {
  state_->loop.post([this] { state_->begin_end(); });
}

}  // namespace kv::shell
