// BlockMemory: the bytes of the device and host tiers, and where each slot lies in them. In each
// tier the groups of the layout follow each other, as many slots each (AttachPoolReply says the
// same). Owner: the service. Threads: define once, before the first task; block() from any worker.
// Cost: mapping at start; block() is arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "allocator/kv_layout.h"
#include "tiering/stores/host_arena.h"

namespace kv::shell {

class BlockMemory {
 public:
  // host_bytes 0: no host tier. fails: exhausted (no memory), unavailable.
  [[nodiscard]] static Result<BlockMemory> make(std::uint64_t device_bytes,
                                                std::uint64_t host_bytes);

  // requires: the slots fit the bytes of each tier.
  void define(const KvLayout& layout, std::uint32_t device_slots, std::uint32_t host_slots);

  // requires: defined; tier is device or host; the group and slot exist.
  [[nodiscard]] std::span<std::byte> block(Tier tier, GroupId group, SlotId slot) const;

  // Null when the tier is off.
  [[nodiscard]] const HostArena* arena(Tier tier) const;

 private:
  static constexpr std::size_t kMemoryTiers = 2;
  struct Group {
    std::uint64_t offset = 0;
    std::uint64_t block_bytes = 0;
    std::uint32_t slot_count = 0;
  };
  std::array<std::unique_ptr<HostArena>, kMemoryTiers> arenas_;  // null: the tier is off
  std::array<std::vector<Group>, kMemoryTiers> groups_;
};

}  // namespace kv::shell
