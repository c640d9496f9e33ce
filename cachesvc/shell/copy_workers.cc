#include "cachesvc/shell/copy_workers.h"

#include <cstring>
#include <utility>

#include "allocator/base/check.h"
#include "tiering/stores/checksum.h"

namespace kv::shell {

CopyWorkers::CopyWorkers(std::uint32_t thread_count, const BlockMemory& memory,
                         CompletionQueue& completions)
    : memory_(memory), completions_(completions), jobs_(thread_count) {
  try {
    while (threads_.size() < thread_count) {
      threads_.emplace_back([this] { jobs_.run_jobs([] {}); });
    }
  } catch (...) {  // no more threads: no destructor will end those that run
    join();
    throw;
  }
}

CopyWorkers::~CopyWorkers() { join(); }

void CopyWorkers::join() {
  jobs_.close();
  for (std::thread& thread : threads_) thread.join();
}

void CopyWorkers::start(TransferTask task) {
  jobs_.push([this, mine = std::move(task)] { copy(mine); });
}

bool CopyWorkers::finish(std::chrono::steady_clock::time_point deadline) {
  jobs_.close();
  return jobs_.wait_until_ended(deadline);
}

void CopyWorkers::copy(const TransferTask& task) {
  const core::StartTransfer& transfer = task.transfer;
  const bool leaves_device = transfer.from == Tier::device;
  KV_CHECK(leaves_device ? transfer.to == Tier::host
                         : transfer.from == Tier::host && transfer.to == Tier::device);
  TransferCompletion done{transfer.id, {}, {}};
  for (const core::TransferBlock& block : task.blocks) {
    const auto source = memory_.block(transfer.from, transfer.group, block.from_slot);
    const auto target = memory_.block(transfer.to, transfer.group, block.to_slot);
    std::memcpy(target.data(), source.data(), target.size());
    // Of the copy, not of the source: whatever happened to the source meanwhile, this is what is
    // kept.
    const std::uint32_t checksum = crc32c(target);
    if (leaves_device) done.checksums.push_back(checksum);
    done.outcomes.push_back(leaves_device || checksum == block.checksum
                                ? core::BlockOutcome::ok
                                : core::BlockOutcome::corrupt);
  }
  completions_.push(std::move(done));
}

}  // namespace kv::shell
