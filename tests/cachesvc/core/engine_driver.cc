#include "tests/cachesvc/core/engine_driver.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace kv::core {
namespace {

constexpr Tier kSlotTiers[] = {Tier::device, Tier::host, Tier::disk};
constexpr std::uint64_t kDiskAlignment = 4096;
constexpr std::uint64_t kContinuesMax = 1'000'000;

}  // namespace

KvLayout one_group_layout(std::uint32_t block_tokens) {
  return {.block_tokens = block_tokens,
          .groups = {{.kind = AttentionKind::full,
                      .layer_count = 1,
                      .kv_head_count = 1,
                      .head_dim_k = 4,
                      .head_dim_v = 4}}};
}

Engine::Options options_with_slots(std::uint32_t device, std::uint32_t host, std::uint32_t disk,
                                   std::uint32_t block_tokens) {
  const std::uint64_t bytes = std::uint64_t{32} * block_tokens;
  const std::uint64_t disk_bytes = (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
  Engine::Options options;
  options.tier_bytes = {device * bytes, host * bytes, disk * disk_bytes, 0};
  return options;
}

std::vector<Token> numbered_tokens(Token first, std::uint32_t count) {
  std::vector<Token> tokens(count);
  for (std::uint32_t i = 0; i < count; ++i) tokens[i] = first + i;
  return tokens;
}

EngineDriver::EngineDriver(const Engine::Options& options) : engine_(options) {}

const TierStatus& EngineDriver::tier(Tier tier) {
  tier_ = engine_.status().tiers[tier_index(tier)];
  return tier_;
}

// ---- clients

ClientId EngineDriver::attach(ClientRole role, std::string_view tenant) {
  const ClientId client(++client_count_);
  clients_[client];
  input(ClientAttached{.client = client, .role = role, .tenant = tenant, .process_id = 100});
  return client;
}

ClientId EngineDriver::attach_with_pool(std::uint32_t block_tokens, std::string_view tenant) {
  const ClientId client = attach(ClientRole::runner, tenant);
  const KvLayout layout = one_group_layout(block_tokens);
  EXPECT_EQ(call(client, AttachPool{.header = {}, .layout = &layout}).error.code, ErrorCode::ok);
  return client;
}

void EngineDriver::acknowledge_notices(ClientId client) {
  Client& receiver = clients_[client];
  if (!receiver.notices.empty()) receiver.acknowledged = receiver.notices.back().number;
}

// ---- requests

Reply EngineDriver::open(ClientId client, SequenceId sequence, std::span<const Token> tokens,
                         const NamespaceFields& fields) {
  Reply answer;
  bool first = true;
  do {
    const std::size_t count = std::min<std::size_t>(tokens.size(), kTokensPerMessageMax);
    answer = call(client, Open{.header = {},
                               .sequence = sequence,
                               .first = first,
                               .fields = first ? &fields : nullptr,
                               .tokens = tokens.first(count)});
    tokens = tokens.subspan(count);
    first = false;
  } while (!tokens.empty() && answer.error.code == ErrorCode::ok);
  return answer;
}

Reply EngineDriver::admit(ClientId client, SequenceId sequence, std::span<const Token> tokens,
                          std::uint32_t max_new_tokens, const NamespaceFields& fields) {
  EXPECT_EQ(open(client, sequence, tokens, fields).error.code, ErrorCode::ok);
  return call(client, Admit{.header = {}, .sequence = sequence, .max_new_tokens = max_new_tokens});
}

LookupReply EngineDriver::lookup(ClientId client, std::span<const Token> tokens,
                                 const NamespaceFields& fields) {
  const Reply answer = call(client, Lookup{.header = {}, .fields = &fields, .tokens = tokens});
  EXPECT_EQ(answer.error.code, ErrorCode::ok);
  const auto* body = std::get_if<LookupReply>(&answer.body);
  return body == nullptr ? LookupReply{} : *body;
}

Reply EngineDriver::step(ClientId client, const StepScript& script) {
  const std::uint64_t step_seq = ++clients_[client].step_seq;
  return call(client, script.at(step_seq, step_seq));
}

void EngineDriver::cache_prompt(ClientId client, std::span<const Token> tokens) {
  const SequenceId sequence(0xCAFE'0000U + clients_[client].step_seq);
  EXPECT_EQ(admit(client, sequence, tokens).error.code, ErrorCode::ok);
  StepScript script;
  script.publish(sequence, static_cast<std::uint32_t>(tokens.size())).free(sequence);
  const Reply answer = step(client, script);
  EXPECT_EQ(answer.error.code, ErrorCode::ok);
  const auto* body = std::get_if<StepReply>(&answer.body);
  EXPECT_TRUE(body != nullptr && body->failures.empty());
}

// ---- steps

void EngineDriver::input(const InputView& input) {
  actions_.clear();
  engine_.step(now_, input, actions_);
  gather();
  if (++step_count_ % check_every_ != 0) return;
  check_counts();
  check_owners();
  if (closed_) check_closed();
  check_pins();
}

void EngineDriver::gather() {
  continue_wanted_ = actions_.continue_wanted;
  if (actions_.format_defined != nullptr) ++format_count_;
  const PrefixCache* cache = engine_.cache();
  const std::uint32_t block_tokens = cache == nullptr ? 0 : cache->layout().block_tokens;
  transfers_.take(actions_, block_tokens);
  syncs_.insert(syncs_.end(), actions_.syncs.begin(), actions_.syncs.end());
  for (const Reply& reply : actions_.replies) {
    replies_[{reply.client, reply.request}].push_back(reply);
  }
  for (const Notice& notice : actions_.notices) {
    std::vector<Notice>& received = clients_[notice.client].notices;
    EXPECT_EQ(notice.number, received.empty() ? 1 : received.back().number + 1);
    received.push_back(notice);
  }
}

void EngineDriver::settle() {
  for (std::uint64_t rounds = 0; rounds < kContinuesMax; ++rounds) {
    if (continue_wanted_) {
      ++continue_count_;
      input(Continue{});
    } else if (!hold_transfers_ && !transfers_.pending().empty()) {
      finish_transfer(0);
    } else if (!hold_syncs_ && !syncs_.empty()) {
      finish_sync(true);
    } else {
      return;
    }
  }
  ADD_FAILURE() << "the Engine wants to go on for ever";
}

void EngineDriver::finish_transfer(std::size_t index, std::span<const BlockOutcome> outcomes) {
  const ScriptedTransfers::Finished finished = transfers_.finish(index, outcomes);
  input(finished.input());
}

void EngineDriver::finish_sync(bool ok) {
  const SyncDisk sync = syncs_.front();
  syncs_.erase(syncs_.begin());
  input(DiskSynced{.id = sync.id, .ok = ok});
}

// ---- what came

std::size_t EngineDriver::reply_count(ClientId client, RequestId request) const {
  const auto found = replies_.find({client, request});
  return found == replies_.end() ? 0 : found->second.size();
}

Reply EngineDriver::reply(ClientId client, RequestId request) const {
  const auto found = replies_.find({client, request});
  if (found != replies_.end()) return found->second.back();
  ADD_FAILURE() << "no reply to request " << request.value << " of client " << client.value;
  Reply none;
  none.error = {ErrorCode::unavailable, "no reply came", {}};
  return none;
}

const std::vector<Notice>& EngineDriver::notices(ClientId client) {
  return clients_[client].notices;
}

std::optional<Engine::SequenceView> EngineDriver::view(ClientId client, SequenceId sequence) {
  for (std::uint32_t i = 0; i < engine_.sequence_count(); ++i) {
    const Engine::SequenceView found = engine_.sequence(i);
    if (found.client == client && found.id == sequence) return found;
  }
  return std::nullopt;
}

Engine::SequenceView EngineDriver::live(ClientId client, SequenceId sequence) {
  const std::optional<Engine::SequenceView> found = view(client, sequence);
  if (found.has_value()) return *found;
  ADD_FAILURE() << "no sequence " << sequence.value << " of client " << client.value;
  return {};
}

// ---- facts that hold always

void EngineDriver::check_counts() {
  const StatusReply now = engine_.status();
  const PrefixCache* cache = engine_.cache();
  if (cache == nullptr) return;
  const GroupId group(0);
  for (const Tier tier : kSlotTiers) {
    const TierStatus& counted = now.tiers[tier_index(tier)];
    ASSERT_EQ(counted.free + counted.held + counted.cached + counted.fenced, counted.slots)
        << tier_name(tier);
    ASSERT_EQ(counted.covered + counted.evictable, counted.cached) << tier_name(tier);
    if (cache->layout().groups.size() != 1) continue;
    const BlockPool& pool = cache->pool(tier, group);
    if (counted.slots == 0) continue;  // off; a disk that could not be opened keeps its pool
    ASSERT_EQ(counted.slots, pool.slot_count());
    ASSERT_EQ(counted.held, pool.count(SlotState::held));
    ASSERT_EQ(counted.cached, pool.count(SlotState::cached));
  }
}

// Every held slot: an owned entry of one sequence, the destination of one transfer, or waiting.
void EngineDriver::check_owners() {
  const PrefixCache* cache = engine_.cache();
  if (cache == nullptr) return;
  const auto group_count = static_cast<std::uint32_t>(cache->layout().groups.size());
  for (std::uint32_t g = 0; g < group_count; ++g) {
    for (const Tier tier : kSlotTiers) {
      const GroupId group(g);
      const BlockPool& pool = cache->pool(tier, group);
      std::vector<std::uint32_t> owners(pool.slot_count());
      for (const SlotId slot : engine_.waiting_slots(tier, group)) ++owners.at(slot.value);
      for (std::uint32_t i = 0; i < engine_.transfer_count(); ++i) {
        const Engine::TransferView moved = engine_.transfer(i);
        if (moved.to != tier || moved.group != group) continue;
        for (const SlotId slot : moved.to_slots) ++owners.at(slot.value);
      }
      for (std::uint32_t i = 0; tier == Tier::device && i < engine_.sequence_count(); ++i) {
        const Engine::SequenceView sequence = engine_.sequence(i);
        for (std::uint32_t b = 0; b < sequence.block_count; ++b) {
          if (sequence.owned[b] == 0) continue;
          ++owners.at(sequence.table[std::size_t{g} * sequence.block_count + b].value);
        }
      }
      for (std::uint32_t slot = 0; slot < pool.slot_count(); ++slot) {
        const SlotState state = pool.state(SlotId(slot));
        // An expired client's sequences may still name their fenced slots.
        if (state == SlotState::fenced && owners[slot] <= 1) continue;
        ASSERT_EQ(owners[slot], state == SlotState::held ? 1U : 0U)
            << tier_name(tier) << " slot " << slot;
      }
    }
  }
}

void EngineDriver::check_closed() {
  const PrefixCache* cache = engine_.cache();
  if (cache == nullptr) return;
  for (std::uint32_t i = 0; i < cache->records().block_capacity(); ++i) {
    const BlockId block(i);
    if (!cache->tree().contains(block) || cache->tree().is_retired(block)) continue;
    const BlockId parent = cache->tree().parent(block);
    if (parent.is_none()) continue;
    for (const Tier tier : kSlotTiers) {
      ASSERT_TRUE(!cache->has_copy(block, tier) || cache->has_copy(parent, tier))
          << tier_name(tier) << " block " << i << " has a copy, its parent has none";
    }
  }
}

// Without anything under way each pin is that of one sequence.
void EngineDriver::check_pins() {
  const PrefixCache* cache = engine_.cache();
  if (cache == nullptr || continue_wanted_ || engine_.transfer_count() > 0 || !syncs_.empty()) {
    return;
  }
  std::vector<std::uint32_t> pins(cache->records().block_capacity());
  for (std::uint32_t i = 0; i < engine_.sequence_count(); ++i) {
    const BlockId deepest = engine_.sequence(i).deepest;
    if (!deepest.is_none()) ++pins.at(deepest.value);
  }
  for (std::uint32_t i = 0; i < pins.size(); ++i) {
    if (!cache->tree().contains(BlockId(i))) continue;
    ASSERT_EQ(cache->records().pins(BlockId(i)), pins[i]) << "block " << i;
  }
}

}  // namespace kv::core
