#include "tools/cachesim/core_cache.h"

#include <cstring>

namespace kv::cachesim {
namespace {

using core::PrefixCache;

constexpr GroupId kGroup{0};

PrefixCache::Options cache_options(PolicyKind policy, std::uint32_t capacity, RecomputeCost cost) {
  PrefixCache::Options options;
  options.layout.block_tokens = 1;
  options.layout.groups.resize(1);
  options.slot_count = {capacity, 0, 0};
  options.hole_capacity = 0;
  options.policies = {policy, policy, policy};
  options.recompute_cost = cost;
  return options;
}

// Stands for the digest of a block: unlike for unlike blocks, and spread over its first 64 bits.
Digest key_of(std::uint32_t block) {
  std::uint64_t spread = (block + 1) * 0x9E3779B97F4A7C15U;
  spread = (spread ^ (spread >> 32U)) * 0xD6E8FEB86659FD93U;
  spread ^= spread >> 32U;
  Digest key{};
  std::memcpy(key.bytes.data(), &spread, sizeof spread);
  std::memcpy(key.bytes.data() + sizeof spread, &block, sizeof block);
  return key;
}

}  // namespace

CoreCache::CoreCache(PolicyKind policy, std::uint32_t capacity, RecomputeCost cost)
    : cache_(cache_options(policy, capacity, cost)), root_(cache_.open_root(Digest{}).value()) {}

bool CoreCache::make_room() {
  if (cache_.pool(Tier::device, kGroup).count(SlotState::free) > 0) return true;
  const BlockId victim = cache_.victim(Tier::device);
  if (victim.is_none()) return false;
  cache_.drop_copy(victim, kGroup, Tier::device);
  return true;
}

std::uint32_t CoreCache::take(std::span<const std::uint32_t> blocks) {
  // A match leaves one token to be computed; here it is one behind the prompt.
  tokens_.assign(blocks.begin(), blocks.end());
  tokens_.push_back(0);
  path_.clear();
  const std::uint32_t hit = cache_.match(root_, tokens_, path_).hit_blocks;
  BlockId deepest;
  if (hit > 0) {
    deepest = path_[hit - 1];
    cache_.pin(deepest);
    cache_.touch(deepest);
  }
  const auto count = static_cast<std::uint32_t>(blocks.size());
  std::uint32_t done = hit;
  for (; done < count && make_room(); ++done) {
    const auto token = std::span<const Token>(tokens_).subspan(done, 1);
    const BlockId block =
        cache_.insert_pinned(root_, deepest, token, key_of(blocks[done]), count - 1 - done).value();
    cache_.add_copy(block, kGroup, Tier::device, cache_.take_slot(Tier::device, kGroup).value());
    if (!deepest.is_none()) cache_.unpin(deepest);
    deepest = block;
  }
  if (done > hit) cache_.touch(deepest, PrefixCache::Use::by_the_same_request);
  if (!deepest.is_none()) cache_.unpin(deepest);
  return hit;
}

}  // namespace kv::cachesim
