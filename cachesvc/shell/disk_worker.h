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
#include <variant>
#include <vector>

#include "allocator/kv_layout.h"
#include "cachesvc/shell/block_memory.h"
#include "cachesvc/shell/completion_queue.h"
#include "cachesvc/shell/copy_workers.h"
#include "cachesvc/shell/task_queue.h"
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

  void open(const KvLayout& layout) { tasks_.push(OpenTask{layout}); }  // -> DiskOpened
  void scan(std::uint32_t limit) { tasks_.push(ScanTask{limit}); }      // -> DiskScanned
  void erase(std::vector<BlobErase> erases) { tasks_.push(EraseTask{std::move(erases)}); }
  // requires: host -> disk or disk -> host.                                    ->
  // TransferCompletion
  void start(TransferTask task) { tasks_.push(std::move(task)); }
  void sync(std::uint64_t id) { tasks_.push(SyncTask{id}); }  // -> DiskSyncCompletion
  // True when the thread ended by the deadline; nothing may be asked after it.
  [[nodiscard]] bool finish(std::chrono::steady_clock::time_point deadline);

 private:
  struct OpenTask {
    KvLayout layout;
  };
  struct ScanTask {
    std::uint32_t limit;
  };
  struct EraseTask {
    std::vector<BlobErase> erases;
  };
  struct SyncTask {
    std::uint64_t id;
  };
  using Task = std::variant<OpenTask, ScanTask, EraseTask, TransferTask, SyncTask>;

  void work();
  void handle(const OpenTask& task);
  void handle(const ScanTask& task);
  void handle(const EraseTask& task);
  void handle(const TransferTask& task);
  void handle(const SyncTask& task);
  void save(const TransferTask& task, std::vector<core::BlockOutcome>& outcomes);
  void load(const TransferTask& task, std::vector<core::BlockOutcome>& outcomes);

  Opener opener_;
  const BlockMemory& memory_;
  CompletionQueue& completions_;
  std::unique_ptr<BlobStore> store_;  // the worker's thread only
  TaskQueue<Task> tasks_;
  std::thread thread_;
};

}  // namespace kv::shell
