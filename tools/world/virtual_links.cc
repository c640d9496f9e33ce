#include "tools/world/virtual_links.h"

#include <chrono>

#include "tools/world/slot_owners.h"

namespace kv::world {

void VirtualLinks::start(TimePoint now, const core::StartTransfer& start,
                         const core::Actions& actions, std::uint32_t block_tokens,
                         std::vector<std::string>& problems) {
  Flight flight;
  flight.start = start;
  flight.block_tokens = block_tokens;
  const auto blocks =
      std::span(actions.transfer_blocks).subspan(start.first_block, start.block_count);
  flight.blocks.assign(blocks.begin(), blocks.end());
  if (start.to == Tier::disk) {
    const auto tokens =
        std::span(actions.tokens)
            .subspan(start.first_token, std::size_t{start.block_count} * block_tokens);
    flight.tokens.assign(tokens.begin(), tokens.end());
  }
  for (const core::TransferBlock& block : blocks) {
    flight.sources.push_back(tiers_->read(start.from, start.group, block.from_slot));
    flight.targets.push_back(tiers_->write_garbage(start.to, start.group, block.to_slot));
    const auto indexed = tiers_->disk().find({start.group, block.to_slot});
    if (start.to == Tier::disk && indexed != tiers_->disk().end()) {
      problems.push_back("19: " + slot_name(start.to, start.group, block.to_slot) +
                         " is written while the index still names it");
    }
    const auto source = tiers_->disk().find({start.group, block.from_slot});
    if (start.from == Tier::disk &&
        (source == tiers_->disk().end() || source->second.entry.key != block.key ||
         source->second.entry.generation != block.from_generation)) {
      problems.push_back("19: a load names a disk copy that the index does not have");
    }
  }
  Duration delay = std::chrono::microseconds(10 + prng_.below(2'000));
  flight.fails = chance(faults_.failed_transfers);
  if (chance(faults_.late_transfers)) delay += std::chrono::milliseconds(prng_.below(2'000));
  flights_.emplace(std::make_pair(now + delay, order_++), std::move(flight));
}

void VirtualLinks::stall(Duration time) {
  std::map<std::pair<TimePoint, std::uint64_t>, Flight> later;
  while (!flights_.empty()) {
    auto node = flights_.extract(flights_.begin());
    node.key().first += time;
    later.insert(std::move(node));
  }
  flights_.swap(later);
}

VirtualLinks::Report VirtualLinks::finish_next(std::vector<std::string>& problems) {
  const auto node = flights_.extract(flights_.begin());
  const Flight& flight = node.mapped();
  Report report;
  report.id = flight.start.id;
  report.from = flight.start.from;
  for (std::size_t i = 0; i < flight.blocks.size(); ++i) {
    report.outcomes.push_back(copy(flight, i, report, problems));
  }
  return report;
}

core::BlockOutcome VirtualLinks::copy(const Flight& flight, std::size_t index, Report& report,
                                      std::vector<std::string>& problems) {
  const core::StartTransfer& start = flight.start;
  const core::TransferBlock& block = flight.blocks[index];
  watch(flight, index, problems);
  const bool from_device = start.from == Tier::device;
  if (!from_device && chance(faults_.rotten_blocks)) {
    tiers_->rot(start.from, start.group, block.from_slot);
  }
  const Fingerprint bytes = tiers_->read(start.from, start.group, block.from_slot);
  if (from_device) report.checksums.push_back(checksum_of(bytes));
  if (flight.fails || chance(faults_.failed_blocks)) {
    report.broken_keys.insert(block.key);
    constexpr core::BlockOutcome kFailures[] = {
        core::BlockOutcome::io_error, core::BlockOutcome::cancelled, core::BlockOutcome::no_space};
    return kFailures[prng_.below(start.to == Tier::disk ? 3 : 2)];
  }
  if (!from_device && checksum_of(bytes) != block.checksum) {
    report.broken_keys.insert(block.key);
    return core::BlockOutcome::corrupt;
  }
  store(flight, index);
  return core::BlockOutcome::ok;
}

void VirtualLinks::watch(const Flight& flight, std::size_t index,
                         std::vector<std::string>& problems) const {
  const core::StartTransfer& start = flight.start;
  const core::TransferBlock& block = flight.blocks[index];
  const std::string name = "transfer " + std::to_string(start.id.value) + ": ";
  const Fingerprint source = tiers_->read(start.from, start.group, block.from_slot);
  const bool rotted = (source ^ 0x8000000000000001U) == flight.sources[index];
  if (source != flight.sources[index] && !rotted) {
    problems.push_back("5: " + name + slot_name(start.from, start.group, block.from_slot) +
                       " changed while it was read");
  }
  if (tiers_->read(start.to, start.group, block.to_slot) != flight.targets[index]) {
    problems.push_back("4: " + name + slot_name(start.to, start.group, block.to_slot) +
                       " was written by somebody else meanwhile");
  }
}

void VirtualLinks::store(const Flight& flight, std::size_t index) {
  const core::StartTransfer& start = flight.start;
  const core::TransferBlock& block = flight.blocks[index];
  const Fingerprint bytes = tiers_->read(start.from, start.group, block.from_slot);
  tiers_->write(start.to, start.group, block.to_slot, bytes);
  if (start.to != Tier::disk) return;
  VirtualTiers::DiskEntry entry;
  entry.entry = {block.key,   block.parent_key, start.namespace_digest, block.depth,
                 start.group, block.to_slot,    block.to_generation,    block.checksum};
  const std::size_t first = index * flight.block_tokens;
  entry.tokens.assign(
      flight.tokens.begin() + static_cast<std::ptrdiff_t>(first),
      flight.tokens.begin() + static_cast<std::ptrdiff_t>(first + flight.block_tokens));
  tiers_->disk()[{start.group, block.to_slot}] = std::move(entry);
}

void VirtualLinks::stop() {
  for (const auto& [due, flight] : flights_) {
    if (flight.start.to != Tier::disk) continue;
    for (std::size_t i = 0; i < flight.blocks.size(); ++i) {
      const auto& block = flight.blocks[i];
      const Fingerprint bytes = tiers_->read(Tier::host, flight.start.group, block.from_slot);
      if (checksum_of(bytes) == block.checksum && prng_.chance(1, 2)) store(flight, i);
    }
  }
  flights_.clear();
}

}  // namespace kv::world
