#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "cachesvc/core/trace.h"

namespace kv::core {
namespace {

// Words are folded in one by one with the finaliser of MurmurHash3 (fmix64) between them: every bit
// of every word reaches every bit of the digest, on every machine alike. Not meant against an
// enemy.
class Mixer {
 public:
  explicit Mixer(std::uint64_t start) : state_(start) {}
  [[nodiscard]] std::uint64_t value() const { return state_; }

  void word(std::uint64_t value) {
    state_ = (state_ ^ value) + 0x9E3779B97F4A7C15U;
    state_ ^= state_ >> 33U;
    state_ *= 0xFF51AFD7ED558CCDU;
    state_ ^= state_ >> 33U;
    state_ *= 0xC4CEB9FE1A85EC53U;
    state_ ^= state_ >> 33U;
  }

  template <class... Values>
  void all(const Values&... values) {
    (one(values), ...);
  }

  template <class Value>
  void one(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      word(static_cast<std::uint64_t>(value));
    } else if constexpr (std::is_integral_v<Value>) {
      word(std::uint64_t{value});
    } else if constexpr (requires {
                           value.size();
                           value.begin();
                         }) {
      word(value.size());
      for (const auto& element : value) one(element);
    } else {
      add(*this, value);
    }
  }

 private:
  std::uint64_t state_;
};

template <class Tag, class Rep>
void add(Mixer& mixer, StrongId<Tag, Rep> id) {
  mixer.word(id.value);
}
void add(Mixer& mixer, const Digest& digest) {
  for (std::size_t i = 0; i < digest.bytes.size(); i += 8) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < 8; ++j) {
      word |= std::uint64_t{std::to_integer<std::uint8_t>(digest.bytes[i + j])} << (8 * j);
    }
    mixer.word(word);
  }
}
void add(Mixer& mixer, std::monostate /*none*/) { mixer.word(0); }
void add(Mixer& mixer, const Error& error) {
  mixer.all(error.code);
  for (const std::string_view text : {error.reason, error.field}) {
    mixer.word(text.size());
    for (const char c : text) mixer.word(static_cast<unsigned char>(c));
  }
}
void add(Mixer& mixer, const Account& account) {
  mixer.all(account.prompt_tokens, account.hit_tokens, account.computed_tokens,
            account.generated_tokens);
}
void add(Mixer& mixer, const HelloReply& reply) {
  mixer.all(reply.lease_ms, reply.credits, reply.message_bytes);
}
void add(Mixer& mixer, const AttachPoolReply::Group& group) {
  mixer.all(group.offset, group.slot_bytes, group.slot_count);
}
void add(Mixer& mixer, const AttachPoolReply& reply) { mixer.all(reply.groups, reply.pool_bytes); }
void add(Mixer& mixer, const AdmitReply& reply) {
  mixer.all(reply.ready, reply.account, reply.table_version, reply.block_count, reply.slots);
}
void add(Mixer& mixer, const TableDelta& delta) {
  mixer.all(delta.sequence, delta.group, delta.version, delta.first_block, delta.slot_offset,
            delta.slot_count);
}
void add(Mixer& mixer, const StepReply::Failure& failure) {
  mixer.all(failure.item, failure.error);
}
void add(Mixer& mixer, const StepReply::Ended& ended) { mixer.all(ended.sequence, ended.account); }
void add(Mixer& mixer, const BlockCopy& copy) {
  mixer.all(copy.sequence, copy.group, copy.from_slot, copy.to_slot, copy.token_count);
}
void add(Mixer& mixer, const StepReply& reply) {
  mixer.all(reply.failures, reply.deltas, reply.slots, reply.ended, reply.copies);
}
void add(Mixer& mixer, const LookupReply& reply) {
  mixer.all(reply.hit_tokens, reply.hit_tokens_by_tier, reply.known_tokens);
}
void add(Mixer& mixer, const WhyReply::Span& span) {
  mixer.all(span.first_token, span.token_count, span.reason, span.cause, span.tier, span.field,
            span.position, span.reuses, span.ago_ms);
}
void add(Mixer& mixer, const WhyReply& reply) {
  mixer.all(reply.prompt_tokens, reply.hit_tokens, reply.computed_tokens, reply.spans,
            reply.history_ms);
}
void add(Mixer& mixer, const TierStatus& tier) {
  mixer.all(tier.slot_bytes, tier.slots, tier.free, tier.held, tier.cached, tier.fenced,
            tier.covered, tier.evictable, tier.arriving);
}
void add(Mixer& mixer, const Counters& counters) {
  // Nothing but 64-bit counters, so a new one is never forgotten here.
  static_assert(std::has_unique_object_representations_v<Counters>);
  using Words = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;
  for (const std::uint64_t word : std::bit_cast<Words>(counters)) mixer.word(word);
}
void add(Mixer& mixer, const StatusReply::NamespaceEpoch& epoch) {
  mixer.all(epoch.namespace_digest, epoch.epoch);
}
void add(Mixer& mixer, const StatusReply& reply) {
  mixer.all(reply.tiers, reply.counters, reply.clients, reply.sequences, reply.transfers_in_flight,
            reply.tree_blocks, reply.tree_nodes, reply.holes, reply.namespaces, reply.block_tokens,
            reply.metadata_bytes, reply.recovering, reply.retired_blocks, reply.epochs);
}
void add(Mixer& mixer, const TreeReply::Node& node) {
  mixer.all(node.parent, node.namespace_digest, node.last_key, node.depth, node.block_count,
            node.copies, node.pinned);
}
void add(Mixer& mixer, const TreeReply& reply) { mixer.all(reply.nodes, reply.truncated); }
void add(Mixer& mixer, const DemoteReply& reply) {
  mixer.all(reply.saved_blocks, reply.dropped_blocks, reply.kept_blocks);
}
void add(Mixer& mixer, const FlushReply& reply) {
  mixer.all(reply.durable_blocks, reply.unsaved_blocks);
}
void add(Mixer& mixer, const ClearReply& reply) {
  mixer.all(reply.cleared_blocks, reply.kept_blocks, reply.epoch);
}
void add(Mixer& mixer, const Reply& reply) {
  mixer.all(reply.client, reply.request, reply.error, reply.retry_after_us, reply.body.index());
  std::visit([&](const auto& body) { mixer.one(body); }, reply.body);
}
void add(Mixer& mixer, const Notice& notice) {
  mixer.all(notice.client, notice.number, notice.kind, notice.sequence, notice.code,
            notice.account);
}
void add(Mixer& mixer, const TransferBlock& block) {
  mixer.all(block.from_slot, block.to_slot, block.from_generation, block.to_generation,
            block.checksum, block.depth, block.key, block.parent_key);
}
void add(Mixer& mixer, const StartTransfer& transfer) {
  mixer.all(transfer.id, transfer.from, transfer.to, transfer.group, transfer.first_block,
            transfer.block_count, transfer.first_token, transfer.namespace_digest);
}
void add(Mixer& mixer, const EraseDisk& erase) {
  mixer.all(erase.key, erase.depth, erase.group, erase.slot, erase.generation);
}
void add(Mixer& mixer, const SyncDisk& sync) { mixer.all(sync.id); }
void add(Mixer& mixer, const LayerGroup& group) {
  mixer.all(group.kind, group.layer_count, group.kv_head_count, group.head_dim_k, group.head_dim_v,
            group.k_dtype, group.v_dtype, group.window_tokens, group.sink_tokens);
}
void add(Mixer& mixer, const KvLayout& layout) { mixer.all(layout.block_tokens, layout.groups); }

}  // namespace

std::uint64_t actions_digest(std::uint64_t previous, const Actions& actions) {
  Mixer mixer(previous);
  mixer.all(actions.erases, actions.transfers, actions.transfer_blocks, actions.tokens,
            actions.syncs, actions.replies, actions.notices);
  mixer.word(actions.format_defined != nullptr ? 1 : 0);
  if (actions.format_defined != nullptr) mixer.one(*actions.format_defined);
  mixer.all(actions.continue_wanted);
  // Rare, and younger than digests that were written down.
  if (!actions.ended_clients.empty()) mixer.all(actions.ended_clients);
  return mixer.value();
}

}  // namespace kv::core
