#include "tools/cachebench/core_counts.h"

#include <valgrind/callgrind.h>

#include "tools/cachebench/core_caches.h"
#include "tools/cachebench/engine_loop.h"
#include "tools/cachebench/pairs.h"

namespace kv::cachebench {
namespace {

constexpr std::uint32_t kPromptBlocks = 512;
constexpr std::uint32_t kTurnBlocks = 16;
constexpr std::uint32_t kSequences = 256;

template <class Piece>
void count(Piece&& piece) {
  CALLGRIND_START_INSTRUMENTATION;
  piece();
  CALLGRIND_STOP_INSTRUMENTATION;
}

void count_misses(std::uint32_t operations, std::uint32_t blocks) {
  FilledCache filled(blocks);
  filled.fill_interleaved(kPromptBlocks, kTurnBlocks);
  Prng prng(23);
  const std::vector<Token> tokens =
      random_tokens(prng, std::size_t{operations} + std::size_t{kPromptBlocks} * kBlockTokens);
  std::vector<BlockId> path;
  path.reserve(kPromptBlocks);
  const core::PrefixCache& cache = filled.cache();
  count([&] {
    for (std::uint32_t i = 0; i < operations; ++i) {
      const auto prompt = std::span(tokens).subspan(i, std::size_t{kPromptBlocks} * kBlockTokens);
      sink() += cache.match(filled.root(), prompt, path).known_blocks;
    }
  });
}

void count_evictions(std::uint32_t operations, std::uint32_t blocks) {
  FilledCache filled(blocks);
  filled.fill_single();
  core::PrefixCache& cache = filled.cache();
  count([&] {
    for (std::uint32_t i = 0; i < operations; ++i) {
      cache.drop_copy(cache.victim(Tier::device), GroupId(0), Tier::device);
    }
  });
}

void count_decode(std::uint32_t operations, std::uint32_t) {
  const std::uint32_t steps = operations / kSequences;
  EngineLoop loop(kSequences * (steps / kBlockTokens + 3));
  Prng prng(29);
  std::vector<core::StepItem> items;
  for (std::uint32_t i = 0; i < kSequences; ++i) {
    loop.admit(SequenceId(i), random_tokens(prng, kBlockTokens), steps + kBlockTokens);
    items.push_back({.sequence = SequenceId(i),
                     .op = core::StepOp::append,
                     .token_offset = i,
                     .token_count = 1});
    items.push_back({.sequence = SequenceId(i), .op = core::StepOp::publish});
  }
  const auto decode = [&](std::uint32_t step) {
    for (std::size_t i = 1; i < items.size(); i += 2) items[i].value = kBlockTokens + step;
    sink() += loop.step(items, random_tokens(prng, kSequences));
  };
  // As many as a block has tokens: then the memory that steps reuse has its size.
  std::uint32_t step = 0;
  for (; step < kBlockTokens; ++step) decode(step);
  const std::vector<Token> tokens = random_tokens(prng, std::size_t{steps} * kSequences);
  for (std::uint32_t i = 0; i < steps; ++i, ++step) {
    for (std::size_t item = 1; item < items.size(); item += 2)
      items[item].value = kBlockTokens + step;
    count([&] {
      sink() +=
          loop.step(items, std::span(tokens).subspan(std::size_t{i} * kSequences, kSequences));
    });
  }
}

struct Counted {
  const char* name;
  void (*run)(std::uint32_t operations, std::uint32_t blocks);
};
constexpr Counted kCounted[] = {
    {"miss", count_misses}, {"evict", count_evictions}, {"decode", count_decode}};

}  // namespace

const std::vector<std::string>& counted_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Counted& counted : kCounted) all.emplace_back(counted.name);
    return all;
  }();
  return names;
}

void run_counted(const std::string& name, std::uint32_t operations, std::uint32_t blocks) {
  for (const Counted& counted : kCounted) {
    if (name == counted.name) return counted.run(operations, blocks);
  }
}

}  // namespace kv::cachebench
