#include "allocator/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kv {
namespace {

std::uint64_t load_word(const void* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Both halves of a 128-bit product, folded: one multiplication mixes two words into each other.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

constexpr std::uint64_t kMixA = 0x9E3779B97F4A7C15U;
constexpr std::uint64_t kMixB = 0xBF58476D1CE4E5B9U;

std::uint64_t digest_hash(const Digest& digest) { return load_word(digest.bytes.data()); }

}  // namespace

PrefixTree::PrefixTree(const Options& options)
    : options_(options),
      block_bytes_(std::uint64_t{options.block_tokens} * sizeof(Token)),
      node_of_(options.block_capacity, kNone),
      free_blocks_(options.block_capacity),
      children_(options.block_capacity),
      root_of_(options.root_capacity) {
  KV_CHECK(std::has_single_bit(options.block_tokens) && options.run_blocks_max > 0);
  KV_CHECK(options.block_capacity < 0x80000000U && options.root_capacity < 0x7FFFFFFFU);
  roots_.reserve(options.root_capacity);
  node_chunks_.reserve((std::size_t{options.block_capacity} >> kChunkBits) + 1);
  tokens_ = std::make_unique_for_overwrite<Token[]>(std::size_t{options.block_capacity} *
                                                    options.block_tokens);
}

// ---- roots

RootId PrefixTree::find_root(const Digest& digest) const {
  const auto equal = [&](std::uint32_t root) { return roots_[root].digest == digest; };
  return RootId(root_of_.find(digest_hash(digest), equal));
}

Result<RootId> PrefixTree::open_root(const Digest& digest) {
  if (const RootId known = find_root(digest); !known.is_none()) return known;
  if (roots_.size() >= options_.root_capacity) {
    return Error{ErrorCode::exhausted, "too many namespaces", {}};
  }
  const auto root = static_cast<std::uint32_t>(roots_.size());
  roots_.push_back(Root{digest, kNone, 0, 0, false});
  root_of_.insert(digest_hash(digest), root);
  return RootId(root);
}

void PrefixTree::rename_root(RootId root, const Digest& digest) {
  Root& renamed = roots_[root.value];
  KV_CHECK(renamed.child_count == 0 && find_root(digest).is_none());
  if (!renamed.retired) root_of_.erase(digest_hash(renamed.digest), root.value);
  renamed.digest = digest;
  renamed.retired = false;
  root_of_.insert(digest_hash(digest), root.value);
}

const Digest& PrefixTree::namespace_digest(RootId root) const { return roots_[root.value].digest; }

void PrefixTree::retire_root(RootId root) {
  Root& retired = roots_[root.value];
  KV_CHECK(!retired.retired);
  root_of_.erase(digest_hash(retired.digest), root.value);
  retired.retired = true;
  retired_blocks_ += retired.block_count;
}

std::uint32_t PrefixTree::root_count() const { return static_cast<std::uint32_t>(roots_.size()); }

std::uint32_t PrefixTree::live_root_count() const { return root_of_.size(); }

// ---- children

std::uint32_t& PrefixTree::first_child_of(std::uint32_t owner) {
  return is_root(owner) ? roots_[owner & ~0x80000000U].first_child : at(owner).first_child;
}
std::uint32_t PrefixTree::first_child_of(std::uint32_t owner) const {
  return is_root(owner) ? roots_[owner & ~0x80000000U].first_child : at(owner).first_child;
}
std::uint32_t& PrefixTree::child_count_of(std::uint32_t owner) {
  return is_root(owner) ? roots_[owner & ~0x80000000U].child_count : at(owner).child_count;
}
std::uint32_t PrefixTree::child_count_of(std::uint32_t owner) const {
  return is_root(owner) ? roots_[owner & ~0x80000000U].child_count : at(owner).child_count;
}

std::uint64_t PrefixTree::child_hash(std::uint32_t owner, const Token* tokens) const {
  const std::uint64_t seed = options_.hash_seed;
  std::uint64_t hash = fold(seed ^ kMixA, owner + kMixB);
  const auto* bytes = reinterpret_cast<const unsigned char*>(tokens);
  std::uint64_t i = 0;
  for (; i + 16 <= block_bytes_; i += 16) {
    hash = fold(load_word(bytes + i) ^ hash ^ kMixA, load_word(bytes + i + 8) ^ seed ^ kMixB);
  }
  for (; i < block_bytes_; i += sizeof(Token)) {
    hash = fold(tokens[i / sizeof(Token)] ^ hash ^ kMixA, seed ^ kMixB);
  }
  return fold(hash ^ seed, kMixB);
}

bool PrefixTree::equal_blocks(std::uint32_t block, const Token* tokens,
                              std::uint32_t block_count) const {
  return std::memcmp(tokens_of(block), tokens, block_bytes_ * block_count) == 0;
}

std::uint32_t PrefixTree::equal_prefix(const Node& node, const Token* tokens,
                                       std::uint32_t limit) const {
  if (equal_blocks(node.first + 1, tokens + options_.block_tokens, limit - 1)) return limit;
  std::uint32_t equal = 1;
  while (equal_blocks(node.first + equal, tokens + std::size_t{equal} * options_.block_tokens, 1)) {
    ++equal;
  }
  return equal;
}

std::uint32_t PrefixTree::find_child_node(std::uint32_t owner, const Token* tokens) const {
  const std::uint32_t count = child_count_of(owner);
  if (count == 0) return kNone;
  if (count == 1) {
    const std::uint32_t child = first_child_of(owner);
    return equal_blocks(at(child).first, tokens, 1) ? child : kNone;
  }
  return children_.find(child_hash(owner, tokens), [&](std::uint32_t child) {
    const Node& node = at(child);
    const std::uint32_t its_owner = node.parent == kNone ? owner_of_root(node.root) : node.parent;
    return its_owner == owner && equal_blocks(node.first, tokens, 1);
  });
}

std::uint32_t PrefixTree::match(RootId root, std::span<const Token> tokens,
                                std::vector<Run>& path) const {
  std::uint32_t owner = owner_of_root(root.value);
  auto left = static_cast<std::uint32_t>(tokens.size() / options_.block_tokens);
  const Token* next = tokens.data();
  std::uint32_t matched = 0;
  while (left > 0) {
    const std::uint32_t child = find_child_node(owner, next);
    if (child == kNone) break;
    const Node& node = at(child);
    const std::uint32_t equal = equal_prefix(node, next, std::min(left, node.count));
    path.push_back(Run{BlockId(node.first), equal});
    matched += equal;
    left -= equal;
    if (equal < node.count) break;
    next += std::size_t{equal} * options_.block_tokens;
    owner = child;
  }
  return matched;
}

BlockId PrefixTree::find_child(RootId root, BlockId parent, std::span<const Token> tokens) const {
  KV_CHECK(tokens.size() == options_.block_tokens);
  std::uint32_t owner = owner_of_root(root.value);
  if (!parent.is_none()) {
    owner = node_of_[parent.value];
    const Node& node = at(owner);
    if (const std::uint32_t next = parent.value + 1; next < node.first + node.count) {
      return equal_blocks(next, tokens.data(), 1) ? BlockId(next) : BlockId::none();
    }
  }
  const std::uint32_t child = find_child_node(owner, tokens.data());
  return child == kNone ? BlockId::none() : BlockId(at(child).first);
}

// ---- changes

std::uint32_t PrefixTree::take_node() {
  std::uint32_t node = free_node_;
  if (node != kNone) {
    free_node_ = at(node).next_sibling;
  } else {
    node = nodes_made_++;
    if ((node & (kChunkNodes - 1)) == 0) {
      node_chunks_.push_back(std::make_unique<Node[]>(kChunkNodes));
    }
  }
  ++node_count_;
  return node;
}

void PrefixTree::give_node(std::uint32_t node) {
  at(node) = Node{};
  at(node).next_sibling = free_node_;
  free_node_ = node;
  --node_count_;
}

// As the first child. requires: node's first block has its tokens.
void PrefixTree::link_child(std::uint32_t owner, std::uint32_t node) {
  Node& child = at(node);
  std::uint32_t& first = first_child_of(owner);
  child.parent = is_root(owner) ? kNone : owner;
  child.previous_sibling = kNone;
  child.next_sibling = first;
  if (first != kNone) at(first).previous_sibling = node;
  first = node;
  ++child_count_of(owner);
  children_.insert(child_hash(owner, tokens_of(child.first)), node);
}

void PrefixTree::unlink_child(std::uint32_t owner, std::uint32_t node) {
  const Node& child = at(node);
  children_.erase(child_hash(owner, tokens_of(child.first)), node);
  if (child.next_sibling != kNone) at(child.next_sibling).previous_sibling = child.previous_sibling;
  (child.previous_sibling == kNone ? first_child_of(owner)
                                   : at(child.previous_sibling).next_sibling) = child.next_sibling;
  --child_count_of(owner);
}

// The first `block_count` blocks go into a new node in the old one's place; the old node keeps its
// id and its children and becomes the new one's child. Returns the new node.
std::uint32_t PrefixTree::split_after(std::uint32_t tail, std::uint32_t block_count) {
  const std::uint32_t head = take_node();
  Node& front = at(head);
  Node& back = at(tail);
  const std::uint32_t owner = back.parent == kNone ? owner_of_root(back.root) : back.parent;
  children_.replace(child_hash(owner, tokens_of(back.first)), tail, head);
  front = back;
  front.count = block_count;
  front.first_child = kNone;
  front.child_count = 0;
  if (front.next_sibling != kNone) at(front.next_sibling).previous_sibling = head;
  (front.previous_sibling == kNone ? first_child_of(owner)
                                   : at(front.previous_sibling).next_sibling) = head;
  for (std::uint32_t i = 0; i < block_count; ++i) node_of_[front.first + i] = head;
  back.first += block_count;
  back.count -= block_count;
  back.depth += block_count;
  link_child(head, tail);
  return head;
}

void PrefixTree::store(std::uint32_t block, std::uint32_t node, std::span<const Token> tokens) {
  std::copy(tokens.begin(), tokens.end(),
            tokens_.get() + std::size_t{block} * options_.block_tokens);
  node_of_[block] = node;
  ++block_count_;
  ++roots_[at(node).root].block_count;
}

Result<PrefixTree::Inserted> PrefixTree::insert(RootId root, BlockId parent,
                                                std::span<const Token> tokens,
                                                std::uint32_t expected_more) {
  KV_CHECK(tokens.size() == options_.block_tokens && root.value < roots_.size());
  KV_CHECK(!roots_[root.value].retired);
  Inserted inserted;
  std::uint32_t owner = owner_of_root(root.value);
  std::uint32_t depth = 0;
  if (!parent.is_none()) {
    KV_CHECK(contains(parent));
    owner = node_of_[parent.value];
    Node& node = at(owner);
    depth = node.depth + (parent.value - node.first) + 1;
    const bool is_last = parent.value + 1 == node.first + node.count;
    if (is_last && node.child_count == 0 && node.count < options_.run_blocks_max &&
        free_blocks_.take_at(parent.value + 1)) {
      ++node.count;
      store(parent.value + 1, owner, tokens);
      inserted.block = BlockId(parent.value + 1);
      return inserted;
    }
  }
  const std::uint32_t room = std::min(expected_more, options_.run_blocks_max - 1) + 1;
  const std::uint32_t block = free_blocks_.take_with_room(room);
  if (block == RunAllocator::kNone) return Error{ErrorCode::exhausted, "too many blocks", {}};
  if (!parent.is_none() && parent.value + 1 != at(owner).first + at(owner).count) {
    inserted.split_tail = NodeId(owner);
    owner = split_after(owner, parent.value + 1 - at(owner).first);
    inserted.split_head = NodeId(owner);
  }
  const std::uint32_t node = take_node();
  at(node) = Node{block, 1, depth, root.value, kNone, kNone, kNone, kNone, 0};
  store(block, node, tokens);
  link_child(owner, node);
  inserted.block = BlockId(block);
  return inserted;
}

void PrefixTree::remove(BlockId block) {
  KV_CHECK(contains(block) && !has_child(block));
  const std::uint32_t id = node_of_[block.value];
  Node& node = at(id);
  Root& root = roots_[node.root];
  --root.block_count;
  if (root.retired) --retired_blocks_;
  if (node.count == 1) {
    unlink_child(node.parent == kNone ? owner_of_root(node.root) : node.parent, id);
    give_node(id);
  } else {
    --node.count;
  }
  node_of_[block.value] = kNone;
  free_blocks_.give(block.value);
  --block_count_;
}

std::uint64_t PrefixTree::bytes() const {
  return options_.block_capacity * (block_bytes_ + sizeof(std::uint32_t)) +
         node_chunks_.capacity() * sizeof(node_chunks_[0]) +
         node_chunks_.size() * kChunkNodes * sizeof(Node) + roots_.capacity() * sizeof(Root) +
         free_blocks_.bytes() + children_.bytes() + root_of_.bytes();
}

}  // namespace kv
