#include "cachesvc/core/engine.h"

#include <algorithm>
#include <type_traits>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

// What makes a kept reply large, in the size of slots.
std::uint64_t slots_of(const Reply& reply) {
  if (const auto* admit = std::get_if<AdmitReply>(&reply.body)) return admit->slots.size();
  if (const auto* step = std::get_if<StepReply>(&reply.body)) {
    const std::uint64_t bytes = step->failures.size() * sizeof(StepReply::Failure) +
                                step->deltas.size() * sizeof(TableDelta) +
                                step->ended.size() * sizeof(StepReply::Ended) +
                                step->copies.size() * sizeof(BlockCopy);
    return step->slots.size() + bytes / sizeof(SlotId);
  }
  if (const auto* tree = std::get_if<TreeReply>(&reply.body)) return tree->nodes.size() * 32;
  if (const auto* why = std::get_if<WhyReply>(&reply.body)) {
    return why->spans.size() * sizeof(WhyReply::Span) / sizeof(SlotId);
  }
  if (const auto* status = std::get_if<StatusReply>(&reply.body)) return status->epochs.size() * 10;
  return 0;
}

}  // namespace

Engine::State::State(const Options& given)
    : options_(given),
      sequences_(given.sequence_capacity),
      sequence_index_(given.sequence_capacity),
      save_to_host_(1),
      save_to_disk_(1) {
  KV_CHECK(given.credits_per_client > 0 && given.sequence_capacity > 0);
  clients_.reserve(given.client_capacity);
  free_sequences_.reserve(given.sequence_capacity);
  for (std::uint32_t i = given.sequence_capacity; i > 0; --i) free_sequences_.push_back(i - 1);
  moves_.resize(std::size_t{2} * given.device_host_transfers +
                std::size_t{2} * given.host_disk_transfers);
}

void Engine::State::step(const InputView& input) {
  std::visit([this](const auto& concrete) { on(concrete); }, input);
  run_jobs();
}

void Engine::State::run_jobs() {
  for (std::size_t i = 0; i < step_jobs_.size() && budget_left();) {
    StepJob& job = *step_jobs_[i];
    if (!run_step(job)) break;
    if (ClientState* client = find_client(job.client); client != nullptr) {
      client->step_suspended = false;
      reply(*client, job.request, std::move(job.reply));
    }
    step_jobs_.erase(step_jobs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  run_endings();
  run_client_ends();
  for (std::size_t i = 0; i < admitting_.size() && budget_left();) {
    const std::uint32_t index = admitting_[i];
    continue_admission(index);
    if (i < admitting_.size() && admitting_[i] == index) ++i;  // else it left the list
  }
  if (cache_ != nullptr) {
    if ((waiting_changed_ || !retrying_.empty()) && budget_left()) retry_waiting();
    pump_again_ = false;
    give_up_retired();
    pump_loads();
    pump_saves(Tier::host);
    pump_saves(Tier::device);
    run_save_jobs();
    run_clear_jobs();
    count_durable();
    run_why_jobs();
  }
  const bool endings_runnable =
      std::any_of(endings_.begin(), endings_.end(),
                  [this](std::uint32_t index) { return sequences_[index].loads_in_flight == 0; });
  const bool scans = std::any_of(save_jobs_.begin(), save_jobs_.end(), [](const SaveJob& job) {
    return job.phase == SaveJob::Phase::scan || job.phase == SaveJob::Phase::drop;
  });
  const bool clears = std::any_of(clear_jobs_.begin(), clear_jobs_.end(), [](const ClearJob& job) {
    return job.phase == ClearJob::Phase::drop || job.phase == ClearJob::Phase::count;
  });
  actions_->continue_wanted = !step_jobs_.empty() || !admitting_.empty() || endings_runnable ||
                              !fencing_.empty() || !freeing_.empty() || scans || pump_again_ ||
                              clears || !retired_.empty() || !why_jobs_.empty() ||
                              !retrying_.empty() || (waiting_changed_ && !waiting_.empty());
}

ClientState* Engine::State::enter(const RequestHeader& header, bool from_expired) {
  ClientState* client = find_client(header.client);
  if (client == nullptr || (client->expired && !from_expired)) {
    ++counters_.stale_requests;
    actions_->replies.push_back(
        {header.client,
         header.request,
         {ErrorCode::stale,
          client == nullptr ? "unknown client: attach again" : "the lease expired: attach again",
          {}},
         0,
         {}});
    return nullptr;
  }
  client->lease_end = now_ + options_.lease;
  const auto kept_from = std::find_if(
      client->notices.begin(), client->notices.end(),
      [&header](const Notice& notice) { return notice.number > header.notices_acknowledged; });
  client->notices.erase(client->notices.begin(), kept_from);

  if (header.request.value <= client->last_request) {
    const auto& waiting = client->in_progress;
    if (std::find(waiting.begin(), waiting.end(), header.request) != waiting.end()) {
      ++counters_.repeated_requests;
      return nullptr;
    }
    for (std::uint32_t i = 0; i < client->replies_count; ++i) {
      const auto size = static_cast<std::uint32_t>(client->replies.size());
      const Reply& kept = client->replies[(client->replies_next + size - 1 - i) % size];
      if (kept.request == header.request) {
        ++counters_.repeated_requests;
        actions_->replies.push_back(kept);
        return nullptr;
      }
    }
    ++counters_.stale_requests;
    actions_->replies.push_back({header.client,
                                 header.request,
                                 {ErrorCode::stale, "the reply is no longer kept", {}},
                                 0,
                                 {}});
    return nullptr;
  }
  if (client->in_progress.size() >= options_.credits_per_client) {
    // Not remembered: the same id may be sent again when the window has room.
    ++counters_.refused_requests;
    ++counters_.busy_requests;
    actions_->replies.push_back({header.client,
                                 header.request,
                                 {ErrorCode::busy, "too many requests without a reply", {}},
                                 kRetryAfterUs,
                                 {}});
    return nullptr;
  }
  client->last_request = header.request.value;
  return client;
}

bool Engine::State::allowed(ClientState& client, RequestId request, bool observer_may) {
  if (client.role != ClientRole::observer || observer_may) return true;
  refuse(client, request, {ErrorCode::denied, "an observer may only look", "role"});
  return false;
}

bool Engine::State::is_admin(ClientState& client, RequestId request) {
  if (client.role == ClientRole::admin) return true;
  refuse(client, request, {ErrorCode::denied, "only an administrator may do this", "role"});
  return false;
}

void Engine::State::reply(ClientState& client, RequestId request, ReplyBody body) {
  send(client, {client.id, request, {ErrorCode::ok, {}, {}}, 0, std::move(body)});
}

void Engine::State::refuse(ClientState& client, RequestId request, const Error& error) {
  ++counters_.refused_requests;
  const bool retry = error.code == ErrorCode::busy || error.code == ErrorCode::exhausted;
  if (error.code == ErrorCode::exhausted) ++counters_.exhausted;
  if (error.code == ErrorCode::busy) ++counters_.busy_requests;
  if (error.code == ErrorCode::too_large) ++counters_.too_large_requests;
  send(client, {client.id, request, error, retry ? kRetryAfterUs : 0, {}});
}

void Engine::State::send(ClientState& client, Reply answer) {
  auto& waiting = client.in_progress;
  waiting.erase(std::remove(waiting.begin(), waiting.end(), answer.request), waiting.end());
  actions_->replies.push_back(answer);
  const auto size = static_cast<std::uint32_t>(client.replies.size());
  const std::uint64_t slots = slots_of(answer);
  const auto oldest = [&client, size] {
    return (client.replies_next + size - client.replies_count) % size;
  };
  while (client.replies_count > 0 &&
         (client.replies_count == size || client.reply_slots + slots > kKeptReplySlotsMax)) {
    Reply& gone = client.replies[oldest()];
    client.reply_slots -= slots_of(gone);
    if (slots_of(gone) > 0) gone.body = std::monostate{};
    --client.replies_count;
  }
  client.reply_slots += slots;
  client.replies[client.replies_next] = std::move(answer);
  client.replies_next = (client.replies_next + 1) % size;
  ++client.replies_count;
}

// ---------------------------------------------------------------- the public face

Engine::Engine(const Options& options) : state_(std::make_unique<State>(options)) {}
Engine::~Engine() = default;

void Engine::step(TimePoint now, const InputView& input, Actions& actions) {
  KV_CHECK(now >= state_->now_);
  state_->now_ = now;
  state_->actions_ = &actions;
  state_->work_ = 0;
  state_->retired_hops_ = kScanRecordsMax;
  state_->step(input);
  state_->actions_ = nullptr;
}

std::span<const Notice> Engine::unacknowledged(ClientId client) const {
  const ClientState* found = state_->find_client(client);
  if (found == nullptr) return {};
  return found->notices;
}

const Engine::Options& Engine::options() const { return state_->options_; }
const PrefixCache* Engine::cache() const { return state_->cache_.get(); }
StatusReply Engine::status() const { return state_->status(); }

std::uint32_t Engine::sequence_count() const { return state_->sequences_used_; }

Engine::SequenceView Engine::sequence(std::uint32_t index) const {
  KV_CHECK(index < sequence_count());
  for (const SequenceState& sequence : state_->sequences_) {
    if (sequence.phase == SequencePhase::unused || index-- > 0) continue;
    SequenceView view;
    view.client = sequence.client;
    view.id = sequence.id;
    view.group_count = state_->group_count_;
    view.tokens = sequence.tokens;
    view.table = sequence.table;
    view.block_count = sequence.block_count;
    view.published_blocks = sequence.published_blocks;
    view.deepest = sequence.deepest;
    view.admitted = sequence.phase == SequencePhase::admitted;
    view.loading = sequence.phase == SequencePhase::loading;
    view.owned = sequence.owned;
    return view;
  }
  return {};
}

std::uint32_t Engine::transfer_count() const {
  std::uint32_t count = 0;
  for (const Move& move : state_->moves_) count += move.active ? state_->group_count_ : 0;
  return count;
}

Engine::TransferView Engine::transfer(std::uint32_t index) const {
  KV_CHECK(index < transfer_count());
  const std::uint32_t groups = state_->group_count_;
  std::uint32_t wanted = index / groups;
  const std::uint32_t group = index % groups;
  for (const Move& move : state_->moves_) {
    if (!move.active || wanted-- > 0) continue;
    const std::size_t count = move.blocks.size();
    return {TransferId(move.serial * kLayerGroupsMax + group),
            move.from,
            move.to,
            GroupId(group),
            move.blocks,
            std::span(move.from_slots).subspan(group * count, count),
            std::span(move.to_slots).subspan(group * count, count)};
  }
  return {TransferId::none(), Tier::device, Tier::device, GroupId::none(), {}, {}, {}};
}

std::span<const SlotId> Engine::waiting_slots(Tier tier, GroupId group) const {
  std::vector<SlotId>& found = state_->view_slots_;
  found.clear();
  if (tier == Tier::device) {
    for (const ClientState& client : state_->clients_) {
      const std::size_t held = client.expired ? client.unfenced : client.fence.size();
      for (const FenceEntry& entry : std::span(client.fence).first(held)) {
        if (entry.kind == FenceEntry::Kind::release && entry.group == group) {
          found.push_back(entry.slot);
        }
      }
    }
    for (const GroupSlot& ended : state_->freeing_) {
      if (ended.group != group) continue;
      const bool held = state_->cache().pool(tier, group).state(ended.slot) == SlotState::held;
      if (held) found.push_back(ended.slot);
    }
  }
  for (SequenceState& sequence : state_->sequences_) {
    if (sequence.phase == SequencePhase::unused) continue;
    if (tier == Tier::device) {
      for (const ReplacedSlot& replaced : sequence.replaced) {
        if (replaced.group == group) found.push_back(replaced.slot);
      }
    }
    for (std::size_t i = 0; i < sequence.loads.size(); ++i) {
      const LoadItem& item = sequence.loads[i];
      if (tier == Tier::device && item.phase != LoadPhase::to_device &&
          item.phase != LoadPhase::added && sequence.owned[item.path_index] == 0) {
        found.push_back(state_->entry(sequence, group, item.path_index));
      }
      const SlotId landing = sequence.landing[i * state_->group_count_ + group.value];
      if (tier == Tier::host && !landing.is_none() && item.phase != LoadPhase::from_disk) {
        found.push_back(landing);
      }
    }
  }
  return found;
}

}  // namespace kv::core
