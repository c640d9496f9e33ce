// Formats, sequences before their admission, and look-ups.
#include <algorithm>

#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

constexpr std::uint64_t kDiskAlignment = 4'096;

std::uint64_t slot_bytes(const KvLayout& layout, Tier tier, GroupId group) {
  const std::uint64_t bytes = block_bytes(layout, group);
  if (tier != Tier::disk) return bytes;
  return (bytes + kDiskAlignment - 1) / kDiskAlignment * kDiskAlignment;
}

}  // namespace

Result<void> Engine::State::define_format(const KvLayout& layout) {
  if (cache_ != nullptr) {
    const std::string_view field = first_difference(layout_, layout);
    if (field.empty()) return {};
    return Error{ErrorCode::mismatch, "the service holds blocks of another layout", field};
  }
  KV_TRY_VOID(validate(layout));
  PrefixCache::Options cache_options;
  cache_options.layout = layout;
  cache_options.root_capacity = 2 * options_.root_capacity;  // as many retired ones
  cache_options.hash_seed = options_.hash_seed;
  const auto groups = static_cast<std::uint32_t>(layout.groups.size());
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    std::uint64_t bytes = 0;
    for (std::uint32_t g = 0; g < groups; ++g) {
      bytes += slot_bytes(layout, static_cast<Tier>(t), GroupId(g));
    }
    const std::uint64_t slots = options_.tier_bytes[t] / bytes;
    cache_options.slot_count[t] =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(slots, std::uint64_t{1} << 28U));
  }
  if (cache_options.slot_count[tier_index(Tier::device)] == 0) {
    return Error{ErrorCode::too_large, "one block is larger than the device tier", "device.bytes"};
  }
  // Blocks reach the disk through host slots: without them the disk tier cannot be used.
  if (cache_options.slot_count[tier_index(Tier::host)] == 0) {
    cache_options.slot_count[tier_index(Tier::disk)] = 0;
  }
  if (PrefixCache::bytes_max(cache_options) > options_.index_bytes_max) {
    return Error{ErrorCode::too_large,
                 "so many small blocks fit the tiers that their index is over limits.index_bytes",
                 "block_tokens"};
  }
  layout_ = layout;
  group_count_ = groups;
  block_tokens_ = layout.block_tokens;
  slot_count_ = cache_options.slot_count;
  const std::uint32_t host_slots = slot_count_[tier_index(Tier::host)];
  landing_reserve_ = host_slots == 0 || slot_count_[tier_index(Tier::disk)] == 0
                         ? 0
                         : std::clamp(host_slots / 4, std::uint32_t{1}, kLandingSlotsMax);
  cache_ = std::make_unique<PrefixCache>(cache_options);
  history_ = std::make_unique<MissHistory>(options_.history_capacity, now_);
  namespaces_.reserve(cache_options.root_capacity);
  root_uses_.assign(cache_options.root_capacity, 0);
  displaced_.assign(cache_options.root_capacity, 0);
  save_to_host_ = SaveQueue(std::max(1U, slot_count_[tier_index(Tier::device)]));
  save_to_disk_ = SaveQueue(std::max(1U, host_slots));
  return {};
}

void Engine::State::on(const AttachPool& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !allowed(*client, input.header.request, false)) return;
  const bool first = cache_ == nullptr;
  if (const auto defined = define_format(*input.layout); !defined) {
    refuse(*client, input.header.request, defined.error());
    return;
  }
  client->has_pool = true;
  if (first) actions_->format_defined = &layout_;
  AttachPoolReply answer;
  for (std::uint32_t g = 0; g < group_count_; ++g) {
    AttachPoolReply::Group group;
    group.offset = answer.pool_bytes;
    group.slot_bytes = block_bytes(layout_, GroupId(g));
    group.slot_count = slot_count_[tier_index(Tier::device)];
    answer.pool_bytes += group.slot_bytes * group.slot_count;
    answer.groups.push_back(group);
  }
  reply(*client, input.header.request, std::move(answer));
}

Result<RootId> Engine::State::open_root(const Digest& digest, RootFor purpose) {
  const PrefixTree& tree = cache().tree();
  if (const RootId known = tree.find_root(digest); !known.is_none()) return known;
  const bool room = tree.live_root_count() < options_.root_capacity;
  const bool is_new_left = tree.root_count() < tree.options().root_capacity;
  if (room && is_new_left) return cache().open_root(digest);
  find_used_roots();
  RootId spare, oldest;
  for (std::uint32_t r = 0; r < tree.root_count(); ++r) {
    const RootId root(r);
    if (used_roots_[r] != 0) continue;
    const bool is_empty = tree.first_root_child(root).is_none();
    const bool is_retired = tree.is_retired(root);
    if (is_empty && (room || !is_retired)) {
      cache().rename_root(root, digest);
      return root;
    }
    if (is_empty) spare = root;
    if (is_retired) continue;
    if (oldest.is_none() || root_uses_[r] < root_uses_[oldest.value]) oldest = root;
  }
  // Retired roots whose blocks are not yet all given up keep their ids: without another one left,
  // nothing gives way for nothing.
  const bool has_id = is_new_left || !spare.is_none();
  if (purpose == RootFor::sequence && !room && has_id && !oldest.is_none()) {
    counters_.displaced_blocks += tree.block_count(oldest);
    retire(oldest);
    displaced_[oldest.value] = 1;
    if (is_new_left) return cache().open_root(digest);
    cache().rename_root(spare, digest);
    return spare;
  }
  ++counters_.refused_namespaces;
  return Error{ErrorCode::exhausted, "sequences use as many namespaces as there may be", "fields"};
}

// Of fenced sequences nothing but their slots is left. What a move reads or fills would stay behind
// for a while.
void Engine::State::find_used_roots() {
  const PrefixTree& tree = cache().tree();
  used_roots_.assign(tree.root_count(), 0);
  for (const SequenceState& sequence : sequences_) {
    if (sequence.phase == SequencePhase::unused || sequence.phase == SequencePhase::fenced)
      continue;
    used_roots_[sequence.root.value] = 1;
  }
  for (const Move& move : moves_) {
    if (move.active) used_roots_[tree.root(move.blocks.front()).value] = 1;
  }
}

// A Clear leaves its sequences in a retired root: that is no namespace any more.
Result<void> Engine::State::check_roots_of(const ClientState& client, const Digest& digest) {
  const PrefixTree& tree = cache().tree();
  const RootId known = tree.find_root(digest);
  std::uint32_t live = 0;
  for (const HeldRoot& held : client.roots) {
    if (held.root == known) return {};
    live += tree.is_retired(held.root) ? 0 : 1;
  }
  if (live < std::max(1U, options_.root_capacity / 4)) return {};
  ++counters_.refused_namespaces;
  return Error{ErrorCode::exhausted, "sequences in as many namespaces as one client may use",
               "fields"};
}

Digest Engine::State::digest_of(const NamespaceFields& fields, const ClientState& client) const {
  NamespaceFields whole = fields;
  whole.tenant = client.tenant;
  whole.block_tokens = block_tokens_;
  return namespace_digest(whole);
}

void Engine::State::remember_namespace(RootId root, const Digest& digest,
                                       const NamespaceFields& fields, const ClientState& client) {
  if (root.value >= namespaces_.size()) namespaces_.resize(root.value + 1);
  NamespaceRecord& record = namespaces_[root.value];
  if (record.digest == digest) return;
  NamespaceFields whole = fields;
  whole.tenant = client.tenant;
  record = {digest, traits_of(whole)};
}

void Engine::State::on(const Open& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr || !allowed(*client, input.header.request, false)) return;
  const RequestId request = input.header.request;
  // Whose layout was refused, or never said, would read the blocks of another one as its own.
  if (cache_ == nullptr || !client->has_pool) {
    refuse(*client, request, {ErrorCode::unavailable, "no pool is attached yet", {}});
    return;
  }
  std::uint32_t index = find_sequence(input.header.client, input.sequence);
  if (const auto fits = check_prompt(*client, index, input.tokens.size()); !fits) {
    refuse(*client, request, fits.error());
    return;
  }
  if (input.first) {
    if (index != kNoIndex) {
      refuse(*client, request, {ErrorCode::exists, "the sequence is open already", "sequence"});
      return;
    }
    if (input.fields == nullptr) {
      refuse(*client, request, {ErrorCode::invalid, "the first part needs a namespace", "fields"});
      return;
    }
    if (free_sequences_.empty()) {
      ++counters_.refused_sequences;
      refuse(*client, request, {ErrorCode::exhausted, "too many open sequences", "sequence"});
      return;
    }
    const Digest digest = digest_of(*input.fields, *client);
    if (const auto fits = check_roots_of(*client, digest); !fits) {
      refuse(*client, request, fits.error());
      return;
    }
    const auto root = open_root(digest, RootFor::sequence);
    if (!root) {
      refuse(*client, request, root.error());
      return;
    }
    remember_namespace(*root, digest, *input.fields, *client);
    index = make_sequence(*client, input.sequence, *root);
    SequenceState& made = sequences_[index];
    made.namespace_digest = digest;
    made.skip_read = input.skip_read;
    made.accept_rewrite = input.accept_rewrite;
  } else if (index == kNoIndex) {
    refuse(*client, request, {ErrorCode::not_found, "no such sequence is open", "sequence"});
    return;
  } else if (sequences_[index].phase == SequencePhase::unwinding) {
    refuse(*client, request, kBeingUndone);
    return;
  } else if (sequences_[index].phase != SequencePhase::opened) {
    refuse(*client, request, {ErrorCode::invalid, "the sequence is admitted already", "sequence"});
    return;
  }
  SequenceState& sequence = sequences_[index];
  sequence.tokens.insert(sequence.tokens.end(), input.tokens.begin(), input.tokens.end());
  sequence.prompt_tokens += input.tokens.size();
  client->prompt_tokens += input.tokens.size();
  prompt_tokens_ += input.tokens.size();
  reply(*client, request, std::monostate{});
}

// Tokens take memory before any slot does, and sequences that share a prefix share its slots but
// not its tokens.
Result<void> Engine::State::check_prompt(const ClientState& client, std::uint32_t index,
                                         std::uint64_t added) {
  const std::uint64_t whole = (index == kNoIndex ? 0 : sequences_[index].tokens.size()) + added;
  if (added > kTokensPerMessageMax || whole > options_.sequence_tokens_max) {
    return Error{ErrorCode::too_large, "too many tokens in a sequence", "tokens"};
  }
  return check_prompt_room(client, whole, added);
}

Result<void> Engine::State::check_prompt_room(const ClientState& client, std::uint64_t whole,
                                              std::uint64_t added) {
  const bool client_has_room = client.prompt_tokens + added <= options_.client_prompt_tokens_max;
  if (client_has_room && prompt_tokens_ + added <= options_.prompt_tokens_max) return {};
  ++counters_.refused_prompt_tokens;
  if (whole > std::min(options_.client_prompt_tokens_max, options_.prompt_tokens_max)) {
    return Error{ErrorCode::too_large, "more tokens than all prompts of a client may have",
                 "tokens"};
  }
  return Error{ErrorCode::exhausted,
               client_has_room ? "as many prompt tokens as limits.prompt_tokens"
                               : "as many prompt tokens as client.prompt_tokens",
               "tokens"};
}

void Engine::State::on(const Lookup& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr) return;
  ++counters_.lookups;
  LookupReply answer;
  if (cache_ == nullptr) {
    reply(*client, input.header.request, answer);
    return;
  }
  if (input.tokens.size() > kTokensPerMessageMax || input.fields == nullptr) {
    refuse(*client, input.header.request,
           {ErrorCode::invalid, "a look-up needs a namespace and at most 65536 tokens", "tokens"});
    return;
  }
  const RootId root = cache().tree().find_root(digest_of(*input.fields, *client));
  if (!root.is_none()) {
    path_.clear();
    const PrefixCache::Match match = cache().match(root, input.tokens, path_);
    answer.hit_tokens = std::uint64_t{match.hit_blocks} * block_tokens_;
    answer.known_tokens = std::uint64_t{match.known_blocks} * block_tokens_;
    for (std::size_t t = 0; t < kTierCount; ++t) {
      answer.hit_tokens_by_tier[t] = std::uint64_t{match.hit_blocks_by_tier[t]} * block_tokens_;
    }
  }
  reply(*client, input.header.request, answer);
}

}  // namespace kv::core
