#include "tests/cachesvc/core/scripted_transfers.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include <gtest/gtest.h>

namespace kv::core {

std::uint32_t ScriptedTransfers::checksum_of(const Digest& key) {
  std::uint32_t checksum = 0;
  std::memcpy(&checksum, key.bytes.data(), sizeof checksum);
  return checksum;
}

void ScriptedTransfers::take(const Actions& actions, std::uint32_t block_tokens) {
  for (const EraseDisk& erased : actions.erases) erase(erased);
  for (const StartTransfer& start : actions.transfers) {
    EXPECT_GE(start.block_count, 1U);
    EXPECT_LE(start.block_count, kTransferBlocksMax);
    Pending transfer{.start = start, .blocks = {}, .tokens = {}};
    const auto first = actions.transfer_blocks.begin() + start.first_block;
    transfer.blocks.assign(first, first + start.block_count);
    if (start.to == Tier::disk) {
      const auto token = actions.tokens.begin() + start.first_token;
      transfer.tokens.assign(
          token, token + std::ptrdiff_t{start.block_count} * std::ptrdiff_t{block_tokens});
    }
    for (const TransferBlock& block : transfer.blocks) {
      check_source(start, block);
      check_destination(start, block);
    }
    pending_.push_back(std::move(transfer));
  }
}

void ScriptedTransfers::erase(const EraseDisk& erase) {
  erases_.push_back(erase);
  const auto found = disk_.find({erase.group, erase.slot});
  if (found == disk_.end()) return;  // a recovered entry that this world never wrote
  EXPECT_EQ(found->second.entry.key, erase.key);
  EXPECT_EQ(found->second.entry.depth, erase.depth);
  EXPECT_EQ(found->second.entry.generation, erase.generation);
  disk_.erase(found);
}

void ScriptedTransfers::check_source(const StartTransfer& start, const TransferBlock& block) const {
  if (start.from == Tier::device) return;
  EXPECT_EQ(block.checksum, checksum_of(block.key));
  if (start.from == Tier::host) {
    const auto found = host_.find({start.group, block.from_slot});
    ASSERT_NE(found, host_.end()) << "reads a host slot that was never written";
    EXPECT_EQ(found->second, block.key);
    return;
  }
  const auto found = disk_.find({start.group, block.from_slot});
  if (found == disk_.end()) return;  // written before a restart
  EXPECT_EQ(found->second.entry.key, block.key);
  EXPECT_EQ(found->second.entry.generation, block.from_generation);
}

void ScriptedTransfers::check_destination(const StartTransfer& start,
                                          const TransferBlock& block) const {
  for (const Pending& other : pending_) {
    if (other.start.group != start.group) continue;
    for (const TransferBlock& used : other.blocks) {
      EXPECT_FALSE(other.start.to == start.to && used.to_slot == block.to_slot)
          << "two transfers write one slot";
      EXPECT_FALSE(other.start.from == start.to && used.from_slot == block.to_slot)
          << "a transfer writes a slot that another one reads";
    }
  }
  if (start.to == Tier::disk) {
    EXPECT_FALSE(disk_.contains({start.group, block.to_slot}))
        << "a disk slot is written before its entry was erased";
  }
}

ScriptedTransfers::Finished ScriptedTransfers::finish(std::size_t index,
                                                      std::span<const BlockOutcome> outcomes) {
  const Pending transfer = std::move(pending_.at(index));
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  Finished finished{.id = transfer.start.id, .outcomes = {}, .checksums = {}};
  finished.outcomes.assign(outcomes.begin(), outcomes.end());
  finished.outcomes.resize(transfer.blocks.size(), BlockOutcome::ok);
  for (std::size_t i = 0; i < transfer.blocks.size(); ++i) {
    if (transfer.start.from == Tier::device) {
      finished.checksums.push_back(checksum_of(transfer.blocks[i].key));
    }
    if (finished.outcomes[i] == BlockOutcome::ok) write(transfer, i);
  }
  return finished;
}

void ScriptedTransfers::write(const Pending& transfer, std::size_t block) {
  const TransferBlock& moved = transfer.blocks[block];
  const Place place{transfer.start.group, moved.to_slot};
  if (transfer.start.to == Tier::host) host_[place] = moved.key;
  if (transfer.start.to != Tier::disk) return;
  DiskEntry entry;
  entry.entry = {.key = moved.key,
                 .parent_key = moved.parent_key,
                 .namespace_digest = transfer.start.namespace_digest,
                 .depth = moved.depth,
                 .group = transfer.start.group,
                 .slot = moved.to_slot,
                 .generation = moved.to_generation,
                 .checksum = moved.checksum};
  const std::size_t block_tokens = transfer.tokens.size() / transfer.blocks.size();
  const auto first = transfer.tokens.begin() + static_cast<std::ptrdiff_t>(block * block_tokens);
  entry.tokens.assign(first, first + static_cast<std::ptrdiff_t>(block_tokens));
  disk_[place] = std::move(entry);
}

std::vector<ScriptedTransfers::DiskEntry> ScriptedTransfers::disk_index() const {
  std::vector<DiskEntry> entries;
  entries.reserve(disk_.size());
  for (const auto& [place, entry] : disk_) entries.push_back(entry);
  std::ranges::sort(entries, {}, [](const DiskEntry& found) {
    return std::pair(found.entry.depth, found.entry.slot);
  });
  return entries;
}

}  // namespace kv::core
