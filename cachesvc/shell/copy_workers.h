// CopyWorkers: threads that copy blocks between device and host memory. Out of the device the
// checksum of each block is computed; into it the bytes that were copied are checked, so wrong ones
// are reported and never served. Owner: the service. Threads: start() from the loop thread;
// completions come by the queue. Bounded by the Engine's device-host credits. Cost: a copy and a
// checksum of each block.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "cachesvc/core/actions.h"
#include "cachesvc/shell/block_memory.h"
#include "cachesvc/shell/completion_queue.h"
#include "cachesvc/shell/job_queue.h"

namespace kv::shell {

// What a worker needs of a StartTransfer, in memory of its own.
struct TransferTask {
  core::StartTransfer transfer;
  std::vector<core::TransferBlock> blocks;
  std::vector<Token> tokens;  // to disk only: block_tokens for each block
};

class CopyWorkers {
 public:
  // throws: std::system_error (no thread left).
  CopyWorkers(std::uint32_t thread_count, const BlockMemory& memory, CompletionQueue& completions);
  ~CopyWorkers();  // finishes what was started
  CopyWorkers(const CopyWorkers&) = delete;
  CopyWorkers& operator=(const CopyWorkers&) = delete;
  CopyWorkers(CopyWorkers&&) = delete;
  CopyWorkers& operator=(CopyWorkers&&) = delete;

  // requires: device -> host or host -> device.
  void start(TransferTask task);
  // True when all threads ended by the deadline; no start() after it.
  [[nodiscard]] bool finish(std::chrono::steady_clock::time_point deadline);

 private:
  void join();
  void copy(const TransferTask& task);

  const BlockMemory& memory_;
  CompletionQueue& completions_;
  JobQueue jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace kv::shell
