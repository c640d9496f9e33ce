#include "tools/world/transfer_history.h"

#include <algorithm>
#include <variant>

#include "cachesvc/core/prefix_cache.h"

namespace kv::world {
namespace {

bool reads(const core::Engine& engine, TransferId id) {
  for (std::uint32_t i = 0; i < engine.transfer_count(); ++i) {
    if (engine.transfer(i).id == id) return true;
  }
  return false;
}

}  // namespace

template <class Change>
void TransferHistory::change_flights_of(ClientId client, const Change& change) {
  for (auto& [id, flight] : flights_) {
    if (flight.client == client) change(flight);
  }
}

void TransferHistory::note(const core::InputView& input, const core::Actions& actions) {
  const auto dies = [](Flight& flight) { flight.is_dead = true; };
  if (const auto* gone = std::get_if<core::ClientGone>(&input)) {
    change_flights_of(gone->client, dies);
  }
  if (const auto* bye = std::get_if<core::Bye>(&input)) change_flights_of(bye->header.client, dies);
  for (const core::Notice& notice : actions.notices) {
    if (notice.kind != core::NoticeKind::lease_expired) continue;
    change_flights_of(notice.client, [](Flight& flight) { flight.is_expired = true; });
  }
  for (const core::Reply& reply : actions.replies) {
    const auto* step = std::get_if<core::StepReply>(&reply.body);
    if (step == nullptr) continue;
    for (const auto& ended : step->ended) {
      change_flights_of(reply.client, [&ended](Flight& flight) {
        flight.is_freed = flight.is_freed || flight.sequence == ended.sequence;
      });
    }
  }
}

void TransferHistory::started(TimePoint now, const core::StartTransfer& start,
                              const core::Actions& actions, const core::Engine& engine) {
  Flight flight;
  flight.started = now;
  flight.from = start.from;
  flight.to = start.to;
  flight.namespace_digest = start.namespace_digest;
  flight.first_key = actions.transfer_blocks.at(start.first_block).key;
  if (tier_index(start.to) < tier_index(start.from)) find_owner(engine, start.id, flight);
  flights_.emplace(start.id, flight);
}

// A block is loaded for one sequence at a time: the one that loads, and has it on its path.
void TransferHistory::find_owner(const core::Engine& engine, TransferId id, Flight& flight) {
  BlockId block;
  for (std::uint32_t i = 0; i < engine.transfer_count(); ++i) {
    if (engine.transfer(i).id == id) block = engine.transfer(i).blocks.front();
  }
  const PrefixTree& tree = engine.cache()->tree();
  for (std::uint32_t i = 0; i < engine.sequence_count() && !block.is_none(); ++i) {
    const auto view = engine.sequence(i);
    if (!view.loading) continue;
    for (BlockId at = view.deepest; !at.is_none(); at = tree.parent(at)) {
      if (at != block) continue;
      flight.client = view.client;
      flight.sequence = view.id;
    }
  }
}

void TransferHistory::cleared(const std::optional<Digest>& namespace_digest, bool by_epoch) {
  for (auto& [id, flight] : flights_) {
    if (namespace_digest.value_or(flight.namespace_digest) != flight.namespace_digest) continue;
    (by_epoch ? flight.is_of_old_epoch : flight.is_cleared) = true;
  }
}

void TransferHistory::ended(TimePoint now, TransferId id,
                            std::span<const core::BlockOutcome> outcomes) {
  const auto node = flights_.extract(id);
  if (node.empty()) return;
  const Flight& flight = node.mapped();
  const auto good = std::ranges::count(outcomes, core::BlockOutcome::ok);
  const auto all = static_cast<std::ptrdiff_t>(outcomes.size());
  const bool overtakes = std::ranges::any_of(flights_, [&](const auto& other) {
    return other.first < id && other.second.from == flight.from && other.second.to == flight.to &&
           other.second.first_key != flight.first_key;  // not its own other groups
  });
  const auto count = [](std::uint64_t& counter, bool event) { counter += event ? 1 : 0; };
  count(counts_.late, now - flight.started > kLate);
  count(counts_.failed, good == 0);
  count(counts_.partial, good > 0 && good < all);
  count(counts_.reordered, overtakes);
  count(counts_.after_death, flight.is_dead);
  count(counts_.after_expiry, flight.is_expired);
  count(counts_.after_free, flight.is_freed);
  count(counts_.after_clear, flight.is_cleared);
  count(counts_.after_epoch, flight.is_of_old_epoch);
}

void TransferHistory::repeated(TransferId id, bool other_outcomes, const core::Engine& engine) {
  ++(reads(engine, id) ? counts_.repeated_in_flight : counts_.repeated_after_end);
  counts_.contradicted += other_outcomes ? 1 : 0;
}

}  // namespace kv::world
