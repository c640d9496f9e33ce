// What the world knows of Clear and SetEpoch: when one was taken on, what it makes of the bytes,
// and what must hold when it was answered (invariant 21).
#include <algorithm>
#include <variant>

#include "allocator/namespace.h"
#include "cachesvc/core/prefix_cache.h"
#include "tools/world/virtual_world.h"

namespace kv::world {

void VirtualWorld::note_clear(const core::InputView& input) {
  if (const auto* attached = std::get_if<core::ClientAttached>(&input)) {
    tenants_.emplace(attached->client, attached->tenant);
  }
  if (engine_->cache() == nullptr) return;
  if (const auto* clear = std::get_if<core::Clear>(&input)) {
    const RequestName name{clear->header.client, clear->header.request};
    if (clear->all_tiers) {
      accept_clear(name, clear->fields, false, false);
    } else if (awaiting_.contains(name)) {
      TierClear& taken_on = tier_clears_[name];
      taken_on.tier = clear->tier;
      if (clear->fields != nullptr) {
        taken_on.namespace_digest = namespace_of(name.first, *clear->fields);
      }
    }
  }
  if (const auto* set = std::get_if<core::SetEpoch>(&input); set != nullptr) {
    const Digest digest = namespace_of(set->header.client, *set->fields);
    const bool again = set->epoch != 0 && std::ranges::any_of(epochs_before_, [&](const auto& of) {
                         return of.namespace_digest == digest && of.epoch == set->epoch;
                       });
    accept_clear({set->header.client, set->header.request}, set->fields, true, again);
  }
  tiers_.epochs().note_roots(engine_->cache()->tree());
}

Digest VirtualWorld::namespace_of(ClientId client, const NamespaceFields& fields) const {
  NamespaceFields whole = fields;
  const auto tenant = tenants_.find(client);
  whole.tenant = tenant == tenants_.end() ? std::string_view() : std::string_view(tenant->second);
  whole.block_tokens = options_.layout.block_tokens;
  return namespace_digest(whole);
}

// One that is repeated, or was refused at once, does nothing.
void VirtualWorld::accept_clear(const RequestName& name, const NamespaceFields* fields,
                                bool by_epoch, bool again) {
  const bool refused = std::ranges::any_of(actions_.replies, [&](const core::Reply& reply) {
    return RequestName{reply.client, reply.request} == name && reply.error.code != ErrorCode::ok;
  });
  if (refused || reply_digests_.contains(name) || !clears_accepted_.insert(name).second) return;
  std::optional<Digest> digest;
  if (fields != nullptr) digest = namespace_of(name.first, *fields);
  clears_waiting_[name] = digest;
  if (again) return;
  transfers_.cleared(digest, by_epoch);
  tiers_.epochs().raise(digest);
  for (const RecoveryChunk& chunk : recovery_) {
    for (const core::RecoveredEntry& entry : chunk.entries) {
      if (!digest || entry.namespace_digest == *digest) durable_keys_.erase(entry.key);
    }
  }
}

// Told as done: the disk has forgotten it. What an unanswered one was to erase may be left.
void VirtualWorld::check_cleared(const RequestName& name, const core::Reply& reply) {
  tier_clears_.erase(name);
  if (reply.error.code != ErrorCode::ok || clears_waiting_.erase(name) == 0) return;
  if (!clears_waiting_.empty()) return;
  const core::PrefixCache& cache = *engine_->cache();
  for (std::uint32_t b = 0; b < cache.records().block_capacity(); ++b) {
    const BlockId block{b};
    if (!cache.tree().contains(block) || !cache.tree().is_retired(block)) continue;
    if (!cache.records().slot(block, GroupId{0}, Tier::disk).is_none()) {
      problem("21: a Clear was answered while the disk holds what it cleared");
    }
  }
}

}  // namespace kv::world
