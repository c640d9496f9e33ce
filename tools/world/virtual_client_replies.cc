#include <algorithm>
#include <variant>

#include "tools/world/virtual_client.h"

namespace kv::world {

void VirtualClient::poll() {
  // A reply may make more of them ready; the map changes meanwhile, so start again each time.
  for (bool more = true; more;) {
    more = false;
    for (const auto& [request, pending] : pending_) {
      const auto reply = world_->take_reply(id_, request);
      if (!reply) continue;
      const Pending answered = std::move(pending_.extract(request).mapped());
      on_reply(answered, *reply);
      more = true;
      break;
    }
  }
  for (const core::Notice& notice : world_->take_notices(id_)) on_notice(notice);
}

void VirtualClient::on_reply(const Pending& pending, const core::Reply& reply) {
  if (pending.kind == Kind::step) step_waits_ = false;
  if (pending.kind == Kind::admit && sequences_.contains(pending.sequence)) {
    sequences_.at(pending.sequence).admitting = false;
  }
  if (reply.error.code != ErrorCode::ok) {
    on_error(pending, reply);
    return;
  }
  if (pending.expect == Expect::refusal) problem(pending.name + " had to be refused");
  switch (pending.kind) {
    case Kind::other:
      break;
    case Kind::open:
      on_open(pending);
      break;
    case Kind::admit:
      on_admit(pending, std::get<core::AdmitReply>(reply.body));
      break;
    case Kind::step:
      on_step(pending, std::get<core::StepReply>(reply.body));
      break;
    case Kind::lookup:
      on_lookup(pending, std::get<core::LookupReply>(reply.body));
      break;
    case Kind::why:
      on_why(pending, std::get<core::WhyReply>(reply.body));
      break;
    case Kind::bye:
      on_bye();
      break;
  }
}

void VirtualClient::on_bye() {
  gone_ = true;
  sequences_.clear();
  pending_.clear();
  world_->forget_client(id_);
}

void VirtualClient::on_error(const Pending& pending, const core::Reply& reply) {
  const ErrorCode code = reply.error.code;
  if (code == ErrorCode::stale) {
    expire();
    if (pending.kind == Kind::bye) on_bye();  // it ended with its lease
    return;
  }
  if ((code == ErrorCode::busy || code == ErrorCode::exhausted) && reply.retry_after_us == 0) {
    problem(pending.name + ": " + std::string(error_name(code)) + " without a hint when to retry");
  }
  if (pending.kind == Kind::admit) {
    const std::uint32_t slots =
        world_->engine().cache()->pool(Tier::device, GroupId{0}).slot_count();
    const bool never = pending.block_count > slots ||
                       pending.token_count > world_->options().engine.sequence_tokens_max;
    const auto found = sequences_.find(pending.sequence);
    const bool waits = code == ErrorCode::busy && found != sequences_.end() &&
                       found->second.is_resumed;  // for its preemption
    if ((code == ErrorCode::too_large) != never && !waits) {
      problem(pending.name + ": admission of " + std::to_string(pending.block_count) +
              " blocks ended as " + std::string(error_name(code)));
    }
  }
  if (pending.expect == Expect::success) {
    problem(pending.name + " was refused: " + std::string(error_name(code)) + ", " +
            std::string(reply.error.reason));
  }
}

void VirtualClient::on_open(const Pending& pending) {
  Sequence& sequence = sequences_[pending.sequence];
  if (pending.first) sequence = pending.opened;
  sequence.tokens.insert(sequence.tokens.end(), pending.tokens.begin(), pending.tokens.end());
}

void VirtualClient::check_account(const core::Account& account, const std::string& name) {
  std::uint64_t hits = 0;
  for (const std::uint64_t tokens : account.hit_tokens) hits += tokens;
  if (hits + account.computed_tokens != account.prompt_tokens) {
    problem("24: " + name + ": hits and computed tokens do not make the prompt");
  }
  if (hits % block_tokens() != 0 || (hits > 0 && hits >= account.prompt_tokens)) {
    problem("11: " + name + ": " + std::to_string(hits) + " hit tokens of a prompt of " +
            std::to_string(account.prompt_tokens));
  }
}

void VirtualClient::on_admit(const Pending& pending, const core::AdmitReply& reply) {
  const auto found = sequences_.find(pending.sequence);
  if (found == sequences_.end()) return;  // freed meanwhile
  Sequence& sequence = found->second;
  const std::size_t groups = world_->layout().groups.size();
  check_account(reply.account, pending.name);
  if (reply.account.prompt_tokens != sequence.tokens.size()) {
    problem("24: " + pending.name + ": another prompt length");
  }
  if (reply.block_count != pending.block_count ||
      reply.slots.size() != groups * reply.block_count) {
    problem(pending.name + ": a table of another size than asked for");
    return;
  }
  std::uint64_t hits = 0;
  for (const std::uint64_t tokens : reply.account.hit_tokens) hits += tokens;
  // One that waited for another's load found more, or less, by then.
  if (hits != pending.hit_expected && pending.sent_at == world_->steps()) {
    problem("11: " + pending.name + ": " + std::to_string(hits) + " tokens hit, resident are " +
            std::to_string(pending.hit_expected));
  }
  sequence.tables.clear();
  for (std::size_t g = 0; g < groups; ++g) {
    const auto slots = std::span(reply.slots).subspan(g * reply.block_count, reply.block_count);
    sequence.tables.emplace_back(slots.begin(), slots.end());
  }
  sequence.version = reply.table_version;
  sequence.admitted = true;
  sequence.loading = !reply.ready;
  sequence.admission = reply.account;
  if (!sequence.is_resumed) {
    sequence.prompt_tokens = static_cast<std::uint32_t>(sequence.tokens.size());
    sequence.base_tokens = sequence.prompt_tokens;
    sequence.account = reply.account;
  }
  if (reply.ready) on_ready(sequence, reply.account);
}

// The heart of it: every hit block holds exactly what a cold run would have written there.
void VirtualClient::on_ready(Sequence& sequence, const core::Account& account) {
  sequence.ready = true;
  sequence.loading = false;
  check_account(account, "sequence " + std::to_string(sequence.id.value));
  if (account != sequence.admission) problem("24: the account changed while loading");
  std::uint64_t hits = 0;
  for (const std::uint64_t tokens : account.hit_tokens) hits += tokens;
  sequence.hit_tokens = static_cast<std::uint32_t>(hits);
  sequence.computed = sequence.hit_tokens;
  sequence.published = sequence.hit_tokens;
  const auto hit_blocks = static_cast<std::uint32_t>(hits / block_tokens());
  for (std::uint32_t block = 0; block < hit_blocks; ++block) {
    const Fingerprint bytes = prefix(sequence, (block + 1) * block_tokens());
    for (std::uint32_t g = 0; g < sequence.tables.size(); ++g) {
      const SlotId slot = sequence.tables[g][block];
      if (world_->tiers().read(Tier::device, GroupId{g}, slot) != of_group(bytes, GroupId{g})) {
        problem("12: hit block " + std::to_string(block) + " of sequence " +
                std::to_string(sequence.id.value) + " in device slot " +
                std::to_string(slot.value) + " has other bytes");
      }
    }
  }
}

void VirtualClient::on_step(const Pending& pending, const core::StepReply& reply) {
  for (std::size_t i = 0; i < pending.items.size(); ++i) {
    const Item& item = pending.items[i];
    const auto failure =
        std::ranges::find_if(reply.failures, [&](const auto& failed) { return failed.item == i; });
    const std::string name = pending.name + ", item " + std::to_string(i) + " of kind " +
                             std::to_string(static_cast<int>(item.op));
    if (failure == reply.failures.end()) {
      if (item.must_fail) problem(name + " had to fail");
      on_item_done(item);
      continue;
    }
    const ErrorCode code = failure->error.code;
    const bool takes_slots = item.op == core::StepOp::append || item.op == core::StepOp::fork;
    const bool no_room =
        (takes_slots && (code == ErrorCode::exhausted || code == ErrorCode::too_large)) ||
        (item.op == core::StepOp::drop && code == ErrorCode::busy);
    if (!item.must_fail && !no_room) {
      problem(name + " failed: " + std::string(failure->error.reason));
    }
  }
  for (const core::TableDelta& delta : reply.deltas) {
    on_delta(delta, std::span(reply.slots).subspan(delta.slot_offset, delta.slot_count));
  }
  for (const core::BlockCopy& copy : reply.copies) on_copy(copy);
  for (const auto& ended : reply.ended) on_ended(ended);
  for (const auto& [id, sequence] : sequences_) {
    const std::size_t needed = (sequence.tokens.size() + block_tokens() - 1) / block_tokens();
    if (sequence.ready && sequence.tables[0].size() < needed) {
      problem("sequence " + std::to_string(id.value) + " has fewer slots than tokens");
    }
  }
}

void VirtualClient::on_item_done(const Item& item) {
  const auto found = sequences_.find(item.sequence);
  if (found == sequences_.end()) return;
  Sequence& sequence = found->second;
  switch (item.op) {
    case core::StepOp::append:
      sequence.tokens.insert(sequence.tokens.end(), item.tokens.begin(), item.tokens.end());
      sequence.generated += item.tokens.size();
      break;
    case core::StepOp::publish:
      sequence.published = item.value;
      world_->note_published(
          keys_of(sequence.weights, std::span(sequence.tokens).first(item.value)));
      break;
    case core::StepOp::truncate: {
      sequence.tokens.resize(item.value);
      sequence.was_cut = sequence.was_cut || item.value < sequence.computed;
      sequence.computed = std::min(sequence.computed, item.value);
      sequence.generated = item.value - std::min(item.value, sequence.base_tokens);
      const std::size_t blocks = (item.value + block_tokens() - 1) / block_tokens();
      for (auto& table : sequence.tables) table.resize(std::min(table.size(), blocks));
      break;
    }
    case core::StepOp::free:
      break;  // told by `ended`
    case core::StepOp::fork:
      on_fork(item);
      break;
    case core::StepOp::preempt:
      sequence.admitted = sequence.ready = false;
      sequence.is_resumed = true;
      sequence.computed = sequence.published = sequence.version = 0;
      sequence.tables.clear();
      sequence.unacknowledged.clear();
      break;
    case core::StepOp::drop:
      for (auto& table : sequence.tables) table.at(item.value) = SlotId::none();
      break;
    case core::StepOp::acknowledge:
      std::erase_if(sequence.unacknowledged,
                    [&](std::uint32_t version) { return version <= item.value; });
      break;
  }
}

// Its table comes as deltas.
void VirtualClient::on_fork(const Item& item) {
  Sequence child = sequences_.at(item.sequence);
  child.id = item.child;
  for (auto& table : child.tables) table.clear();
  child.unacknowledged.clear();
  child.version = 0;
  child.prompt_tokens = 0;
  child.base_tokens = static_cast<std::uint32_t>(child.tokens.size());
  child.generated = 0;
  child.account = child.admission = {};
  child.is_resumed = false;
  if (!sequences_.emplace(item.child, std::move(child)).second) problem("a child was open already");
}

// Done before the work of the next step. What the parent has computed by now lies there by then.
void VirtualClient::on_copy(const core::BlockCopy& copy) {
  const auto found = sequences_.find(copy.sequence);
  if (found == sequences_.end()) {
    problem("a copy for a sequence that it does not have");
    return;
  }
  const Sequence& child = found->second;
  const auto& table = child.tables.at(copy.group.value);
  const auto block =
      static_cast<std::uint32_t>(std::ranges::find(table, copy.to_slot) - table.begin());
  const std::uint32_t first = block * block_tokens();
  const auto size = static_cast<std::uint32_t>(child.tokens.size());
  if (block == table.size() || copy.token_count == 0 ||
      copy.token_count != std::min(block_tokens(), size - std::min(first, size))) {
    problem("a copy into no block of its sequence, or of another length");
    return;
  }
  Copy work{copy.group, copy.from_slot, copy.to_slot, {}};
  const bool is_known = child.computed >= first + block_tokens() || !child.was_cut;
  if (child.computed > first && is_known) {
    const std::uint32_t end = std::min(first + block_tokens(), child.computed);
    work.fingerprint = of_group(prefix(child, end), copy.group);
  }
  next_work_.copies.push_back(work);
}

void VirtualClient::on_delta(const core::TableDelta& delta, std::span<const SlotId> slots) {
  const auto found = sequences_.find(delta.sequence);
  if (found == sequences_.end()) {
    problem("a table delta for a sequence that it does not have");
    return;
  }
  Sequence& sequence = found->second;
  if (!sequence.admitted) return;  // it was preempted in the same step
  auto& table = sequence.tables.at(delta.group.value);
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const std::uint32_t block = delta.first_block + i;
    if (block == table.size()) {
      table.push_back(slots[i]);
      continue;
    }
    if (block > table.size()) {
      problem("a table delta leaves a gap at block " + std::to_string(block));
      return;
    }
    table[block] = slots[i];
    sequence.unacknowledged.push_back(delta.version);
    const std::uint32_t end = (block + 1) * block_tokens();
    if (end > sequence.published) {
      problem("block " + std::to_string(block) + " was rewritten, but not published");
      continue;
    }
    const Fingerprint bytes = of_group(prefix(sequence, end), delta.group);
    if (world_->tiers().read(Tier::device, delta.group, slots[i]) != bytes) {
      problem("12: rewritten block " + std::to_string(block) + " of sequence " +
              std::to_string(sequence.id.value) + " has other bytes in its new slot");
    }
  }
  if (delta.version < sequence.version) problem("a table version fell");
  sequence.version = delta.version;
}

void VirtualClient::on_ended(const core::StepReply::Ended& ended) {
  const auto node = sequences_.extract(ended.sequence);
  if (node.empty()) {
    problem("the end of a sequence that it does not have");
    return;
  }
  const Sequence& sequence = node.mapped();
  check_account(ended.account, "the end of sequence " + std::to_string(ended.sequence.value));
  if (!sequence.ready) return;
  if (ended.account.prompt_tokens != sequence.prompt_tokens ||
      ended.account.hit_tokens != sequence.account.hit_tokens ||
      ended.account.generated_tokens != sequence.generated) {
    problem("24: the last account of sequence " + std::to_string(ended.sequence.value) +
            " is not that of its life");
  }
}

void VirtualClient::on_lookup(const Pending& pending, const core::LookupReply& reply) {
  std::uint64_t sum = 0;
  for (const std::uint64_t tokens : reply.hit_tokens_by_tier) sum += tokens;
  if (sum != reply.hit_tokens) problem("24: a lookup's tiers do not add up");
  if (reply.hit_tokens != pending.hit_expected) {
    problem("11: " + pending.name + ": lookup told " + std::to_string(reply.hit_tokens) +
            " tokens, resident are " + std::to_string(pending.hit_expected));
  }
  if (reply.known_tokens < reply.hit_tokens || reply.known_tokens > pending.tokens.size()) {
    problem("11: " + pending.name + ": impossible known tokens");
  }
}

void VirtualClient::on_notice(const core::Notice& notice) {
  if (notice.number <= last_notice_) return;
  last_notice_ = notice.number;
  if (notice.kind == core::NoticeKind::lease_expired) {
    expire();
    return;
  }
  const auto found = sequences_.find(notice.sequence);
  if (found == sequences_.end() || !found->second.loading) return;  // freed meanwhile
  if (notice.code == ErrorCode::ok) {
    on_ready(found->second, notice.account);
    return;
  }
  if (notice.code != ErrorCode::busy) problem("a sequence became ready with a strange code");
  Sequence& sequence = found->second;
  sequence.admitted = false;
  sequence.loading = false;
  sequence.tables.clear();
}

}  // namespace kv::world
