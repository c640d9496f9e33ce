#include "tools/cachesim/replay/virtual_service.h"

#include <algorithm>
#include <iterator>

#include "allocator/base/check.h"
#include "cachesvc/core/prefix_cache.h"

namespace kv::cachesim {
namespace {

// The smallest block that there is: what one weighs here is not the Engine's affair.
KvLayout smallest_layout() {
  KvLayout layout;
  layout.block_tokens = 1;
  layout.groups.push_back({.layer_count = 1, .kv_head_count = 1, .head_dim_k = 1, .head_dim_v = 1});
  return layout;
}

core::Engine::Options engine_options(const VirtualService::Options& options) {
  constexpr std::uint64_t kDiskSlotBytes = 4'096;
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 40U;
  const std::uint64_t slot_bytes = block_bytes(smallest_layout(), GroupId(0));
  core::Engine::Options engine;  // its lease never ends: no Tick is sent
  engine.tier_bytes[tier_index(Tier::device)] = options.slots[0] * slot_bytes;
  engine.tier_bytes[tier_index(Tier::host)] = options.slots[1] * slot_bytes;
  engine.tier_bytes[tier_index(Tier::disk)] = options.slots[2] * kDiskSlotBytes;
  engine.client_capacity = 1;
  // Beside those that are admitted: one that waits for room, one that is refused.
  engine.sequence_capacity = options.sequences_max + 2;
  engine.credits_per_client = options.sequences_max + 2;
  engine.sequence_tokens_max = 0x7FFFFFFF;
  engine.prompt_tokens_max = kNoLimit;
  engine.client_prompt_tokens_max = kNoLimit;
  return engine;
}

constexpr std::size_t link_of(Tier from, Tier to) {
  LinkName name = LinkName::disk_to_host;
  if (from == Tier::device) name = LinkName::device_to_host;
  if (from == Tier::host)
    name = to == Tier::device ? LinkName::host_to_device : LinkName::host_to_disk;
  return static_cast<std::size_t>(name);
}

}  // namespace

VirtualService::VirtualService(const Options& options)
    : options_(options), layout_(smallest_layout()), engine_(engine_options(options)) {
  for (const LinkOptions& link : options.links) links_.emplace_back(link);
}

void VirtualService::send(TimePoint now, const core::InputView& input) {
  step(now, input);
  settle(now);
}

void VirtualService::step(TimePoint now, const core::InputView& input) {
  actions_.clear();
  engine_.step(now, input, actions_);
  for (const core::StartTransfer& transfer : actions_.transfers) {
    flights_.push_back({transfer.id.value, transfer.block_count, transfer.from == Tier::device});
    links_[link_of(transfer.from, transfer.to)].start(now, transfer.id.value,
                                                      transfer.block_count * options_.block_bytes);
  }
  std::ranges::move(actions_.replies, std::back_inserter(answers_.replies));
  std::ranges::move(actions_.notices, std::back_inserter(answers_.notices));
}

// Until nothing more happens at this moment: work that goes on, transfers that take no time.
void VirtualService::settle(TimePoint now) {
  for (;;) {
    if (actions_.continue_wanted) {
      step(now, core::Continue{});
    } else if (next() <= now) {
      for (SharedLink& link : links_) {
        ended_.clear();
        link.advance(now, ended_);
        for (const std::uint64_t id : ended_) report(now, id);
      }
    } else {
      return;
    }
  }
}

void VirtualService::report(TimePoint now, std::uint64_t id) {
  static constexpr std::array<core::BlockOutcome, core::kTransferBlocksMax> kAllOk{};
  static constexpr std::array<std::uint32_t, core::kTransferBlocksMax> kSums{};
  const auto found = std::ranges::find(flights_, id, &Flight::id);
  KV_CHECK(found != flights_.end());
  const Flight flight = *found;
  flights_.erase(found);
  ++transfers_ended_;
  core::TransferDone done;
  done.id = TransferId(id);
  done.outcomes = std::span(kAllOk).first(flight.block_count);
  if (flight.from_device) done.checksums = std::span(kSums).first(flight.block_count);
  step(now, done);
  while (actions_.continue_wanted) step(now, core::Continue{});
}

void VirtualService::take_answers(Answers& into) {
  into.replies.clear();
  into.notices.clear();
  std::swap(into, answers_);
}

TimePoint VirtualService::next() const {
  TimePoint due = kNever;
  for (const SharedLink& link : links_) due = std::min(due, link.next());
  return due;
}

void VirtualService::advance(TimePoint now) { settle(now); }

std::uint32_t VirtualService::used_slots(Tier tier) const {
  const auto index = tier_index(tier);
  if (engine_.cache() == nullptr || options_.slots[index] == 0) return 0;
  return options_.slots[index] - engine_.cache()->pool(tier, GroupId(0)).count(SlotState::free);
}

}  // namespace kv::cachesim
