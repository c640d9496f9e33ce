#include "tools/cachebench/core_caches.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "allocator/base/check.h"

namespace kv::cachebench {
namespace {

constexpr GroupId kGroup(0);

template <class Value>
void shuffle(std::vector<Value>& values, Prng& prng) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[prng.below(i)]);
  }
}

core::PrefixCache::Options options_of(std::uint32_t blocks) {
  core::PrefixCache::Options options;
  options.layout = small_layout();
  options.slot_count[tier_index(Tier::device)] = blocks;
  options.hash_seed = 99;
  return options;
}

}  // namespace

KvLayout small_layout() {
  return {.block_tokens = kBlockTokens,
          .groups = {{.kind = AttentionKind::full,
                      .layer_count = 1,
                      .kv_head_count = 1,
                      .head_dim_k = 4,
                      .head_dim_v = 4}}};
}

std::vector<Token> random_tokens(Prng& prng, std::size_t count) {
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(prng.below(128'000));
  return tokens;
}

FilledCache::FilledCache(std::uint32_t blocks) : cache_(options_of(blocks)) {
  root_ = *cache_.open_root(Digest{});
  slots_.reserve(blocks);
  for (std::uint32_t i = 0; i < blocks; ++i)
    slots_.push_back(*cache_.take_slot(Tier::device, kGroup));
}

void FilledCache::shuffle_slots() { shuffle(slots_, prng_); }

BlockId FilledCache::add(BlockId parent, std::span<const Token> tokens,
                         std::uint32_t expected_more) {
  Digest key;  // as evenly spread as a real one, and cheaper
  for (std::size_t at = 0; at < key.bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = prng_.next();
    std::memcpy(&key.bytes[at], &word, sizeof word);
  }
  const BlockId block = *cache_.insert_pinned(root_, parent, tokens, key, expected_more);
  cache_.add_copy(block, kGroup, Tier::device, slots_.back());
  slots_.pop_back();
  cache_.unpin(block);
  return block;
}

void FilledCache::fill_interleaved(std::uint32_t prompt_blocks, std::uint32_t turn_blocks) {
  shuffle_slots();
  prompt_count_ = static_cast<std::uint32_t>(slots_.size() / prompt_blocks);
  prompt_tokens_ = std::size_t{prompt_blocks} * kBlockTokens;
  tokens_ = random_tokens(prng_, prompt_tokens_ * prompt_count_);
  std::vector<std::uint32_t> turns;
  for (std::uint32_t i = 0; i < prompt_blocks / turn_blocks; ++i) {
    for (std::uint32_t p = 0; p < prompt_count_; ++p) turns.push_back(p);
  }
  shuffle(turns, prng_);
  std::vector<std::uint32_t> grown(prompt_count_, 0);
  std::vector<BlockId> ends(prompt_count_, BlockId::none());
  for (const std::uint32_t p : turns) {
    for (std::uint32_t i = 0; i < turn_blocks; ++i) {
      const auto tokens = prompt(p).subspan(std::size_t{grown[p]++} * kBlockTokens, kBlockTokens);
      ends[p] = add(ends[p], tokens, turn_blocks - i - 1);
    }
  }
}

void FilledCache::fill_chain(std::uint32_t prompt_blocks, std::uint32_t node_blocks) {
  prompt_count_ = 1;
  prompt_tokens_ = std::size_t{prompt_blocks} * kBlockTokens;
  tokens_ = random_tokens(prng_, prompt_tokens_);
  BlockId end = BlockId::none();
  for (std::uint32_t i = 0; i < prompt_blocks; ++i) {
    end = add(end, prompt(0).subspan(std::size_t{i} * kBlockTokens, kBlockTokens),
              prompt_blocks - i - 1);
    if ((i + 1) % node_blocks == 0 && i + 1 < prompt_blocks) {
      add(end, random_tokens(prng_, kBlockTokens), 0);
    }
  }
}

void FilledCache::fill_single() {
  shuffle_slots();
  std::vector<BlockId> blocks;
  while (!slots_.empty())
    blocks.push_back(add(BlockId::none(), random_tokens(prng_, kBlockTokens), 0));
  shuffle(blocks, prng_);
  for (const BlockId block : blocks) cache_.touch(block);
}

std::span<const Token> FilledCache::prompt(std::uint32_t index) const {
  return std::span(tokens_).subspan(index * prompt_tokens_, prompt_tokens_);
}

std::vector<FilledCache::Extent> FilledCache::extents(std::span<const Token> prompt) const {
  std::vector<PrefixTree::Run> runs;
  const std::uint32_t matched = cache_.tree().match(root_, prompt, runs);
  KV_CHECK(matched == prompt.size() / kBlockTokens);
  std::vector<Extent> extents;
  extents.reserve(runs.size());
  for (const PrefixTree::Run& run : runs) {
    extents.push_back(
        {cache_.tree().tokens(run.first).data(), std::size_t{run.count} * kBlockTokens});
  }
  return extents;
}

}  // namespace kv::cachebench
