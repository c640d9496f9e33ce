// A client asks why, and holds the reasons against what the world knows: which blocks were ever
// published or cached, under keys that are derived here.
#include <algorithm>
#include <string>

#include "allocator/block_key.h"
#include "tools/world/virtual_client.h"

namespace kv::world {

std::vector<Digest> VirtualClient::keys_of(const std::string& weights,
                                           std::span<const Token> tokens) const {
  std::vector<Digest> keys;
  Digest key = namespace_digest(fields_of(weights));
  for (std::size_t i = 0; i + block_tokens() <= tokens.size(); i += block_tokens()) {
    keys.push_back(key = next_block_key(key, tokens.subspan(i, block_tokens())));
  }
  return keys;
}

void VirtualClient::why(const std::string& weights, std::span<const Token> tokens) {
  const NamespaceFields fields = fields_of(weights);
  Pending pending;
  pending.kind = Kind::why;
  pending.tokens.assign(tokens.begin(), tokens.end());
  pending.weights = weights;
  pending.hit_expected =
      expected_hit(world_->tiers().epochs().start(namespace_digest(fields)), tokens);
  core::Why request;
  request.fields = &fields;
  request.tokens = tokens;
  const bool may = role_ != core::ClientRole::runner;
  send(request, may ? Expect::success : Expect::refusal, std::move(pending));
}

void VirtualClient::on_why(const Pending& pending, const core::WhyReply& reply) {
  std::uint64_t next = 0;
  for (const std::uint64_t tokens : reply.hit_tokens) next += tokens;
  if (next != pending.hit_expected && pending.sent_at == world_->steps()) {
    problem("11: " + pending.name + ": why told " + std::to_string(next) +
            " tokens hit, resident are " + std::to_string(pending.hit_expected));
  }
  if (reply.prompt_tokens != pending.tokens.size() ||
      next + reply.computed_tokens != reply.prompt_tokens) {
    problem("24: " + pending.name + ": hits and computed tokens do not make the prompt");
  }
  const std::vector<Digest> keys = keys_of(pending.weights, pending.tokens);
  const std::size_t whole = keys.size() * block_tokens();
  for (const core::WhyReply::Span& span : reply.spans) {
    if (span.first_token != next || span.token_count == 0) {
      problem("24: " + pending.name + ": a token has no reason, or two");
      return;
    }
    next += span.token_count;
    if (world_->engine().cache() == nullptr) continue;  // nobody knows how long a block is
    const bool is_rest = span.first_token >= whole;
    if (is_rest != (span.reason == core::MissReason::below_block) || (!is_rest && next > whole)) {
      problem("24: " + pending.name + ": the rest of a block is not told from blocks");
      return;
    }
    for (std::uint64_t token = span.first_token; !is_rest && token < next;
         token += block_tokens()) {
      check_reason(pending, span, keys[token / block_tokens()], token);
    }
  }
  if (next != reply.prompt_tokens) {
    problem("24: " + pending.name + ": the last tokens have no reason");
  }
}

void VirtualClient::check_reason(const Pending& pending, const core::WhyReply::Span& span,
                                 const Digest& key, std::uint64_t token) {
  using core::MissReason;
  const bool was_cached = world_->cached_keys().contains(key);
  const bool was_published = world_->published_keys().contains(key);
  bool holds = true;
  switch (span.reason) {
    case MissReason::never_stored:
    case MissReason::after_divergence:
      holds = !was_cached;
      break;
    case MissReason::diverged:
      holds = !was_cached && span.position >= token && span.position < token + block_tokens() &&
              span.token_count == block_tokens();
      break;
    case MissReason::tail_recompute:
      holds = token + block_tokens() == pending.tokens.size() && was_cached;
      break;
    case MissReason::evicted:
    case MissReason::dropped_before_writeback:
      holds = was_published && span.cause != core::MissCause::none;
      break;
    case MissReason::load_failed:
    case MissReason::corrupt:
    case MissReason::not_cacheable:
    case MissReason::history_lost:
      holds = was_published;
      break;
    case MissReason::other_namespace:
      holds = span.field == NamespaceField::weights;
      break;
    case MissReason::in_flight:
      break;
    case MissReason::below_block:
      holds = false;  // of a whole block
      break;
  }
  world_->count_reason(span.reason);
  if (!holds) {
    problem("24: " + pending.name + ": reason " + std::to_string(static_cast<int>(span.reason)) +
            " is not that of token " + std::to_string(token));
  }
}

}  // namespace kv::world
