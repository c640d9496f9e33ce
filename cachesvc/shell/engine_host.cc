#include "cachesvc/shell/engine_host.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "cachesvc/core/prefix_cache.h"
#include "cachesvc/shell/kernel_sources.h"

namespace kv::shell {
namespace {

constexpr std::uint32_t kUnreadRetryUs = 2'000;

}  // namespace

EngineHost::EngineHost(const Parts& parts, const Options& options)
    : parts_(parts),
      own_client_(options.own_client),
      message_bytes_max_(options.message_bytes_max),
      bye_(options.bye),
      disk_path_(options.disk_path),
      ended_(options.ended),
      engine_(options.engine),
      encoder_(options.boot, &parts.counters),
      ticked_at_(boot_time_now()) {}

void EngineHost::recover(const KvLayout& layout) {
  step(core::DiskFormat{.layout = &layout});
  if (engine_.cache() == nullptr) {
    ++parts_.counters.disk_failures;
    parts_.log.write(LogLevel::error, "disk_refused",
                     {{"reason", "a block of its layout does not fit the tiers"},
                      {"remedy", "raise device.bytes, or move " + disk_path_ + " away"}});
    set_disk_problem(disk_path_ + ": a block of its layout does not fit the tiers");
    return;
  }
  is_recovering_ = true;
  define_memory();
  parts_.disk.open(engine_.cache()->layout());
}

void EngineHost::attach(ClientId id, const ClientRegistry::Client& client) {
  step(core::ClientAttached{.client = id,
                            .role = client.role,
                            .tenant = client.tenant,
                            .process_id = static_cast<std::uint64_t>(client.process)});
  turn();
}

void EngineHost::remove(ClientId id) {
  parts_.clients.remove(id);
  step(core::ClientGone{.client = id});
  turn();
}

void EngineHost::tick() {
  // What this process did not hear while it stood still (stopped, swapped out, asleep with the
  // machine) is no silence of its clients.
  const TimePoint now = boot_time_now();
  const Duration unheard = now - std::exchange(ticked_at_, now) - core::kTickTimeMax;
  step(core::Tick{.unheard = std::max(unheard, Duration::zero())});
  log_bad_blocks_seldom();
  if (flushed_) {  // the own client's lease may be shorter than the flush
    step(core::Heartbeat{.header = {.client = own_client_, .request = RequestId(++own_request_)}});
  }
  turn();
}

void EngineHost::turn() {
  parts_.completions.drain(completions_);
  for (const Completion& completion : completions_) {
    std::visit([this](const auto& known) { handle(known); }, completion);
  }
  completions_.clear();
  if (is_receiving_) receive_requests();
  if (continue_wanted_) step(core::Continue{});
  const bool more = continue_wanted_ || (is_receiving_ && parts_.router.has_request());
  if (!more || turn_posted_) return;
  turn_posted_ = true;
  parts_.loop.post([this] {
    turn_posted_ = false;
    turn();
  });
}

void EngineHost::flush(std::function<void(const core::Reply&)> done) {
  flushed_ = std::move(done);
  const auto header = [this] {
    return core::RequestHeader{.client = own_client_, .request = RequestId(++own_request_)};
  };
  step(core::ClientAttached{
      .client = own_client_, .role = core::ClientRole::admin, .tenant = "service"});
  step(core::Hello{.header = header(), .protocol_version = 1, .name = "service"});
  const core::Flush request{.header = header()};
  flush_request_ = request.header.request;
  step(request);
  turn();
}

void EngineHost::step(const core::InputView& input) {
  actions_.clear();
  engine_.step(boot_time_now(), input, actions_);
  continue_wanted_ = actions_.continue_wanted;
  carry_out();
}

// ---------------------------------------------------------------- requests
void EngineHost::receive_requests() {
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    switch (parts_.router.receive()) {
      case RouterSocket::Received::none:
        return;
      case RouterSocket::Received::malformed:
        ++parts_.counters.malformed_frames;
        break;
      case RouterSocket::Received::request:
        receive_request(parts_.router.body(), parts_.router.identity());
        break;
    }
  }
}

void EngineHost::receive_request(std::span<const std::byte> frame, std::string_view identity) {
  auto decoded = decoder_.decode(frame);
  const codec::Envelope& envelope = decoder_.envelope();
  if (envelope.client.is_none() || envelope.request.is_none()) {
    if (is_worth_logging(++parts_.counters.malformed_frames)) {
      parts_.log.write(LogLevel::warn, "request_malformed",
                       {{"count", parts_.counters.malformed_frames}});
    }
    return;
  }
  const auto client = parts_.clients.authenticate(envelope.client, envelope.secret);
  if (!client) {
    if (is_worth_logging(++parts_.counters.denied_requests)) {
      parts_.log.write(
          LogLevel::warn, "request_denied",
          {{"reason", client.error().reason}, {"count", parts_.counters.denied_requests}});
    }
    refuse(identity, envelope, client.error());
    return;
  }
  if ((*client)->identity != identity) {
    (*client)->identity = identity;
    (*client)->is_unread = false;
  }
  if (!reads_replies(**client, envelope)) return;
  if (frame.size() > message_bytes_max_) {
    ++parts_.counters.oversized_requests;
    refuse(identity, envelope, {ErrorCode::too_large, "over limits.message_bytes", "frame"});
    return;
  }
  if (!decoded) {
    ++parts_.counters.invalid_requests;
    refuse(identity, envelope, decoded.error());
    return;
  }
  ++parts_.counters.received_requests;
  if (std::holds_alternative<core::Bye>(decoded->input)) (*client)->bye = envelope.request;
  step(decoded->input);
}

// Nothing is done for a client whose queue of replies is full, and its lease is not renewed. A
// small `busy` finds out whether it reads again; then it asks again, as the reply says.
bool EngineHost::reads_replies(ClientRegistry::Client& client, const codec::Envelope& envelope) {
  if (!client.is_unread) return true;
  core::Reply reply;
  reply.client = envelope.client;
  reply.request = envelope.request;
  reply.error = {ErrorCode::busy, "replies before this one were not read", {}};
  reply.retry_after_us = kUnreadRetryUs;
  if (send(client.identity, encoder_.encode(reply, {})) == RouterSocket::Sent::sent) {
    client.is_unread = false;
  } else {
    ++parts_.counters.unread_requests;
  }
  return false;
}

void EngineHost::refuse(std::string_view identity, const codec::Envelope& envelope,
                        const Error& error) {
  core::Reply reply;
  reply.client = envelope.client;
  reply.request = envelope.request;
  reply.error = error;
  (void)send(identity, encoder_.encode(reply, {}));
}

// ---------------------------------------------------------------- actions
void EngineHost::carry_out() {
  if (actions_.format_defined != nullptr) {
    define_memory();
    // Before anything else is asked of the disk.
    if (engine_.options().tier_bytes[tier_index(Tier::disk)] > 0) {
      parts_.disk.open(*actions_.format_defined);
    }
  }
  if (!actions_.erases.empty()) {
    std::vector<BlobErase> erases;
    erases.reserve(actions_.erases.size());
    for (const core::EraseDisk& erase : actions_.erases) {
      erases.push_back({.key = erase.key,
                        .depth = erase.depth,
                        .group = erase.group,
                        .slot = erase.slot,
                        .generation = erase.generation});
    }
    parts_.disk.erase(std::move(erases));
  }
  start_transfers();
  for (const core::SyncDisk& sync : actions_.syncs) parts_.disk.sync(sync.id);
  told_.clear();
  send_replies();
  send_notices();
  end_clients();
}

void EngineHost::define_memory() {
  const core::PrefixCache& cache = *engine_.cache();
  const GroupId first(0);  // every group of a tier has as many slots
  parts_.memory.define(cache.layout(), cache.pool(Tier::device, first).slot_count(),
                       cache.pool(Tier::host, first).slot_count());
  // A budget that holds no block of this layout: the tier is off against the configuration.
  for (const Tier tier : {Tier::host, Tier::disk}) {
    const std::uint64_t budget = engine_.options().tier_bytes[tier_index(tier)];
    if (budget == 0 || cache.pool(tier, first).slot_count() > 0) continue;
    const bool needs_host = cache.pool(Tier::host, first).slot_count() == 0 && tier == Tier::disk;
    parts_.log.write(LogLevel::warn, "tier_off",
                     {{"tier", tier_name(tier)},
                      {"reason", needs_host ? "blocks reach the disk through the host tier"
                                            : "one block is larger than the tier"},
                      {"tier_bytes", budget},
                      {"block_bytes", block_bytes(cache.layout(), first)},
                      {"remedy", needs_host ? "raise host.bytes" : "raise the bytes of the tier"}});
  }
}

void EngineHost::start_transfers() {
  for (const core::StartTransfer& transfer : actions_.transfers) {
    TransferTask task;
    task.transfer = transfer;
    const auto blocks =
        std::span(actions_.transfer_blocks).subspan(transfer.first_block, transfer.block_count);
    task.blocks.assign(blocks.begin(), blocks.end());
    if (transfer.to == Tier::disk) {
      const std::uint32_t block_tokens = engine_.cache()->layout().block_tokens;
      const auto tokens =
          std::span(actions_.tokens)
              .subspan(transfer.first_token, std::size_t{block_tokens} * transfer.block_count);
      task.tokens.assign(tokens.begin(), tokens.end());
    }
    if (transfer.from == Tier::disk || transfer.to == Tier::disk) {
      parts_.disk.start(std::move(task));
    } else {
      parts_.copies.start(std::move(task));
    }
  }
}

void EngineHost::send_replies() {
  for (const core::Reply& reply : actions_.replies) {
    if (reply.client == own_client_) {
      if (reply.request == flush_request_ && flushed_) std::exchange(flushed_, nullptr)(reply);
      continue;
    }
    ClientRegistry::Client* const client = parts_.clients.find(reply.client);
    if (client == nullptr || client->identity.empty()) {
      ++parts_.counters.unsent_replies;
      continue;
    }
    told_.push_back(reply.client);
    send(*client, encoder_.encode(reply, engine_.unacknowledged(reply.client)));
    // The Engine knows it no more; its process may live on and attach again.
    const bool has_ended = reply.request == client->bye && reply.error.code == ErrorCode::ok;
    if (!has_ended) continue;
    parts_.clients.remove(reply.client);
    if (bye_) bye_(reply.client);
  }
}

void EngineHost::send_notices() {
  for (const core::Notice& notice : actions_.notices) {
    if (std::ranges::find(told_, notice.client) != told_.end()) continue;
    told_.push_back(notice.client);
    ClientRegistry::Client* const client = parts_.clients.find(notice.client);
    if (client == nullptr || client->identity.empty()) continue;  // repeated with its next reply
    const auto kept = engine_.unacknowledged(notice.client);
    // Of a client that ended in this step nothing is kept: this is its last one.
    send(*client, encoder_.encode_notices(kept.empty() ? std::span(&notice, 1) : kept));
  }
}

void EngineHost::end_clients() {
  for (const ClientId client : actions_.ended_clients) {
    parts_.clients.remove(client);
    if (ended_) ended_(client);
  }
}

void EngineHost::send(ClientRegistry::Client& client, std::span<const std::byte> frame) {
  if (send(client.identity, frame) == RouterSocket::Sent::queue_full) client.is_unread = true;
}

RouterSocket::Sent EngineHost::send(std::string_view identity, std::span<const std::byte> frame) {
  const RouterSocket::Sent sent = parts_.router.send(identity, frame);
  if (sent == RouterSocket::Sent::sent) return sent;
  // What does not go out is not lost: the client asks again, and the Engine kept the reply.
  const bool is_unread = sent == RouterSocket::Sent::queue_full;
  std::uint64_t& count =
      is_unread ? parts_.counters.unread_replies : parts_.counters.unsent_replies;
  if (is_worth_logging(++count)) {
    parts_.log.write(LogLevel::warn, is_unread ? "reply_unread" : "reply_unsent",
                     {{"count", count}});
  }
  return sent;
}

// ---------------------------------------------------------------- completions
void EngineHost::handle(const TransferCompletion& completion) {
  step(core::TransferDone{
      .id = completion.id, .outcomes = completion.outcomes, .checksums = completion.checksums});
  const bool all_ok = std::ranges::all_of(completion.outcomes, [](core::BlockOutcome outcome) {
    return outcome == core::BlockOutcome::ok;
  });
  if (!all_ok) {
    has_bad_blocks_ = true;
    log_bad_blocks_seldom();
  }
}

void EngineHost::handle(const DiskOpened& completion) {
  if (completion.error.code != ErrorCode::ok) {
    report_disk_failure(completion.error);
    is_recovering_ = false;
    step(core::DiskOff{});
  } else if (is_recovering_) {
    parts_.disk.scan(core::kRecoveredEntriesMax);
  }
}

void EngineHost::handle(const DiskScanned& completion) {
  if (completion.error.code != ErrorCode::ok) {
    report_disk_failure(completion.error);
    is_recovering_ = false;
    step(core::Recovered{.entries = {}, .tokens = {}, .last = true});
    return;
  }
  recovered_.clear();
  recovered_tokens_.clear();
  for (const BlobStore::Scanned& entry : completion.entries) {
    const BlobIdentity& identity = entry.identity;
    recovered_.push_back({.key = identity.key,
                          .parent_key = identity.parent_key,
                          .namespace_digest = identity.namespace_digest,
                          .depth = identity.depth,
                          .group = identity.group,
                          .slot = identity.slot,
                          .generation = identity.generation,
                          .checksum = identity.checksum});
    recovered_tokens_.insert(recovered_tokens_.end(), entry.tokens.begin(), entry.tokens.end());
  }
  step(
      core::Recovered{.entries = recovered_, .tokens = recovered_tokens_, .last = completion.last});
  if (!completion.last) {
    parts_.disk.scan(core::kRecoveredEntriesMax);
    return;
  }
  is_recovering_ = false;
  const core::Counters counters = engine_.status().counters;
  parts_.log.write(LogLevel::info, "disk_recovered",
                   {{"blocks", counters.recovered_blocks}, {"orphans", counters.orphaned_blocks}});
}

void EngineHost::handle(const DiskSyncCompletion& completion) {
  step(core::DiskSynced{.id = completion.id, .ok = completion.ok});
}

void EngineHost::report_disk_failure(const Error& error) {
  ++parts_.counters.disk_failures;
  parts_.log.write(
      LogLevel::error, "disk_failed",
      {{"code", error_name(error.code)},
       {"reason", error.reason},
       {"field", error.field},
       {"remedy", "check " + disk_path_ + " and start again; nothing is kept there till then"}});
  std::string problem = disk_path_ + ": " + std::string(error.reason);
  if (!error.field.empty()) problem += " (" + std::string(error.field) + ")";
  set_disk_problem(std::move(problem));
}

void EngineHost::log_bad_blocks_seldom() {
  constexpr std::chrono::seconds kPause(1);
  if (!has_bad_blocks_) return;
  const TimePoint now = boot_time_now();
  if (now - bad_blocks_logged_at_ < kPause) return;
  bad_blocks_logged_at_ = now;
  log_bad_blocks();
}

void EngineHost::log_bad_blocks() {
  if (!std::exchange(has_bad_blocks_, false)) return;
  const core::Counters now = engine_.status().counters;
  for (std::size_t i = 0; i < kTierCount; ++i) {
    const auto write = [&](std::string_view event, std::uint64_t count, std::uint64_t& logged) {
      const std::uint64_t fresh = count - std::exchange(logged, count);
      if (fresh == 0) return;
      parts_.log.write(LogLevel::warn, event,
                       {{"tier", tier_name(static_cast<Tier>(i))}, {"count", fresh}});
    };
    write("corrupt_blocks", now.corrupt_blocks[i], logged_corrupt_[i]);
    write("failed_blocks", now.failed_blocks[i], logged_failed_[i]);
  }
}

}  // namespace kv::shell
