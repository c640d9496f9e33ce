// DiskWorker: the one thread that uses the disk store, in the order it was told: so an erase comes
// before the write that reuses its slot, and a sync covers what came before. A hung disk hangs this
// thread only. Owner: the service. Threads: every verb from the loop thread; completions come by
// the queue. Bounded: transfers by the Engine's host-disk credits; erases by the slots of the disk
// tier, since a slot is erased again only after a later write of it completed; one scan at a time.
// Cost: the disk's. When the disk cannot be opened, transfers end with io_error and nothing is
// recovered.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "allocator/kv_layout.h"
#include "cachesvc/shell/block_memory.h"
#include "cachesvc/shell/completion_queue.h"
#include "cachesvc/shell/copy_workers.h"
#include "cachesvc/shell/job_queue.h"
#include "tiering/stores/blob_store.h"

namespace kv::shell {

class DiskWorker {
 public:
  // Opens the store; called on the worker's thread. Tests give stores that hang or fail.
  using Opener = std::function<Result<std::unique_ptr<BlobStore>>(const KvLayout&)>;

  DiskWorker(Opener opener, const BlockMemory& memory, CompletionQueue& completions);
  ~DiskWorker();  // finishes what was started, and closes the store
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;
  DiskWorker(DiskWorker&&) = delete;
  DiskWorker& operator=(DiskWorker&&) = delete;

  void open(const KvLayout& layout);          // -> DiskOpened
  void scan(std::uint32_t limit);             // -> DiskScanned
  void erase(std::vector<BlobErase> erases);  // silent: a lost erase is found at the read
  // requires: host -> disk or disk -> host.
  void start(TransferTask task);  // -> TransferCompletion
  void sync(std::uint64_t id);    // -> DiskSyncCompletion
  // True when the thread ended by the deadline; nothing may be asked after it.
  [[nodiscard]] bool finish(std::chrono::steady_clock::time_point deadline);

 private:
  void open_store(const KvLayout& layout);
  void scan_store(std::uint32_t limit);
  void transfer(const TransferTask& task);
  void save(const TransferTask& task, std::vector<core::BlockOutcome>& outcomes);
  void load(const TransferTask& task, std::vector<core::BlockOutcome>& outcomes);

  Opener opener_;
  const BlockMemory& memory_;
  CompletionQueue& completions_;
  std::unique_ptr<BlobStore> store_;  // the worker's thread only
  bool has_failed_ = false;           // to open; the worker's thread only
  JobQueue jobs_;
  std::thread thread_;
};

}  // namespace kv::shell
