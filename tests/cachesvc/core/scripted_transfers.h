// ScriptedTransfers: carries out the transfers and erases of an Engine under the control of a test.
// Keeps what host slots and the disk index would hold, and fails the test when a transfer reads
// something else than what was written, writes a slot of another transfer, or writes a disk slot
// whose index entry was not erased before.
// Owner: EngineDriver. Threads: none. Cost: O(blocks).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cachesvc/core/actions.h"
#include "cachesvc/core/inputs.h"

namespace kv::core {

class ScriptedTransfers {
 public:
  struct Pending {
    StartTransfer start;
    std::vector<TransferBlock> blocks;
    std::vector<Token> tokens;  // to disk only
  };
  // An entry of the disk index, as a restart would read it.
  struct DiskEntry {
    RecoveredEntry entry;
    std::vector<Token> tokens;
  };
  // What a TransferDone points to.
  struct Finished {
    TransferId id;
    std::vector<BlockOutcome> outcomes;
    std::vector<std::uint32_t> checksums;
    [[nodiscard]] TransferDone input() const { return {id, outcomes, checksums}; }
  };

  // Takes over the erases and transfers of one step, in this order.
  void take(const Actions& actions, std::uint32_t block_tokens);

  [[nodiscard]] const std::vector<Pending>& pending() const { return pending_; }
  // Ends pending transfer `index`. Without outcomes all blocks are ok.
  [[nodiscard]] Finished finish(std::size_t index, std::span<const BlockOutcome> outcomes = {});

  // The index of the disk, parents before children.
  [[nodiscard]] std::vector<DiskEntry> disk_index() const;
  [[nodiscard]] const std::vector<EraseDisk>& erases() const { return erases_; }
  // The checksum that a block with this key has in the world of the tests.
  [[nodiscard]] static std::uint32_t checksum_of(const Digest& key);

 private:
  using Place = std::pair<GroupId, SlotId>;
  void erase(const EraseDisk& erase);
  void check_source(const StartTransfer& start, const TransferBlock& block) const;
  void check_destination(const StartTransfer& start, const TransferBlock& block) const;
  void write(const Pending& transfer, std::size_t block);

  std::vector<Pending> pending_;
  std::vector<EraseDisk> erases_;
  std::map<Place, Digest> host_;
  std::map<Place, DiskEntry> disk_;
};

}  // namespace kv::core
