#include "cachesvc/shell/disk_worker.h"

#include <span>
#include <utility>

#include "allocator/base/check.h"
#include "cachesvc/shell/blob_values.h"
#include "tiering/stores/checksum.h"

namespace kv::shell {

DiskWorker::DiskWorker(Opener opener, const BlockMemory& memory, CompletionQueue& completions)
    : opener_(std::move(opener)),
      memory_(memory),
      completions_(completions),
      jobs_(1),
      thread_([this] { jobs_.run_jobs([this] { store_.reset(); }); }) {}

DiskWorker::~DiskWorker() {
  jobs_.close();
  thread_.join();
}

bool DiskWorker::finish(std::chrono::steady_clock::time_point deadline) {
  jobs_.close();
  return jobs_.wait_until_ended(deadline);
}

void DiskWorker::open(const KvLayout& layout) {
  jobs_.push([this, layout] { open_store(layout); });
}

void DiskWorker::scan(std::uint32_t limit) {
  jobs_.push([this, limit] { scan_store(limit); });
}

void DiskWorker::erase(std::vector<BlobErase> erases) {
  jobs_.push([this, batch = std::move(erases)] {
    if (store_ != nullptr) store_->erase(batch);
  });
}

void DiskWorker::start(TransferTask task) {
  jobs_.push([this, mine = std::move(task)] { transfer(mine); });
}

void DiskWorker::sync(std::uint64_t id) {
  jobs_.push([this, id] {
    // A disk that is off has nothing to make durable; one that failed to open has lost its blocks.
    const bool ok = store_ == nullptr ? !has_failed_ : store_->sync().has_value();
    completions_.push(DiskSyncCompletion{id, ok});
  });
}

void DiskWorker::open_store(const KvLayout& layout) {
  DiskOpened done;
  if (auto opened = opener_(layout)) {
    store_ = *std::move(opened);
  } else {
    done.error = opened.error();
    has_failed_ = true;
  }
  completions_.push(done);
}

void DiskWorker::scan_store(std::uint32_t limit) {
  DiskScanned done;
  if (store_ == nullptr) {
    done.last = true;
  } else if (auto scanned = store_->scan_next(limit)) {
    done.entries = *std::move(scanned);
    done.last = done.entries.empty();
  } else {
    done.error = scanned.error();
    done.last = true;
  }
  completions_.push(std::move(done));
}

void DiskWorker::transfer(const TransferTask& task) {
  TransferCompletion done{task.transfer.id, {}, {}};
  done.outcomes.assign(task.blocks.size(), core::BlockOutcome::io_error);
  if (store_ != nullptr) {
    if (task.transfer.to == Tier::disk) {
      save(task, done.outcomes);
    } else {
      load(task, done.outcomes);
    }
  }
  completions_.push(std::move(done));
}

void DiskWorker::save(const TransferTask& task, std::vector<core::BlockOutcome>& outcomes) {
  const core::StartTransfer& transfer = task.transfer;
  KV_CHECK(transfer.from == Tier::host && !task.blocks.empty());
  const std::size_t block_tokens = task.tokens.size() / task.blocks.size();
  std::vector<BlobWrite> writes;
  writes.reserve(task.blocks.size());
  std::vector<std::size_t> indices;  // of the blocks in `writes`
  for (std::size_t i = 0; i < task.blocks.size(); ++i) {
    const core::TransferBlock& block = task.blocks[i];
    const auto payload = memory_.block(Tier::host, transfer.group, block.from_slot);
    if (crc32c(payload) != block.checksum) {
      outcomes[i] = core::BlockOutcome::corrupt;
      continue;
    }
    writes.push_back({.identity = to_identity(transfer, block),
                      .tokens = std::span(task.tokens).subspan(i * block_tokens, block_tokens),
                      .payload = payload});
    indices.push_back(i);
  }
  std::vector<ErrorCode> codes(writes.size(), ErrorCode::unavailable);
  if (!writes.empty()) store_->write(writes, codes);
  for (std::size_t i = 0; i < codes.size(); ++i) outcomes[indices[i]] = to_outcome(codes[i]);
}

void DiskWorker::load(const TransferTask& task, std::vector<core::BlockOutcome>& outcomes) {
  const core::StartTransfer& transfer = task.transfer;
  KV_CHECK(transfer.from == Tier::disk && transfer.to == Tier::host);
  std::vector<BlobRead> reads;
  reads.reserve(task.blocks.size());
  for (const core::TransferBlock& block : task.blocks) {
    reads.push_back({.identity = to_identity(transfer, block),
                     .payload = memory_.block(Tier::host, transfer.group, block.to_slot)});
  }
  std::vector<ErrorCode> codes(reads.size(), ErrorCode::unavailable);
  store_->read(reads, codes);
  for (std::size_t i = 0; i < codes.size(); ++i) outcomes[i] = to_outcome(codes[i]);
}

}  // namespace kv::shell
