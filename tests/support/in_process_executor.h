// InProcessExecutor: carries out the Engine's transfers at once, on plain memory: memcpy, real
// CRC32C, and a BlobStore for the disk tier. Owner: InProcessService. Threads: none. Cost: the
// copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/kv_layout.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"
#include "tests/support/memory_blob_store.h"
#include "tiering/stores/blob_store.h"
#include "tiering/stores/host_arena.h"

namespace kv::testing {

class InProcessExecutor {
 public:
  // Memory for the pools that the engine has defined. Call again after each new format.
  void make_pools(const core::Engine& engine);
  [[nodiscard]] bool has_pools() const { return !pools_.empty(); }
  [[nodiscard]] std::span<std::byte> device_memory() const;
  [[nodiscard]] std::span<std::byte> slot(Tier tier, GroupId group, SlotId slot) const;

  void set_disk(BlobStore* disk) { disk_ = disk; }
  void erase(std::span<const core::EraseDisk> erases);

  struct Outcome {
    std::vector<core::BlockOutcome> outcomes;
    std::vector<std::uint32_t> checksums;
  };
  [[nodiscard]] Outcome transfer(const core::StartTransfer& start, const core::Actions& actions);

 private:
  struct Pool {
    HostArena arena;
    std::vector<std::uint64_t> offsets;     // of slot 0, by group
    std::vector<std::uint64_t> slot_bytes;  // by group
  };
  void copy_out(const core::StartTransfer& start, std::span<const core::TransferBlock> blocks,
                Outcome& outcome) const;
  void copy_in(const core::StartTransfer& start, std::span<const core::TransferBlock> blocks,
               Outcome& outcome) const;
  void write_disk(const core::StartTransfer& start, std::span<const core::TransferBlock> blocks,
                  std::span<const Token> tokens, Outcome& outcome);
  void read_disk(const core::StartTransfer& start, std::span<const core::TransferBlock> blocks,
                 Outcome& outcome);

  KvLayout layout_;
  std::vector<Pool> pools_;  // device, host
  BlobStore* disk_ = nullptr;
};

}  // namespace kv::testing
