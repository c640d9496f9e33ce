// Service: one running cachesvc: the parts, wired together, and its life from start to end.
// Owner: serve, or a test. Threads: make() and run() from one thread; request_end() from any.
// run()'s thread owns the Engine and the sockets; workers copy and use the disk. Cost: memory of
// the device and host tiers, mapped at make().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "cachesvc/core/actions.h"
#include "cachesvc/shell/config.h"
#include "cachesvc/shell/disk_worker.h"
#include "cachesvc/shell/service_dir.h"

namespace kv::shell {

class Service {
 public:
  struct Options {
    Config config;
    // SIGTERM, SIGINT and SIGHUP (unless ignored at the start, as by nohup) end it; a second one
    // ends the process at once.
    bool handle_signals = false;
    std::chrono::milliseconds end_time_max{5'000};  // for the last flush, and again for the workers
    DiskWorker::Opener opener;                      // empty: the DiskStore in DIR/disk
  };

  // When it returns, clients can connect; they are served in run().
  [[nodiscard]] static std::variant<std::unique_ptr<Service>, StartProblem> make(
      const Options& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  Service(Service&&) = delete;
  Service& operator=(Service&&) = delete;

  enum class Ended : std::uint8_t {
    clean,    // everything that could be kept is durable
    unsaved,  // the last flush failed or took too long
    hung,     // a worker did not end in time: the process must end without destroying this
  };
  // Why the disk tier that was configured is off, in one word; empty when nothing is wrong.
  [[nodiscard]] std::string_view disk_refusal() const;
  [[nodiscard]] Ended run();
  void request_end();

 private:
  struct State;
  explicit Service(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kv::shell
