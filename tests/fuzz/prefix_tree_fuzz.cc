// The prefix tree beside a map from token paths to blocks. The bytes are operations: each one
// inserts below, removes or looks up a path that a few of them spell.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/prefix_tree.h"

namespace kv {
namespace {

constexpr std::uint32_t kBlockTokens = 2;
constexpr std::uint32_t kBlockCapacity = 40;

using Path = std::vector<Token>;

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}
  [[nodiscard]] bool at_end() const { return next_ == bytes_.size(); }
  std::uint8_t next() { return at_end() ? std::uint8_t{0} : bytes_[next_++]; }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t next_ = 0;
};

class Machine {
 public:
  Machine()
      : tree_({.block_tokens = kBlockTokens,
               .block_capacity = kBlockCapacity,
               .root_capacity = 1,
               .run_blocks_max = 5,
               .hash_seed = 1}),
        root_(tree_.open_root(Digest{}).value()) {}

  void step(Bytes& bytes) {
    const std::uint8_t operation = bytes.next();
    // Two bits a block: at most 8 blocks of two tokens in {0, 1}.
    Path path;
    const std::uint32_t length = 1U + (operation >> 2U) % 8U;
    std::uint32_t bits = bytes.next() | static_cast<std::uint32_t>(bytes.next()) << 8U;
    for (std::uint32_t i = 0; i < length * kBlockTokens; ++i, bits >>= 1U) {
      path.push_back(bits & 1U);
    }
    switch (operation & 3U) {
      case 0:
      case 1:
        insert(path, operation >> 5U);
        break;
      case 2:
        remove(path);
        break;
      default:
        break;
    }
    check_match(path);
    KV_CHECK(tree_.block_count() == blocks_.size());
  }

  void check_all() const {
    for (const auto& [path, block] : blocks_) {
      KV_CHECK(tree_.contains(block) && tree_.depth(block) + 1 == path.size() / kBlockTokens);
      const Path above(path.begin(), path.end() - kBlockTokens);
      KV_CHECK(tree_.parent(block) == (above.empty() ? BlockId::none() : blocks_.at(above)));
      const std::span<const Token> last = std::span(path).last(kBlockTokens);
      KV_CHECK(tree_.find_child(root_, tree_.parent(block), last) == block);
      KV_CHECK(tree_.has_child(block) == has_child(path));
    }
  }

 private:
  [[nodiscard]] bool has_child(const Path& path) const {
    const auto next = blocks_.upper_bound(path);  // paths below a path follow it in order
    return next != blocks_.end() && next->first.size() > path.size() &&
           std::equal(path.begin(), path.end(), next->first.begin());
  }

  // Every block of the path that is missing, from the root on.
  void insert(const Path& path, std::uint32_t expected_more) {
    BlockId parent;
    for (std::size_t end = kBlockTokens; end <= path.size(); end += kBlockTokens) {
      const Path prefix(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(end));
      const auto tokens = std::span(prefix).last(kBlockTokens);
      const BlockId found = tree_.find_child(root_, parent, tokens);
      const auto known = blocks_.find(prefix);
      KV_CHECK(found == (known == blocks_.end() ? BlockId::none() : known->second));
      if (!found.is_none()) {
        parent = found;
        continue;
      }
      const auto inserted = tree_.insert(root_, parent, tokens, expected_more);
      KV_CHECK(inserted.has_value() == (blocks_.size() < kBlockCapacity));
      if (!inserted.has_value()) return;
      blocks_[prefix] = inserted->block;
      parent = inserted->block;
    }
  }

  void remove(const Path& path) {
    const auto it = blocks_.find(path);
    if (it == blocks_.end() || has_child(path)) return;
    tree_.remove(it->second);
    blocks_.erase(it);
  }

  void check_match(const Path& path) const {
    std::vector<PrefixTree::Run> runs;
    std::uint32_t left = tree_.match(root_, path, runs);
    std::size_t end = 0;
    for (const auto& run : runs) {
      for (std::uint32_t i = 0; i < run.count; ++i, --left) {
        end += kBlockTokens;
        const Path prefix(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(end));
        KV_CHECK(blocks_.at(prefix) == BlockId(run.first.value + i));
      }
    }
    KV_CHECK(left == 0);
    if (end == path.size()) return;
    const Path more(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(end + kBlockTokens));
    KV_CHECK(!blocks_.contains(more));
  }

  PrefixTree tree_;
  RootId root_;
  std::map<Path, BlockId> blocks_;
};

}  // namespace
}  // namespace kv

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kv::Bytes bytes(data, size);
  kv::Machine machine;
  while (!bytes.at_end()) machine.step(bytes);
  machine.check_all();
  return 0;
}
