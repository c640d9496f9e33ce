// The Engine's words for the disk and the store's, one for the other. Whoever carries out transfers
// needs both: the service's disk worker and the in-process executor. Threads: any. Cost: O(1).
#pragma once

#include "cachesvc/core/actions.h"
#include "cachesvc/core/inputs.h"
#include "tiering/stores/blob_store.h"

namespace kv::shell {

[[nodiscard]] inline core::BlockOutcome to_outcome(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok:
      return core::BlockOutcome::ok;
    case ErrorCode::corrupt:
      return core::BlockOutcome::corrupt;
    case ErrorCode::exhausted:
      return core::BlockOutcome::no_space;
    default:
      return core::BlockOutcome::io_error;
  }
}

// The disk's side of a block: `slot` and `generation` are those of the disk tier.
[[nodiscard]] inline BlobIdentity to_identity(const core::StartTransfer& transfer,
                                              const core::TransferBlock& block) {
  const bool to_disk = transfer.to == Tier::disk;
  return {.key = block.key,
          .parent_key = block.parent_key,
          .namespace_digest = transfer.namespace_digest,
          .depth = block.depth,
          .group = transfer.group,
          .slot = to_disk ? block.to_slot : block.from_slot,
          .generation = to_disk ? block.to_generation : block.from_generation,
          .checksum = block.checksum};
}

}  // namespace kv::shell
