// A Service on a thread of its own, for tests; ended and joined with the value.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include <gtest/gtest.h>

#include "cachesvc/shell/service.h"

namespace kv::tests {

// Small tiers: 64 slots of TestLayout's 1 KiB blocks on the device, twice that in host memory.
[[nodiscard]] inline shell::Service::Options options_in(const std::string& dir) {
  shell::Service::Options options;
  shell::Config& config = options.config;
  config.dir = dir;
  config.endpoint = "ipc://" + dir + "/service.sock";
  config.log_level = "off";
  config.device_bytes = 65'536;
  config.host_bytes = 131'072;
  config.disk_bytes = 4 << 20U;
  config.disk_io = "automatic";
  config.lease = std::chrono::seconds(10);
  config.credits = 64;
  config.client_capacity = 16;
  config.clients_per_user = 16;
  config.transfer_workers = 2;
  config.write_through = true;
  config.message_bytes = 1 << 20U;
  config.sequences = 64;
  config.prompt_tokens = 4U << 20U;
  config.client_prompt_tokens = 2U << 20U;
  config.index_bytes = 64U << 20U;
  return options;
}

class RunningService {
 public:
  explicit RunningService(const shell::Service::Options& options) {
    auto made = shell::Service::make(options);
    if (auto* problem = std::get_if<shell::StartProblem>(&made)) {
      ADD_FAILURE() << problem->message;
      return;
    }
    service_ = std::move(std::get<std::unique_ptr<shell::Service>>(made));
    thread_ = std::thread([this] { how_ = service_->run(); });
  }
  ~RunningService() { (void)end(); }
  RunningService(const RunningService&) = delete;
  RunningService& operator=(const RunningService&) = delete;
  RunningService(RunningService&&) = delete;
  RunningService& operator=(RunningService&&) = delete;

  // Asks it to end and waits; the Service itself stays until destroy().
  shell::Service::Ended end() {
    if (thread_.joinable()) {
      service_->request_end();
      thread_.join();
    }
    return how_;
  }
  void destroy() { service_.reset(); }

 private:
  std::unique_ptr<shell::Service> service_;
  std::thread thread_;
  shell::Service::Ended how_ = shell::Service::Ended::hung;
};

}  // namespace kv::tests
