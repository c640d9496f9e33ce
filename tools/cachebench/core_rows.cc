#include "tools/cachebench/core_rows.h"

#include <cstring>
#include <memory>
#include <numeric>

#include <malloc.h>

#include "allocator/block_key.h"
#include "tools/cachebench/core_caches.h"
#include "tools/cachebench/engine_loop.h"
#include "tools/cachebench/pairs.h"

namespace kv::cachebench {
namespace {

constexpr std::uint32_t kPromptBlocks = 512;  // 8,192 tokens
constexpr std::uint32_t kTurnBlocks = 16;     // 256 tokens
constexpr std::uint32_t kLongBlocks = 2'048;  // 32,768 tokens
constexpr std::uint32_t kLongNodes = 200;
constexpr std::uint32_t kEvictBatch = 64;

Row row_of(const char* name, const Pairs& pairs, const char* limit_name, double bar) {
  return {.name = name,
          .unit = "ns",
          .value = pairs.work_ns,
          .limit_name = limit_name,
          .limit = pairs.limit_ns,
          .ratio = pairs.ratio,
          .bar = bar};
}

// Match and memcmp over the same extents, each of a prompt of its own, which the tree has not seen
// for long; the request's tokens have just come in.
Pairs match_against_memcmp(FilledCache& filled, std::uint32_t rounds) {
  Prng prng(3);
  std::vector<Token> request;
  std::vector<BlockId> path;
  // Found before, so that memcmp meets tokens as cold as the match does.
  std::vector<std::vector<FilledCache::Extent>> extents(filled.prompt_count());
  for (std::uint32_t i = 0; i < filled.prompt_count(); ++i) {
    extents[i] = filled.extents(filled.prompt(i));
  }
  const auto next_prompt = [&] {
    const auto index = static_cast<std::uint32_t>(prng.below(filled.prompt_count()));
    const auto prompt = filled.prompt(index);
    request.assign(prompt.begin(), prompt.end());
    request.push_back(0);  // the one that is always computed
    path.clear();
    path.reserve(request.size() / kBlockTokens);
    return index;
  };
  return measure(
      rounds,
      [&](std::uint32_t) {
        (void)next_prompt();
        return [&] { return filled.cache().match(filled.root(), request, path).hit_blocks; };
      },
      [&](std::uint32_t) {
        const auto index = next_prompt();
        return [&, index] {
          std::uint64_t equal = 0;
          const Token* next = request.data();
          for (const FilledCache::Extent& extent : extents[index]) {
            equal += std::memcmp(extent.tokens, next, extent.count * sizeof(Token)) == 0 ? 1 : 0;
            next += extent.count;
          }
          return equal;
        };
      });
}

Row match_prompt(const CoreOptions& options) {
  FilledCache filled(options.blocks);
  filled.fill_interleaved(kPromptBlocks, kTurnBlocks);
  return row_of("match_8192_tokens", match_against_memcmp(filled, options.rounds),
                "memcmp over the same extents", 3);
}

Row match_nodes(const CoreOptions& options) {
  FilledCache filled(2 * kLongBlocks);
  filled.fill_chain(kLongBlocks, kLongBlocks / kLongNodes);
  return row_of("match_200_nodes", match_against_memcmp(filled, options.rounds),
                "memcmp over the same extents", 4);
}

Row cold_prompt(const CoreOptions& options) {
  EngineLoop loop(options.blocks);
  Prng prng(5);
  std::vector<Token> prompt;
  // Until each new prompt evicts as many blocks as it brings.
  for (std::uint32_t i = 0; i <= options.blocks / kPromptBlocks; ++i) {
    loop.run_cold(random_tokens(prng, std::size_t{kPromptBlocks} * kBlockTokens));
  }
  const Pairs pairs = measure(
      options.rounds,
      [&](std::uint32_t) {
        prompt = random_tokens(prng, std::size_t{kPromptBlocks} * kBlockTokens);
        return [&] {
          loop.run_cold(prompt);
          return 1U;
        };
      },
      [&](std::uint32_t) {
        return [&] {
          Digest key;
          for (std::size_t at = 0; at < prompt.size(); at += kBlockTokens) {
            key = next_block_key(key, std::span(prompt).subspan(at, kBlockTokens));
          }
          return static_cast<unsigned>(key.bytes[0]);
        };
      });
  return row_of("cold_8192_tokens", pairs, "keys of the same blocks", 8);
}

// A walk through all of a stretch of memory in random order, each step known only after the last.
class RandomWalk {
 public:
  RandomWalk() : next_(kWords) {
    std::iota(next_.begin(), next_.end(), 0U);
    Prng prng(11);
    for (std::size_t i = kWords - 1; i > 0; --i) std::swap(next_[i], next_[prng.below(i)]);
  }
  std::uint32_t steps(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) at_ = next_[at_];
    return at_;
  }

 private:
  static constexpr std::size_t kWords = std::size_t{1} << 26U;  // 256 MiB
  std::vector<std::uint32_t> next_;
  std::uint32_t at_ = 0;
};

Row evict_batch(const CoreOptions& options) {
  FilledCache filled(options.blocks);
  filled.fill_single();
  RandomWalk walk;
  core::PrefixCache& cache = filled.cache();
  const Pairs pairs = measure(
      std::min(options.rounds, options.blocks / kEvictBatch / 2),
      [&](std::uint32_t) {
        return [&] {
          for (std::uint32_t i = 0; i < kEvictBatch; ++i) {
            cache.drop_copy(cache.victim(Tier::device), GroupId(0), Tier::device);
          }
          return cache.tree().block_count();
        };
      },
      [&](std::uint32_t) { return [&] { return walk.steps(kEvictBatch); }; });
  return row_of("evict_64_blocks", pairs, "64 random memory loads", 0.7);
}

Row metadata(const char* name, const CoreOptions& options, double bar, bool is_single) {
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = in_use();
  // The prompts of the benchmark itself lie outside.
  const auto filled = std::make_unique<FilledCache>(options.blocks);
  if (is_single) {
    filled->fill_single();
  } else {
    filled->fill_interleaved(kPromptBlocks, kTurnBlocks);
  }
  const double bytes = in_use() - before - static_cast<double>(filled->own_bytes());
  const double per_block = bytes / options.blocks - kBlockTokens * sizeof(Token);
  return {.name = name,
          .unit = "bytes/block",
          .value = per_block,
          .limit_name = "the block's own tokens",
          .limit = kBlockTokens * sizeof(Token),
          .ratio = per_block / (kBlockTokens * sizeof(Token)),
          .bar = bar / (kBlockTokens * sizeof(Token))};
}

Row metadata_long(const CoreOptions& options) {
  return metadata("metadata_long_nodes", options, 128, false);
}
Row metadata_single(const CoreOptions& options) {
  return metadata("metadata_one_block_nodes", options, 160, true);
}

}  // namespace

const std::vector<CoreRow>& core_rows() {
  static const std::vector<CoreRow> rows = {
      {"match_8192_tokens", match_prompt},    {"match_200_nodes", match_nodes},
      {"cold_8192_tokens", cold_prompt},      {"evict_64_blocks", evict_batch},
      {"metadata_long_nodes", metadata_long}, {"metadata_one_block_nodes", metadata_single}};
  return rows;
}

}  // namespace kv::cachebench
