#include "tools/cachesim/trace_builder.h"

#include "allocator/base/check.h"

namespace kv::cachesim {
namespace {

// The finisher of splitmix64: neighbours come far apart.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace

std::size_t NumberTable::place_of(std::uint64_t key) const {
  const std::size_t mask = entries_.size() - 1;
  std::size_t at = mix(key) & mask;
  while (entries_[at].value != kAbsent && entries_[at].key != key) at = (at + 1) & mask;
  return at;
}

std::uint32_t NumberTable::find(std::uint64_t key) const {
  return entries_.empty() ? kAbsent : entries_[place_of(key)].value;
}

void NumberTable::insert(std::uint64_t key, std::uint32_t value) {
  if (2 * (size_ + 1) > entries_.size()) grow();
  Entry& entry = entries_[place_of(key)];
  KV_CHECK(entry.value == kAbsent && value != kAbsent);
  entry = Entry{key, value};
  ++size_;
}

void NumberTable::grow() {
  constexpr std::size_t kFirstSize = 1024;
  std::vector<Entry> old(entries_.empty() ? kFirstSize : 2 * entries_.size());
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.value != kAbsent) entries_[place_of(entry.key)] = entry;
  }
}

bool TraceBuilder::add(const TraceRequest& arrival, std::span<const std::uint64_t> identities) {
  start(arrival);
  for (const std::uint64_t identity : identities) {
    if (!append(identity)) return false;
  }
  return true;
}

bool TraceBuilder::add_runs(const TraceRequest& arrival, std::uint64_t identity_base,
                            std::span<const BlockRun> runs) {
  start(arrival);
  for (const BlockRun& run : runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      if (!append(identity_base + run.first + i)) return false;
    }
  }
  return true;
}

void TraceBuilder::start(const TraceRequest& arrival) {
  trace_.requests.push_back(arrival);
  TraceRequest& request = trace_.requests.back();
  request.block_count = 0;
  request.run_count = 0;
  request.first_run = trace_.runs.size();
  parent_ = kNoBlock;
  depth_ = 0;
}

bool TraceBuilder::append(std::uint64_t identity) {
  const std::uint32_t block = number_of(identity);
  if (block == kNoBlock) return false;
  TraceRequest& request = trace_.requests.back();
  std::vector<BlockRun>& runs = trace_.runs;
  if (request.run_count > 0 && runs.back().first + runs.back().count == block) {
    ++runs.back().count;
  } else {
    runs.push_back({block, 1});
    ++request.run_count;
  }
  ++request.block_count;
  parent_ = block;
  ++depth_;
  return true;
}

std::uint32_t TraceBuilder::number_of(std::uint64_t identity) {
  // Most blocks follow the one they followed before: no table is asked.
  const std::uint32_t next = parent_ + 1;  // of kNoBlock: block 0
  if (next < trace_.unique_blocks() && identities_[next] == identity &&
      trace_.parents[next] == parent_) {
    return next;
  }
  const std::uint32_t first = first_seen_.find(identity);
  if (first == NumberTable::kAbsent) {
    const std::uint32_t block = make_block(identity);
    if (block != kNoBlock) first_seen_.insert(identity, block);
    return block;
  }
  if (trace_.parents[first] == parent_) return first;
  const std::uint64_t key = (std::uint64_t{parent_} << 32U) | first;
  const std::uint32_t known = chained_.find(key);
  if (known != NumberTable::kAbsent) return known;
  const std::uint32_t block = make_block(identity);
  if (block != kNoBlock) chained_.insert(key, block);
  return block;
}

std::uint32_t TraceBuilder::make_block(std::uint64_t identity) {
  if (trace_.unique_blocks() == kBlocksMax) return kNoBlock;
  trace_.parents.push_back(parent_);
  trace_.depths.push_back(depth_);
  identities_.push_back(identity);
  return trace_.unique_blocks() - 1;
}

}  // namespace kv::cachesim
