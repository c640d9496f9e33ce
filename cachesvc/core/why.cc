// Why: which tokens of a prompt would be hits, and for each of the others one reason. Each token is
// in exactly one place: the hits by tier, then what the tree knows but holds no copy of (and what
// lies behind it), then blocks that it does not know, one by one, then the last tokens. Of several
// reasons the first one in explain_block counts.
#include <algorithm>

#include "allocator/block_key.h"
#include "cachesvc/core/engine_state.h"

namespace kv::core {

namespace {

constexpr std::uint32_t kSiblingsPerWork = 8;  // looked at in passing
constexpr std::uint32_t kComparedPerWork = 32;
constexpr std::uint32_t kRestartsMax = 3;

std::uint32_t agreeing(std::span<const Token> one, std::span<const Token> other) {
  const auto differs = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
  return static_cast<std::uint32_t>(differs - one.begin());
}

// Runs of blocks with the same reason become one span.
void add_span(WhyReply& answer, WhyReply::Span span) {
  if (span.token_count == 0) return;
  if (!answer.spans.empty()) {
    WhyReply::Span& last = answer.spans.back();
    if (last.reason == span.reason && last.cause == span.cause && last.tier == span.tier &&
        last.field == span.field) {
      last.token_count += span.token_count;
      return;
    }
  }
  answer.spans.push_back(span);
}

WhyReply::Span span_of(MissReason reason, std::size_t first_token, std::size_t token_count) {
  WhyReply::Span span;
  span.first_token = static_cast<std::uint32_t>(first_token);
  span.token_count = static_cast<std::uint32_t>(token_count);
  span.reason = reason;
  return span;
}

}  // namespace

void Engine::State::on(const Why& input) {
  ClientState* client = enter(input.header, false);
  if (client == nullptr) return;
  const RequestId request = input.header.request;
  if (client->role == ClientRole::runner) {
    refuse(*client, request,
           {ErrorCode::denied, "only an administrator or an observer may ask why", "role"});
    return;
  }
  if (input.tokens.size() > kTokensPerMessageMax || input.fields == nullptr) {
    refuse(*client, request,
           {ErrorCode::invalid, "why needs a namespace and at most 65536 tokens", "tokens"});
    return;
  }
  if (why_jobs_.size() >= kWhyJobsMax) {
    refuse(*client, request, {ErrorCode::busy, "too many prompts are being explained", {}});
    return;
  }
  WhyJob job;
  job.answer.prompt_tokens = input.tokens.size();
  if (cache_ == nullptr) {
    job.answer.computed_tokens = input.tokens.size();
    add_span(job.answer, span_of(MissReason::never_stored, 0, input.tokens.size()));
    reply(*client, request, std::move(job.answer));
    return;
  }
  job.client = client->id;
  job.request = request;
  job.namespace_digest = digest_of(*input.fields, *client);
  job.traits = traits_of(*input.fields);
  job.traits.tenant = traits_of({.tenant = client->tenant}).tenant;
  job.tokens.assign(input.tokens.begin(), input.tokens.end());
  defer(*client, request);
  begin_why(job);
  why_jobs_.push_back(std::move(job));
}

// What the tree knows of the prompt, at this moment.
void Engine::State::begin_why(WhyJob& job) {
  const std::size_t size = job.tokens.size();
  job.block_count = static_cast<std::uint32_t>(size / block_tokens_);
  job.root = cache().tree().find_root(job.namespace_digest);
  path_.clear();
  std::uint32_t hits = 0;
  if (!job.root.is_none()) {
    const std::span<const Token> tokens(job.tokens);
    hits = cache()
               .match_blocks(job.root, tokens.first(std::size_t{job.block_count} * block_tokens_),
                             path_)
               .hit_blocks;
  }
  const auto usable = static_cast<std::uint32_t>(size == 0 ? 0 : (size - 1) / block_tokens_);
  job.known_blocks = static_cast<std::uint32_t>(path_.size());
  job.hit_blocks = std::min(hits, usable);
  job.is_tail_cached = hits > usable;
  for (std::uint32_t i = 0; i < job.hit_blocks; ++i) {
    job.answer.hit_tokens[tier_index(cache().fastest_tier(path_[i]))] += block_tokens_;
  }
  job.answer.computed_tokens = size - std::uint64_t{job.hit_blocks} * block_tokens_;
  const BlockRecords& records = cache().records();
  job.parent = path_.empty() ? BlockId::none() : path_.back();
  job.key = path_.empty() ? job.namespace_digest : records.key(job.parent);
  if (job.hit_blocks == job.known_blocks) return;
  const BlockId stop = path_[job.hit_blocks];
  job.stop_key = records.key(stop);
  job.is_stop_held = cache().is_covered(stop);
  for (std::size_t t = 0; t < BlockRecords::kSlotTiers; ++t) {
    job.is_stop_computed |= records.arriving(stop, static_cast<Tier>(t));
  }
}

void Engine::State::run_why_jobs() {
  std::erase_if(why_jobs_, [this](WhyJob& job) { return run_why_job(job); });
}

bool Engine::State::run_why_job(WhyJob& job) {
  using Phase = WhyJob::Phase;
  const auto leave = [&job](Phase next, std::uint32_t cursor) {
    job.phase = next;
    job.cursor = cursor;
  };
  if (job.phase == Phase::siblings) {
    if (!walk_siblings(job)) return false;
    leave(Phase::namespaces, 0);
  }
  if (job.phase == Phase::namespaces) {
    if (!ask_namespaces(job)) return false;
    leave(Phase::sequences, 0);
  }
  if (job.phase == Phase::sequences) {
    if (!ask_sequences(job)) return false;
    explain_stop(job);
    leave(Phase::keys, job.known_blocks);
  }
  if (!explain_blocks(job)) return false;
  const std::size_t whole = std::size_t{job.block_count} * block_tokens_;
  add_span(job.answer, span_of(MissReason::below_block, whole, job.tokens.size() - whole));
  const auto known = now_ - history_->known_since();
  job.answer.history_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(known).count());
  reply(*find_client(job.client), job.request, std::move(job.answer));
  return true;
}

// Everything that is stored in the place of the first unknown block.
bool Engine::State::walk_siblings(WhyJob& job) {
  const PrefixTree& tree = cache().tree();
  if (job.known_blocks == job.block_count || job.root.is_none()) return true;
  if (tree.is_retired(job.root) || tree.namespace_digest(job.root) != job.namespace_digest) {
    return true;  // it was cleared meanwhile
  }
  const auto wanted = std::span<const Token>(job.tokens)
                          .subspan(std::size_t{job.known_blocks} * block_tokens_, block_tokens_);
  const auto look_at = [&](BlockId block) {
    job.has_siblings = true;
    job.agreeing_tokens = std::max(job.agreeing_tokens, agreeing(wanted, tree.tokens(block)));
  };
  NodeId owner;
  if (!job.parent.is_none()) {
    if (!tree.contains(job.parent) || cache().records().key(job.parent) != job.key) return true;
    owner = tree.node(job.parent);
    const PrefixTree::Run run = tree.run(owner);
    if (job.parent.value + 1 < run.first.value + run.count) {
      look_at(BlockId(job.parent.value + 1));
      return true;
    }
  }
  const bool stands = !job.sibling.is_none() && tree.run(job.sibling).count > 0 &&
                      tree.root(tree.run(job.sibling).first) == job.root &&
                      tree.parent_node(job.sibling) == owner;
  NodeId next = job.sibling;
  if (!stands) {
    if (!job.sibling.is_none() && ++job.restarts > kRestartsMax) return true;
    next = owner.is_none() ? tree.first_root_child(job.root) : tree.first_child(owner);
  }
  for (std::uint32_t i = 1; !next.is_none(); ++i) {
    look_at(tree.run(next).first);
    next = tree.next_sibling(next);
    if (i % kSiblingsPerWork == 0) ++work_;
    if (!budget_left()) break;
  }
  job.sibling = next;
  return next.is_none();
}

// Of the same tenant only.
bool Engine::State::ask_namespaces(WhyJob& job) {
  const PrefixTree& tree = cache().tree();
  const auto whole =
      std::span<const Token>(job.tokens).first(std::size_t{job.block_count} * block_tokens_);
  for (; job.cursor < namespaces_.size(); ++job.cursor) {
    if (!budget_left()) return false;
    ++work_;
    const RootId root(job.cursor);
    const NamespaceRecord& record = namespaces_[job.cursor];
    if (root.value >= tree.root_count() || tree.is_retired(root) ||
        tree.namespace_digest(root) != record.digest || record.digest == job.namespace_digest ||
        record.traits.tenant != job.traits.tenant) {
      continue;
    }
    const std::uint32_t differences = job.traits.difference_count(record.traits);
    if (differences == 0) continue;  // another unit of blocks
    path_.clear();
    const std::uint32_t hits = cache().match_blocks(root, whole, path_).hit_blocks;
    work_ += static_cast<std::uint32_t>(path_.size()) / kComparedPerWork;
    const bool better = hits > job.other_blocks ||
                        (hits == job.other_blocks && differences < job.other_differences);
    if (hits == 0 || !better) continue;
    job.other_blocks = hits;
    job.other_differences = differences;
    job.other_field = job.traits.first_difference(record.traits);
  }
  return true;
}

bool Engine::State::ask_sequences(WhyJob& job) {
  for (; job.cursor < sequences_.size(); ++job.cursor) {
    if (!budget_left()) return false;
    const SequenceState& sequence = sequences_[job.cursor];
    const bool runs =
        sequence.phase == SequencePhase::waiting || sequence.phase == SequencePhase::admitting ||
        sequence.phase == SequencePhase::loading || sequence.phase == SequencePhase::admitted;
    if (!runs || sequence.outdated || sequence.publish_stopped ||
        sequence.namespace_digest != job.namespace_digest) {
      continue;
    }
    const std::uint32_t tokens = agreeing(job.tokens, sequence.tokens);
    const std::uint32_t blocks = std::min(tokens, sequence.cacheable_tokens) / block_tokens_;
    work_ += 1 + blocks / kComparedPerWork;
    job.computing_to = std::max(job.computing_to, blocks);
    job.is_stop_computed |= job.hit_blocks < blocks && sequence.published_blocks <= job.hit_blocks;
  }
  return true;
}

WhyReply::Span Engine::State::span_of_fact(const MissHistory::Fact& fact) const {
  WhyReply::Span span;
  span.reason = fact.reason;
  span.cause = fact.cause;
  span.tier = fact.tier;
  span.reuses = fact.reuses;
  span.ago_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now_ - fact.when).count());
  return span;
}

// A known block without a copy stops the match; what lies behind it shares its reason.
void Engine::State::explain_stop(WhyJob& job) {
  WhyReply::Span span;
  if (job.is_tail_cached) {
    span.reason = MissReason::tail_recompute;
  } else if (job.is_stop_computed) {
    span.reason = MissReason::in_flight;
  } else if (const MissHistory::Fact* fact = history_->find(job.stop_key); fact != nullptr) {
    span = span_of_fact(*fact);
  } else {
    span.reason = job.is_stop_held ? MissReason::in_flight : MissReason::history_lost;
  }
  span.first_token = job.hit_blocks * block_tokens_;
  span.token_count = (job.known_blocks - job.hit_blocks) * block_tokens_;
  add_span(job.answer, span);
}

bool Engine::State::explain_blocks(WhyJob& job) {
  for (; job.cursor < job.block_count; ++job.cursor) {
    if (!budget_left()) return false;
    const std::size_t first = std::size_t{job.cursor} * block_tokens_;
    const auto tokens = std::span<const Token>(job.tokens).subspan(first, block_tokens_);
    job.key = next_block_key(job.key, tokens);
    work_ += 1 + block_tokens_ / 64;
    WhyReply::Span span = explain_block(job);
    span.first_token = static_cast<std::uint32_t>(first);
    span.token_count = block_tokens_;
    add_span(job.answer, span);
  }
  return true;
}

// Of the block at the cursor, whose key is job.key.
WhyReply::Span Engine::State::explain_block(const WhyJob& job) const {
  WhyReply::Span span;
  const bool is_first = job.cursor == job.known_blocks;
  if (job.cursor < job.computing_to) {
    span.reason = MissReason::in_flight;
  } else if (const MissHistory::Fact* fact = history_->find(job.key); fact != nullptr) {
    return span_of_fact(*fact);
  } else if (cache_->is_retired_key(job.key)) {
    span.reason = MissReason::evicted;
    span.cause = MissCause::cleared;
  } else if (job.cursor < job.other_blocks) {
    span.reason = MissReason::other_namespace;
    span.field = job.other_field;
  } else if (history_->is_lost(job.key)) {
    span.reason = MissReason::history_lost;
  } else if (!job.has_siblings || (job.known_blocks == 0 && job.agreeing_tokens == 0)) {
    span.reason = MissReason::never_stored;  // nothing stored begins like it
  } else if (is_first) {
    span.reason = MissReason::diverged;
    span.position = job.known_blocks * block_tokens_ + job.agreeing_tokens;
  } else {
    span.reason = MissReason::after_divergence;
  }
  return span;
}

}  // namespace kv::core
