#include "allocator/block_records.h"

#include "allocator/base/check.h"

namespace kv {
namespace {

std::uint8_t bit_of(Tier tier) { return static_cast<std::uint8_t>(1U << tier_index(tier)); }

}  // namespace

BlockRecords::BlockRecords(std::uint32_t block_capacity, std::uint32_t group_count,
                           std::array<bool, kSlotTiers> tiers)
    : group_count_(group_count),
      checksums_(std::size_t{block_capacity} * group_count, 0),
      keys_(block_capacity),
      last_uses_(block_capacity, 0),
      reuses_(block_capacity, 0),
      pins_(block_capacity, 0),
      arriving_(block_capacity, 0) {
  for (std::size_t t = 0; t < kSlotTiers; ++t) {
    if (tiers[t]) slots_[t].assign(std::size_t{block_capacity} * group_count, SlotId::none().value);
  }
}

void BlockRecords::reset(BlockId block) {
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    for (auto& slots : slots_) {
      if (!slots.empty()) slots[at(block, GroupId(g))] = SlotId::none().value;
    }
    checksums_[at(block, GroupId(g))] = 0;
  }
  keys_[block.value] = Digest{};
  last_uses_[block.value] = 0;
  reuses_[block.value] = 0;
  pins_[block.value] = 0;
  arriving_[block.value] = 0;
}

void BlockRecords::set_slot(BlockId block, GroupId group, Tier tier, SlotId slot) {
  KV_CHECK(tier_index(tier) < kSlotTiers && !slots_[tier_index(tier)].empty());
  slots_[tier_index(tier)][at(block, group)] = slot.value;
}

std::uint32_t BlockRecords::leading_slots(BlockId first, std::uint32_t count, Tier tier) const {
  constexpr std::uint32_t kNone = SlotId::none().value;
  constexpr std::size_t kStride = 16;  // that many are compared without a branch
  if (slots_[tier_index(tier)].empty()) return 0;
  const std::uint32_t* const slots = slots_[tier_index(tier)].data() + at(first, GroupId(0));
  const std::size_t total = std::size_t{count} * group_count_;
  std::size_t i = 0;
  for (; i + kStride <= total; i += kStride) {
    std::uint32_t missing = 0;
    for (std::size_t k = 0; k < kStride; ++k) missing |= slots[i + k] == kNone ? 1U : 0U;
    if (missing != 0) break;
  }
  while (i < total && slots[i] != kNone) ++i;
  return static_cast<std::uint32_t>(i / group_count_);
}

std::uint32_t BlockRecords::checksum(BlockId block, GroupId group) const {
  return checksums_[at(block, group)];
}

void BlockRecords::set_checksum(BlockId block, GroupId group, std::uint32_t checksum) {
  checksums_[at(block, group)] = checksum;
}

bool BlockRecords::arriving(BlockId block, Tier tier) const {
  return (arriving_[block.value] & bit_of(tier)) != 0;
}

void BlockRecords::set_arriving(BlockId block, Tier tier, bool arriving) {
  std::uint8_t& bits = arriving_[block.value];
  bits = static_cast<std::uint8_t>(arriving ? bits | bit_of(tier) : bits & ~bit_of(tier));
}

std::uint64_t BlockRecords::bytes() const {
  std::uint64_t bytes =
      checksums_.size() * sizeof(checksums_[0]) +
      pins_.size() * (sizeof(Digest) + sizeof(std::uint64_t) + sizeof(std::uint32_t) +
                      sizeof(std::uint16_t) + sizeof(std::uint8_t));
  for (const auto& slots : slots_) bytes += slots.size() * sizeof(slots[0]);
  return bytes;
}

}  // namespace kv
