// CompletionQueue: what workers report to the loop. An eventfd wakes the loop; nobody waits.
// Owner: the service; it outlives the workers. Threads: push from any, drain from the loop thread.
// Bounded by what was asked of the workers: every completion answers one task, and tasks are
// bounded by the Engine's transfer credits, one scan, one open and the clients' flush requests.
// Cost: one lock, and one write to the eventfd, a push.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "cachesvc/core/inputs.h"
#include "tiering/stores/blob_store.h"
#include "tiering/stores/file_descriptor.h"

namespace kv::shell {

struct TransferCompletion {
  TransferId id;
  std::vector<core::BlockOutcome> outcomes;
  std::vector<std::uint32_t> checksums;  // device -> host only
};
struct DiskOpened {
  Error error{ErrorCode::ok, {}, {}};
};
struct DiskScanned {
  std::vector<BlobStore::Scanned> entries;
  bool last = false;
  Error error{ErrorCode::ok, {}, {}};
};
struct DiskSyncCompletion {
  std::uint64_t id = 0;
  bool ok = false;
};
using Completion = std::variant<TransferCompletion, DiskOpened, DiskScanned, DiskSyncCompletion>;

class CompletionQueue {
 public:
  // fails: unavailable (no descriptor left).
  [[nodiscard]] static Result<std::unique_ptr<CompletionQueue>> make();

  [[nodiscard]] int descriptor() const { return wake_.get(); }
  void push(Completion completion);
  // Everything pushed so far, oldest first. The descriptor is no longer readable.
  void drain(std::vector<Completion>& out);

 private:
  explicit CompletionQueue(FileDescriptor wake) : wake_(std::move(wake)) {}
  FileDescriptor wake_;
  std::mutex mutex_;
  std::vector<Completion> items_;
};

}  // namespace kv::shell
