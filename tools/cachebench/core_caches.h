// Caches to measure on: a PrefixCache of one tier that is filled in a given way.
// Owner: a benchmark. Threads: none. Cost: of filling, about 0.5 us a block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/prng.h"
#include "allocator/base/token.h"
#include "cachesvc/core/prefix_cache.h"

namespace kv::cachebench {

inline constexpr std::uint32_t kBlockTokens = 16;

// One group of 32 bytes a token: benchmarks of the core hold no payload.
[[nodiscard]] KvLayout small_layout();
[[nodiscard]] std::vector<Token> random_tokens(Prng& prng, std::size_t count);

class FilledCache {
 public:
  // `blocks`: slots of its one tier, all to be filled.
  explicit FilledCache(std::uint32_t blocks);

  // Prompts of `prompt_blocks` each, which grow by turns of `turn_blocks`, the next one at random;
  // slots in random order.
  void fill_interleaved(std::uint32_t prompt_blocks, std::uint32_t turn_blocks);
  // One prompt, in nodes of `node_blocks`: after each another prompt branches off.
  void fill_chain(std::uint32_t prompt_blocks, std::uint32_t node_blocks);
  // Prompts of one block, used in random order.
  void fill_single();

  [[nodiscard]] core::PrefixCache& cache() { return cache_; }
  [[nodiscard]] RootId root() const { return root_; }
  [[nodiscard]] std::uint32_t prompt_count() const { return prompt_count_; }
  [[nodiscard]] std::span<const Token> prompt(std::uint32_t index) const;

  // Held beside the cache.
  [[nodiscard]] std::uint64_t own_bytes() const {
    return tokens_.capacity() * sizeof(Token) + slots_.capacity() * sizeof(SlotId);
  }

  struct Extent {
    const Token* tokens;
    std::size_t count;
  };
  // Where the tree keeps the tokens of a prompt.
  [[nodiscard]] std::vector<Extent> extents(std::span<const Token> prompt) const;

 private:
  BlockId add(BlockId parent, std::span<const Token> tokens, std::uint32_t expected_more);
  void shuffle_slots();

  Prng prng_{7};
  core::PrefixCache cache_;
  RootId root_;
  std::vector<SlotId> slots_;  // taken, not yet used
  std::vector<Token> tokens_;
  std::size_t prompt_tokens_ = 0;
  std::uint32_t prompt_count_ = 0;
};

}  // namespace kv::cachebench
