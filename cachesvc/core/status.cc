// Status and Tree: reading only.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

StatusReply Engine::State::status() const {
  StatusReply answer;
  answer.counters = counters_;
  answer.clients = static_cast<std::uint32_t>(clients_.size());
  answer.sequences = sequences_used_;
  answer.recovering = recovering_;
  if (cache_ == nullptr) return answer;
  answer.block_tokens = block_tokens_;
  answer.tree_blocks = cache_->tree().block_count();
  answer.tree_nodes = cache_->tree().node_count();
  answer.holes = cache_->hole_count();
  answer.namespaces = cache_->tree().live_root_count();
  answer.retired_blocks = cache_->tree().retired_block_count();
  answer.epochs = epochs_;
  answer.metadata_bytes = cache_->metadata_bytes() + history_->bytes();
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    const Tier tier = static_cast<Tier>(t);
    TierStatus& out = answer.tiers[t];
    for (std::uint32_t g = 0; g < group_count_; ++g)
      out.slot_bytes += block_bytes(layout_, GroupId(g));
    if (!tier_on(tier)) continue;
    const BlockPool& pool = cache_->pool(tier, GroupId(0));
    out.slots = pool.slot_count();
    out.free = pool.count(SlotState::free);
    out.held = pool.count(SlotState::held);
    out.cached = pool.count(SlotState::cached);
    out.fenced = pool.count(SlotState::fenced);
    out.covered = cache_->covered_count(tier, GroupId(0));
    out.evictable = cache_->evictable(tier, GroupId(0));
    for (const Move& move : moves_) {
      if (!move.active) continue;
      if (move.to == tier) out.arriving += static_cast<std::uint32_t>(move.blocks.size());
    }
  }
  for (const Move& move : moves_) answer.transfers_in_flight += move.active ? group_count_ : 0;
  return answer;
}

void Engine::State::on(const Status& input) {
  ClientState* client = enter(input.header, false);
  if (client != nullptr) reply(*client, input.header.request, status());
}

void Engine::State::on(const Tree& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr) return;
  TreeReply answer;
  if (cache_ == nullptr) {
    reply(*client, input.header.request, std::move(answer));
    return;
  }
  const PrefixTree& tree = cache().tree();
  const std::uint32_t limit = std::min(input.node_limit, kTreeNodesMax);
  struct Place {
    NodeId node;
    std::uint32_t parent;  // index in the answer
  };
  // Depth first; a node's next sibling waits below its children on this stack.
  std::vector<Place> waiting;
  for (std::uint32_t root = 0; root < tree.root_count() && !answer.truncated; ++root) {
    if (tree.is_retired(RootId(root))) continue;
    const NodeId first = tree.first_root_child(RootId(root));
    if (!first.is_none()) waiting.push_back({first, kNoIndex});
    while (!waiting.empty()) {
      const Place place = waiting.back();
      waiting.pop_back();
      if (answer.nodes.size() >= limit) {
        answer.truncated = true;
        break;
      }
      const PrefixTree::Run run = tree.run(place.node);
      TreeReply::Node node;
      node.parent = place.parent;
      node.namespace_digest = tree.namespace_digest(RootId(root));
      node.last_key = cache().records().key(BlockId(run.first.value + run.count - 1));
      node.depth = tree.depth(run.first);
      node.block_count = run.count;
      for (std::uint32_t i = 0; i < run.count; ++i) {
        const BlockId block(run.first.value + i);
        for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
          node.copies[t] += cache().has_copy(block, static_cast<Tier>(t)) ? 1 : 0;
        }
        node.pinned += cache().is_covered(block) ? 1 : 0;
      }
      const auto index = static_cast<std::uint32_t>(answer.nodes.size());
      answer.nodes.push_back(node);
      const NodeId sibling = tree.next_sibling(place.node);
      if (!sibling.is_none()) waiting.push_back({sibling, place.parent});
      const NodeId child = tree.first_child(place.node);
      if (!child.is_none()) waiting.push_back({child, index});
    }
  }
  reply(*client, input.header.request, std::move(answer));
}

}  // namespace kv::core
