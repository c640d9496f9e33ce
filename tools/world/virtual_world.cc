#include "tools/world/virtual_world.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <type_traits>
#include <variant>

#include "cachesvc/core/prefix_cache.h"
#include "cachesvc/core/trace.h"

namespace kv::world {
namespace {

std::uint64_t digest_of(const core::Reply& reply) {
  core::Actions actions;
  actions.replies.push_back(reply);
  return core::actions_digest(0, actions);
}

bool has_taken_slot(const core::PrefixCache& cache, Tier tier) {
  for (std::uint32_t g = 0; g < cache.layout().groups.size(); ++g) {
    const BlockPool& pool = cache.pool(tier, GroupId{g});
    if (pool.count(SlotState::free) != pool.slot_count()) return true;
  }
  return false;
}

std::string name_of(ClientId client, RequestId request) {
  return "request " + std::to_string(request.value) + " of client " + std::to_string(client.value);
}

}  // namespace

VirtualWorld::VirtualWorld(const Options& options)
    : options_(options),
      prng_(options.seed),
      engine_(std::make_unique<core::Engine>(options.engine)),
      links_(tiers_, options.seed + 1) {
  links_.set_faults(options.faults);
}

void VirtualWorld::problem(const std::string& text) {
  if (problems_.size() < 20) {
    problems_.push_back("step " + std::to_string(steps_) + ": " + text);
  }
}

void VirtualWorld::send(const core::InputView& input) {
  std::optional<RequestName> current;
  std::visit(
      [&](const auto& value) {
        if constexpr (requires { value.header; }) {
          current = RequestName{value.header.client, value.header.request};
        }
      },
      input);
  if (current && !reply_digests_.contains(*current)) awaiting_.insert(*current);
  const std::uint64_t digest_before = state_digest(*engine_);
  if (std::holds_alternative<core::SetEpoch>(input)) epochs_before_ = engine_->status().epochs;
  now_ += std::chrono::microseconds(1);
  core::append_record(now_, input, trace_);
  actions_.clear();
  engine_->step(now_, input, actions_);
  ++steps_;
  digest_ = core::actions_digest(digest_, actions_);
  was_busy_ = std::exchange(continue_wanted_, actions_.continue_wanted);
  note_leases(input);
  transfers_.note(input, actions_);
  act(input);
  for (const core::Reply& reply : actions_.replies) deliver_reply(reply, current);
  check_step(input, digest_before, current);
}

void VirtualWorld::act(const core::InputView& input) {
  if (actions_.format_defined != nullptr) {
    if (*actions_.format_defined != options_.layout) problem("another format than asked for");
    disk_formatted_ = true;
  }
  if (engine_->cache() != nullptr && !tiers_.started()) tiers_.start(*engine_->cache());
  note_clear(input);
  step_clears_.clear();
  for (const auto& [name, clear] : tier_clears_) step_clears_.push_back(clear);
  for (const core::EraseDisk& erase : actions_.erases) {
    // With the last chunk saves begin again, which may evict.
    const auto* recovered = std::get_if<core::Recovered>(&input);
    // Too many namespaces are in use meanwhile: what no root is left for goes.
    const bool is_full =
        engine_->cache()->tree().live_root_count() >= options_.engine.root_capacity;
    if (recovered != nullptr && !recovered->last && !is_full && durable_keys_.contains(erase.key)) {
      problem("19: recovery gave up a copy whose chain lies on disk, at depth " +
              std::to_string(erase.depth) + " in slot " + std::to_string(erase.slot.value));
    }
    erase_disk(erase);
  }
  for (const core::StartTransfer& start : actions_.transfers) {
    if (start.block_count == 0 || start.block_count > core::kTransferBlocksMax) {
      problem("a transfer of " + std::to_string(start.block_count) + " blocks");
    }
    links_.start(now_, start, actions_, options_.layout.block_tokens, problems_);
    transfers_.started(now_, start, actions_, *engine_);
  }
  for (const core::SyncDisk& sync : actions_.syncs) {
    syncs_.emplace(std::make_pair(now_ + std::chrono::microseconds(500), sync.id),
                   Sync{0, tiers_.erase_count()});
  }
  for (const core::Notice& notice : actions_.notices) {
    if (notice.number != ++notice_numbers_[notice.client]) problem("a notice's number is wrong");
    notices_[notice.client].push_back(notice);
  }
}

void VirtualWorld::erase_disk(const core::EraseDisk& erase) {
  const auto found = tiers_.disk().find({erase.group, erase.slot});
  if (found == tiers_.disk().end() || found->second.entry.key != erase.key ||
      found->second.entry.generation != erase.generation ||
      found->second.entry.depth != erase.depth) {
    problem("19: an erase names a disk copy that the index does not have");
    return;
  }
  tiers_.erase(found->first);
  break_chains(erase.key);
}

// What hangs below a copy that went bad meanwhile need not be recovered.
void VirtualWorld::break_chains(const Digest& key) {
  if (durable_keys_.erase(key) == 0) return;
  for (auto chunk = recovery_.rbegin(); chunk != recovery_.rend(); ++chunk) {
    for (const core::RecoveredEntry& entry : chunk->entries) {
      const bool whole = entry.depth == 0 || durable_keys_.contains(entry.parent_key);
      if (!whole) durable_keys_.erase(entry.key);
    }
  }
}

// Each request is answered once; the same again when it is repeated, or `stale` when too old.
void VirtualWorld::deliver_reply(const core::Reply& reply,
                                 const std::optional<RequestName>& current) {
  const RequestName name{reply.client, reply.request};
  if (awaiting_.erase(name) != 0) {
    if (reply.error.code == ErrorCode::busy) {  // not remembered: the same again may be served
      replies_[name] = reply;
      return;
    }
    reply_digests_[name] = digest_of(reply);
    replies_[name] = reply;
    if (reply.error.code != ErrorCode::ok && reply.body.index() != 0) {
      problem(name_of(reply.client, reply.request) + " got an error and a body");
    }
    check_cleared(name, reply);
    if (const auto* flush = std::get_if<core::FlushReply>(&reply.body)) {
      if (flush->durable_blocks != blocks_synced_) {
        problem("flush told " + std::to_string(flush->durable_blocks) +
                " durable blocks, on disk were " + std::to_string(blocks_synced_));
      }
    }
    return;
  }
  if (!reply_digests_.contains(name)) {
    problem("a reply to " + name_of(reply.client, reply.request) + ", which nobody sent");
  } else if (current != name) {
    problem(name_of(reply.client, reply.request) + " was answered twice");
  } else if (reply.error.code != ErrorCode::stale && reply_digests_[name] != digest_of(reply)) {
    problem(name_of(reply.client, reply.request) + " was repeated and got another reply: " +
            std::string(error_name(reply.error.code)) + " " + std::string(reply.error.reason));
  }
}

void VirtualWorld::check_step(const core::InputView& input, std::uint64_t digest_before,
                              const std::optional<RequestName>& current) {
  const bool refused = current && std::ranges::any_of(actions_.replies, [&](const auto& reply) {
                         return RequestName{reply.client, reply.request} == *current &&
                                reply.error.code != ErrorCode::ok;
                       });
  if (refused && !was_busy_ && state_digest(*engine_) != digest_before) {
    problem("7: a refused request of kind " + std::to_string(input.index()) + " changed the state");
  }
  note_cached();
  const Known known{&broken_keys_};
  for (const std::string& text : check(*engine_, known)) problem(text);
  for (const std::string& text : history_.check(*engine_, {&bad_copies_, step_clears_}))
    problem(text);
  std::vector<std::string> residency;
  tiers_.check_residency(*engine_, unrecovered_, residency);
  for (const std::string& text : residency) problem(text);
  for (const core::SyncDisk& sync : actions_.syncs) {
    for (auto& [due, waiting] : syncs_) {
      if (due.second == sync.id) waiting.blocks = tiers_.resident_blocks(Tier::disk);
    }
  }
  forget_bad_copies();
}

// With the move that found one bad it is gone, or another reader keeps it.
void VirtualWorld::forget_bad_copies() {
  if (bad_copies_.empty()) return;
  std::set<BadCopy> read;
  for (std::uint32_t i = 0; i < engine_->transfer_count(); ++i) {
    const auto view = engine_->transfer(i);
    for (const BlockId block : view.blocks) {
      read.insert({view.from, engine_->cache()->records().key(block)});
    }
  }
  std::erase_if(bad_copies_, [&read](const BadCopy& bad) { return !read.contains(bad); });
}

// Leases end when they must, and not before.
void VirtualWorld::note_leases(const core::InputView& input) {
  std::set<ClientId> wanted;
  if (const auto* attached = std::get_if<core::ClientAttached>(&input)) {
    leases_.attach(now_, attached->client);
  } else if (const auto* gone = std::get_if<core::ClientGone>(&input)) {
    leases_.remove(gone->client);
  } else if (const auto* bye = std::get_if<core::Bye>(&input)) {
    leases_.remove(bye->header.client);
  } else if (const auto* tick = std::get_if<core::Tick>(&input)) {
    wanted = leases_.tick(now_, tick->unheard, options_.engine.lease);
  }
  std::visit(
      [this](const auto& value) {
        if constexpr (requires { value.header; }) leases_.hear(now_, value.header.client);
      },
      input);
  std::set<ClientId> ended;
  for (const core::Notice& notice : actions_.notices) {
    if (notice.kind == core::NoticeKind::lease_expired) ended.insert(notice.client);
  }
  if (ended != wanted) {
    problem("17: the leases of " + std::to_string(ended.size()) + " clients ended, not of those " +
            std::to_string(wanted.size()) + " that were silent for longer");
  }
}

void VirtualWorld::note_cached() {
  const core::PrefixCache* cache = engine_->cache();
  if (cache == nullptr) return;
  for (std::uint32_t b = 0; b < cache->records().block_capacity(); ++b) {
    const BlockId block{b};
    if (!cache->tree().contains(block) || !cache->has_any_copy(block)) continue;
    cached_keys_.insert(cache->records().key(block));
  }
}

bool VirtualWorld::run_next() {
  if (continue_wanted_) {
    send(core::Continue{});
    return true;
  }
  if (!recovery_.empty() && (links_.idle() || prng_.chance(1, 2))) {
    RecoveryChunk chunk = std::move(recovery_.back());
    recovery_.pop_back();
    // Known from here on, or erased within the step or the Continues that follow.
    for (const auto& entry : chunk.entries) unrecovered_.erase({entry.group, entry.slot});
    send(core::Recovered{chunk.entries, chunk.tokens, chunk.last});
    return true;
  }
  const bool sync_first =
      !syncs_.empty() && (links_.idle() || syncs_.begin()->first.first <= links_.next_due());
  if (!repeats_.empty() && prng_.chance(1, 4)) {
    repeat_report();
    return true;
  }
  if (sync_first) {
    finish_sync();
    return true;
  }
  if (links_.idle()) return false;
  finish_transfer();
  return true;
}

void VirtualWorld::finish_sync() {
  const auto sync = *syncs_.begin();
  syncs_.erase(syncs_.begin());
  now_ = std::max(now_, sync.first.first);
  // What a disk that could not be opened holds, nobody can make durable.
  const bool ok = !disk_off_ && !prng_.chance(options_.faults.failed_syncs, 1000);
  for (auto& [place, entry] : tiers_.disk()) entry.synced = entry.synced || ok;
  blocks_synced_ = sync.second.blocks;
  if (ok) tiers_.forget_erased(sync.second.erases);
  send(core::DiskSynced{sync.first.second, ok});
}

void VirtualWorld::finish_transfer() {
  now_ = std::max(now_, links_.next_due());
  auto report = links_.finish_next(problems_);
  broken_keys_.insert(report.broken_keys.begin(), report.broken_keys.end());
  for (const Digest& key : report.broken_keys) bad_copies_.insert({report.from, key});
  transfers_.ended(now_, report.id, report.outcomes);
  send(core::TransferDone{report.id, report.outcomes, report.checksums});
  if (!prng_.chance(options_.faults.repeated_reports, 1000)) return;
  repeats_.push_back(std::move(report));
  if (prng_.chance(1, 2)) repeat_report();
}

// As it was, or with other outcomes.
void VirtualWorld::repeat_report() {
  VirtualLinks::Report report = std::move(repeats_.back());
  repeats_.pop_back();
  const bool other = prng_.chance(1, 2);
  for (core::BlockOutcome& outcome : report.outcomes) {
    if (!other) break;
    const bool was_ok = outcome == core::BlockOutcome::ok;
    outcome = was_ok ? core::BlockOutcome::corrupt : core::BlockOutcome::ok;
  }
  transfers_.repeated(report.id, other, *engine_);
  send_void({report.id, report.outcomes, report.checksums});
}

void VirtualWorld::report_unknown_transfer() {
  constexpr std::uint64_t kFarAway = 1'000'000;
  const std::vector<core::BlockOutcome> outcomes(prng_.below(3), core::BlockOutcome::ok);
  send_void({TransferId{kFarAway + prng_.below(kFarAway)}, outcomes, {}});
}

// A report that must change nothing.
void VirtualWorld::send_void(const core::TransferDone& report) {
  const std::uint64_t before = state_digest(*engine_);
  const core::Counters counters = engine_->status().counters;
  send(report);
  if (was_busy_) return;  // other work went on in the same step
  if (state_digest(*engine_) != before || engine_->status().counters != counters) {
    problem("15: a report of a transfer that is not on its way changed the state");
  }
}

void VirtualWorld::turn_disk_off() {
  const core::StatusReply before = engine_->status();
  const core::PrefixCache* cache = engine_->cache();
  const bool holds_a_block = cache != nullptr && has_taken_slot(*cache, Tier::disk);
  send(core::DiskOff{});
  const core::StatusReply after = engine_->status();
  const auto slots = [](const core::StatusReply& status) {
    return status.tiers[tier_index(Tier::disk)].slots;
  };
  if (holds_a_block) {
    if (slots(after) != slots(before) || after.recovering != before.recovering) {
      problem("19: a disk that holds blocks was turned off");
    }
    return;
  }
  if (slots(after) != 0 || after.recovering) problem("19: the disk is off, but not in status");
  disk_off_ = true;
  recovery_.clear();  // nobody reads an index that cannot be opened
  durable_keys_.clear();
}

void VirtualWorld::run_all(std::uint32_t steps_max) {
  for (std::uint32_t i = 0; i < steps_max; ++i) {
    if (!problems_.empty() || !run_next()) return;
  }
  problem("16: the Engine is still busy after " + std::to_string(steps_max) + " steps");
}

void VirtualWorld::pass_time(Duration time, Duration unheard) {
  const TimePoint until = now_ + time;
  while (!links_.idle() && links_.next_due() <= until && problems_.empty()) finish_transfer();
  now_ = std::max(now_, until);
  send(core::Tick{unheard});
}

void VirtualWorld::check_replay() {
  core::Engine engine(options_.engine);
  core::TraceReader reader(trace_);
  core::Actions actions;
  std::uint64_t digest = 0;
  while (!reader.at_end()) {
    const auto record = reader.next();
    if (!record) {
      problem("the trace cannot be read: " + std::string(record.error().reason));
      return;
    }
    actions.clear();
    engine.step(record->now, record->input, actions);
    digest = core::actions_digest(digest, actions);
  }
  if (digest != digest_) problem("the replayed trace gave other actions");
}

void VirtualWorld::restart() {
  check_replay();
  ++life_;
  links_.stop();
  transfers_.forget_flights();
  leases_.clear();
  disk_off_ = false;
  tiers_.lose_unsynced([this] { return prng_.chance(1, 2); });
  for (const auto& [name, namespace_digest] : clears_waiting_) {
    tiers_.adopt_epoch(namespace_digest);
  }
  tiers_.epochs().forget_roots();
  clears_waiting_.clear();
  clears_accepted_.clear();
  tier_clears_.clear();
  tenants_.clear();
  syncs_.clear();
  repeats_.clear();
  recovery_.clear();
  unrecovered_.clear();
  broken_keys_.clear();
  bad_copies_.clear();
  cached_keys_.clear();
  reply_digests_.clear();
  awaiting_.clear();
  replies_.clear();
  notices_.clear();
  notice_numbers_.clear();
  trace_.clear();
  digest_ = 0;
  continue_wanted_ = false;
  history_ = StepHistory{};
  engine_ = std::make_unique<core::Engine>(options_.engine);
  if (!disk_formatted_ || options_.engine.tier_bytes[tier_index(Tier::disk)] == 0) {
    tiers_.stop();
    return;
  }
  plan_recovery();
  const core::DiskFormat format{&options_.layout};
  tiers_.stop();
  send(format);
}

void VirtualWorld::plan_recovery() {
  std::vector<const VirtualTiers::DiskEntry*> entries;
  for (const auto& [place, entry] : tiers_.disk()) entries.push_back(&entry);
  std::ranges::sort(entries, [](const auto* a, const auto* b) {
    return std::tie(a->entry.depth, a->entry.key, a->entry.group) <
           std::tie(b->entry.depth, b->entry.key, b->entry.group);
  });
  durable_keys_.clear();
  std::map<Digest, std::size_t> groups_found;
  for (const auto* disk_entry : entries) ++groups_found[disk_entry->entry.key];
  RecoveryChunk chunk;
  for (const auto* disk_entry : entries) {
    const core::RecoveredEntry& entry = disk_entry->entry;
    unrecovered_.insert({entry.group, entry.slot});
    const bool whole = groups_found[entry.key] == options_.layout.groups.size();
    if (whole && (entry.depth == 0 || durable_keys_.contains(entry.parent_key))) {
      durable_keys_.insert(entry.key);
    }
    chunk.entries.push_back(entry);
    chunk.tokens.insert(chunk.tokens.end(), disk_entry->tokens.begin(), disk_entry->tokens.end());
    if (prng_.chance(1, 3)) recovery_.push_back(std::exchange(chunk, {}));
  }
  chunk.last = true;
  recovery_.push_back(std::move(chunk));
  std::ranges::reverse(recovery_);
}

std::size_t VirtualWorld::unanswered() const { return awaiting_.size(); }

void VirtualWorld::forget_client(ClientId client) {
  std::erase_if(awaiting_, [&](const RequestName& name) { return name.first == client; });
}

std::optional<core::Reply> VirtualWorld::take_reply(ClientId client, RequestId request) {
  auto node = replies_.extract({client, request});
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

std::vector<core::Notice> VirtualWorld::take_notices(ClientId client) {
  return std::exchange(notices_[client], {});
}

}  // namespace kv::world
