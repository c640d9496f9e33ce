#include "tests/support/in_process_executor.h"

#include <cstring>
#include <utility>

#include "allocator/base/check.h"
#include "cachesvc/core/prefix_cache.h"
#include "cachesvc/shell/blob_values.h"
#include "tiering/stores/checksum.h"

namespace kv::testing {

using shell::to_identity;
using shell::to_outcome;

void InProcessExecutor::make_pools(const core::Engine& engine) {
  KV_CHECK(engine.cache() != nullptr);
  layout_ = engine.cache()->layout();
  pools_.clear();
  for (const Tier tier : {Tier::device, Tier::host}) {
    std::vector<std::uint64_t> offsets;
    std::vector<std::uint64_t> sizes;
    std::uint64_t bytes = 0;
    for (std::uint32_t group = 0; group < layout_.groups.size(); ++group) {
      offsets.push_back(bytes);
      sizes.push_back(block_bytes(layout_, GroupId{group}));
      bytes += sizes.back() * engine.cache()->pool(tier, GroupId{group}).slot_count();
    }
    HostArena::Options options;
    options.bytes = bytes == 0 ? 1 : bytes;
    options.name = "kv-test";
    options.huge_pages = false;
    auto arena = HostArena::make(options);
    KV_CHECK(arena.has_value());
    pools_.push_back({std::move(*arena), std::move(offsets), std::move(sizes)});
  }
}

std::span<std::byte> InProcessExecutor::device_memory() const {
  return pools_.at(tier_index(Tier::device)).arena.bytes();
}

std::span<std::byte> InProcessExecutor::slot(Tier tier, GroupId group, SlotId slot) const {
  const Pool& pool = pools_.at(tier_index(tier));
  const std::uint64_t bytes = pool.slot_bytes.at(group.value);
  return pool.arena.bytes().subspan(pool.offsets[group.value] + slot.value * bytes, bytes);
}

void InProcessExecutor::erase(std::span<const core::EraseDisk> erases) {
  if (erases.empty()) return;
  KV_CHECK(disk_ != nullptr);
  std::vector<BlobErase> blobs;
  for (const core::EraseDisk& erase : erases) {
    blobs.push_back({erase.key, erase.depth, erase.group, erase.slot, erase.generation});
  }
  disk_->erase(blobs);
}

InProcessExecutor::Outcome InProcessExecutor::transfer(const core::StartTransfer& start,
                                                       const core::Actions& actions) {
  const auto blocks =
      std::span(actions.transfer_blocks).subspan(start.first_block, start.block_count);
  Outcome outcome;
  outcome.outcomes.assign(blocks.size(), core::BlockOutcome::io_error);
  if (start.from == Tier::device && start.to == Tier::host) {
    copy_out(start, blocks, outcome);
  } else if (start.from == Tier::host && start.to == Tier::device) {
    copy_in(start, blocks, outcome);
  } else if (start.from == Tier::host && start.to == Tier::disk) {
    const std::size_t count = std::size_t{start.block_count} * layout_.block_tokens;
    write_disk(start, blocks, std::span(actions.tokens).subspan(start.first_token, count), outcome);
  } else {
    KV_CHECK(start.from == Tier::disk && start.to == Tier::host);
    read_disk(start, blocks, outcome);
  }
  return outcome;
}

void InProcessExecutor::copy_out(const core::StartTransfer& start,
                                 std::span<const core::TransferBlock> blocks,
                                 Outcome& outcome) const {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto from = slot(Tier::device, start.group, blocks[i].from_slot);
    const auto to = slot(Tier::host, start.group, blocks[i].to_slot);
    std::memcpy(to.data(), from.data(), from.size());
    outcome.checksums.push_back(crc32c(to));
    outcome.outcomes[i] = core::BlockOutcome::ok;
  }
}

void InProcessExecutor::copy_in(const core::StartTransfer& start,
                                std::span<const core::TransferBlock> blocks,
                                Outcome& outcome) const {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto from = slot(Tier::host, start.group, blocks[i].from_slot);
    const auto to = slot(Tier::device, start.group, blocks[i].to_slot);
    std::memcpy(to.data(), from.data(), from.size());
    outcome.outcomes[i] =
        crc32c(to) == blocks[i].checksum ? core::BlockOutcome::ok : core::BlockOutcome::corrupt;
  }
}

void InProcessExecutor::write_disk(const core::StartTransfer& start,
                                   std::span<const core::TransferBlock> blocks,
                                   std::span<const Token> tokens, Outcome& outcome) {
  KV_CHECK(disk_ != nullptr);
  std::vector<BlobWrite> writes;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto from = slot(Tier::host, start.group, blocks[i].from_slot);
    if (crc32c(from) != blocks[i].checksum) {
      outcome.outcomes[i] = core::BlockOutcome::corrupt;
      continue;
    }
    const std::size_t first = i * layout_.block_tokens;
    writes.push_back(
        {to_identity(start, blocks[i]), tokens.subspan(first, layout_.block_tokens), from});
    places.push_back(i);
  }
  std::vector<ErrorCode> codes(writes.size(), ErrorCode::unavailable);
  disk_->write(writes, codes);
  for (std::size_t i = 0; i < places.size(); ++i) {
    outcome.outcomes[places[i]] = to_outcome(codes[i]);
  }
}

void InProcessExecutor::read_disk(const core::StartTransfer& start,
                                  std::span<const core::TransferBlock> blocks, Outcome& outcome) {
  KV_CHECK(disk_ != nullptr);
  std::vector<BlobRead> reads;
  for (const core::TransferBlock& block : blocks) {
    reads.push_back({to_identity(start, block), slot(Tier::host, start.group, block.to_slot)});
  }
  std::vector<ErrorCode> codes(reads.size(), ErrorCode::unavailable);
  disk_->read(reads, codes);
  for (std::size_t i = 0; i < codes.size(); ++i) outcome.outcomes[i] = to_outcome(codes[i]);
}

}  // namespace kv::testing
