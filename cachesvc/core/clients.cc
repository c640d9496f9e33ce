// Clients: their leases, requests' notices and ends.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

bool before(const ClientState& client, ClientId id) { return client.id < id; }

}  // namespace

ClientState* Engine::State::find_client(ClientId id) {
  const auto found = std::lower_bound(clients_.begin(), clients_.end(), id, before);
  return found != clients_.end() && found->id == id ? &*found : nullptr;
}

void Engine::State::on(const ClientAttached& input) {
  // Over the capacity the client stays unknown: its requests are answered `stale`.
  if (find_client(input.client) != nullptr || clients_.size() >= options_.client_capacity) return;
  ClientState client;
  client.id = input.client;
  client.role = input.role;
  client.tenant = input.tenant;
  client.process_id = input.process_id;
  client.lease_end = now_ + options_.lease;
  client.replies.resize(options_.credits_per_client);
  client.in_progress.reserve(options_.credits_per_client);
  client.notices.reserve(options_.notices_per_client);
  clients_.insert(std::lower_bound(clients_.begin(), clients_.end(), input.client, before),
                  std::move(client));
}

void Engine::State::on(const ClientGone& input) {
  if (find_client(input.client) == nullptr) return;
  ++counters_.gone_clients;
  end_client(input.client);
}

void Engine::State::on(const Hello& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr) return;
  if (input.protocol_version != kProtocolVersion) {
    refuse(
        *client, input.header.request,
        {ErrorCode::mismatch, "the service speaks another protocol version", "protocol_version"});
    return;
  }
  const auto lease = std::chrono::duration_cast<std::chrono::milliseconds>(options_.lease);
  reply(*client, input.header.request,
        HelloReply{static_cast<std::uint32_t>(lease.count()), options_.credits_per_client,
                   options_.message_bytes_max});
}

void Engine::State::on(const Heartbeat& input) {
  ClientState* client = enter(input.header, false);
  if (client != nullptr) reply(*client, input.header.request, std::monostate{});
}

void Engine::State::on(const Bye& input) {
  ClientState* client = enter(input.header, true);
  if (client == nullptr) return;
  reply(*client, input.header.request, std::monostate{});
  end_client(input.header.client);
}

// Leases end here only. Requests that waited while nobody listened may still be on their way, so
// that every client keeps what was left of its lease before.
void Engine::State::on(const Tick& input) {
  const TimePoint longest = now_ + options_.lease;
  for (ClientState& client : clients_) {
    if (client.expired) continue;
    client.lease_end += std::min(input.unheard, longest - client.lease_end);
    if (client.lease_end < now_) expire(client);
  }
  constexpr Duration kDiskFullPause = std::chrono::seconds(1);
  if (now_ - disk_full_at_ >= kDiskFullPause) ask_disk_again();
}

void Engine::State::expire(ClientState& client) {
  client.expired = true;
  ++counters_.expired_clients;
  client.in_progress.clear();
  client.step_suspended = false;
  std::erase_if(step_jobs_, [&client](const auto& job) { return job->client == client.id; });
  std::erase_if(save_jobs_, [&client](const SaveJob& job) { return job.client == client.id; });
  std::erase_if(why_jobs_, [&client](const WhyJob& job) { return job.client == client.id; });
  leave_clear_jobs(client.id);
  std::erase_if(client.fence,
                [](const FenceEntry& entry) { return entry.kind != FenceEntry::Kind::release; });
  for (std::uint32_t i = 0; i < sequences_.size(); ++i) {
    const SequenceState& sequence = sequences_[i];
    if (sequence.phase == SequencePhase::unused || sequence.client != client.id) continue;
    if (sequence.phase == SequencePhase::ending) continue;
    begin_ending(i, SequencePhase::fencing);
    ++client.fenced_sequences;
  }
  // What waited for a step to complete can still be written by it: fenced with the rest.
  client.unfenced = client.fence.size();
  if (client.unfenced > 0) fencing_.push_back(client.id);
  notify(client.id, NoticeKind::lease_expired, SequenceId::none(), ErrorCode::stale, {});
  end_if_nothing_is_fenced(client);
}

// Its process may live for long and never say Bye: what it cannot harm must not wait for that.
void Engine::State::end_if_nothing_is_fenced(const ClientState& client) {
  if (client.fenced_sequences == 0 && client.fence.empty()) harmless_.push_back(client.id);
}

void Engine::State::end_client(ClientId id) {
  ClientState& client = *find_client(id);
  std::erase_if(step_jobs_, [id](const auto& job) { return job->client == id; });
  std::erase_if(save_jobs_, [id](const SaveJob& job) { return job.client == id; });
  std::erase_if(why_jobs_, [id](const WhyJob& job) { return job.client == id; });
  leave_clear_jobs(id);
  for (const FenceEntry& entry : client.fence) {
    if (entry.kind == FenceEntry::Kind::release) freeing_.push_back({entry.group, entry.slot});
  }
  std::erase(fencing_, id);
  for (std::uint32_t i = 0; i < sequences_.size(); ++i) {
    const SequenceState& sequence = sequences_[i];
    if (sequence.phase == SequencePhase::unused || sequence.client != id) continue;
    if (sequence.phase == SequencePhase::ending) continue;
    begin_ending(i, SequencePhase::ending);
  }
  clients_.erase(std::lower_bound(clients_.begin(), clients_.end(), id, before));
  waiting_changed_ = true;
}

void Engine::State::run_client_ends() {
  for (; !fencing_.empty() && budget_left();) {
    ClientState& client = *find_client(fencing_.back());
    for (; client.unfenced > 0 && budget_left(); --client.unfenced, ++work_) {
      const FenceEntry& entry = client.fence[client.unfenced - 1];
      cache().pool(Tier::device, entry.group).fence(entry.slot);
    }
    if (client.unfenced == 0) fencing_.pop_back();
  }
  for (; !freeing_.empty() && budget_left(); freeing_.pop_back(), ++work_) {
    const GroupSlot& ended = freeing_.back();
    BlockPool& pool = cache().pool(Tier::device, ended.group);
    if (pool.state(ended.slot) == SlotState::fenced) {
      pool.unfence(ended.slot);
    } else {
      pool.release(ended.slot);
    }
    waiting_changed_ = true;
  }
  for (const ClientId id : harmless_) {
    clients_.erase(std::lower_bound(clients_.begin(), clients_.end(), id, before));
    actions_->ended_clients.push_back(id);
  }
  harmless_.clear();
}

void Engine::State::notify(ClientId client, NoticeKind kind, SequenceId sequence, ErrorCode code,
                           const Account& account) {
  ClientState* found = find_client(client);
  if (found == nullptr) return;
  const Notice notice{client, ++found->notice_number, kind, sequence, code, account};
  if (found->notices.size() >= options_.notices_per_client) {
    found->notices.erase(found->notices.begin());
  }
  found->notices.push_back(notice);
  actions_->notices.push_back(notice);
}

}  // namespace kv::core
