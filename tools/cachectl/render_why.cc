// The answer to `why`: a line for each run of computed tokens, with what is known of it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tools/cachectl/render.h"

namespace kv::cachectl {
namespace {

using client::MissCause;
using client::MissReason;
using Json = nlohmann::ordered_json;
using Span = client::WhyAnswer::Span;

constexpr std::array<std::string_view, client::kMissReasonCount> kReasons{
    "never_stored",   "diverged",        "after_divergence", "below_block",
    "tail_recompute", "other_namespace", "evicted",          "dropped_before_writeback",
    "in_flight",      "load_failed",     "corrupt",          "not_cacheable",
    "history_lost"};
constexpr std::array<std::string_view, client::kMissCauseCount> kCauses{
    "none", "room", "cleared", "io_error", "orphaned", "no_room", "dropped"};
constexpr std::array<std::string_view, kNamespaceFieldCount> kFields{
    "none", "weights", "model_config", "adapter", "adapter_revision", "salt"};

template <class Names, class Value>
std::string name_of(const Names& names, Value value) {
  return std::string(names.at(static_cast<std::size_t>(value)));
}

// A copy was there, and went.
bool is_loss(const Span& span) {
  return span.reason == MissReason::evicted || span.reason == MissReason::corrupt ||
         span.reason == MissReason::dropped_before_writeback ||
         span.reason == MissReason::load_failed;
}

std::string time_text(std::uint64_t milliseconds) {
  constexpr std::array<std::pair<double, const char*>, 4> kUnits{
      {{24 * 3'600e3, "days"}, {3'600e3, "hours"}, {60e3, "minutes"}, {1e3, "seconds"}}};
  const auto time = static_cast<double>(milliseconds);
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end() - 1,
                                  [time](const auto& u) { return time >= 2 * u.first; });
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", time / unit->first, unit->second);
  return text.data();
}

std::string loss_text(const Span& span) {
  std::string text =
      "from the " + std::string(tier_name(span.tier)) + " tier, " + time_text(span.ago_ms) + " ago";
  if (span.cause == MissCause::room) text += ", for want of room";
  if (span.cause == MissCause::cleared) text += ", by a clear or a new epoch";
  if (span.cause == MissCause::io_error) text += ", it could not be read";
  if (span.cause == MissCause::orphaned) text += ", what comes before it was gone";
  if (span.reuses > 0) text += "; it had been hit " + std::to_string(span.reuses) + " times";
  return text;
}

std::string explanation(const Span& span) {
  switch (span.reason) {
    case MissReason::never_stored:
      return "nothing stored begins like it";
    case MissReason::diverged:
      return "token " + std::to_string(span.position) + " is the first that differs";
    case MissReason::after_divergence:
      return "behind the first token that differs";
    case MissReason::below_block:
      return "too few tokens for a block";
    case MissReason::tail_recompute:
      return "cached, but one token at least is computed";
    case MissReason::other_namespace:
      return "stored under another " + name_of(kFields, span.field);
    case MissReason::dropped_before_writeback:
      return loss_text(span) + ", before a lower tier had it";
    case MissReason::evicted:
    case MissReason::load_failed:
      return loss_text(span);
    case MissReason::corrupt:
      return loss_text(span) + ", its bytes had changed";
    case MissReason::in_flight:
      return "a running sequence computes it";
    case MissReason::not_cacheable:
      if (span.cause == MissCause::cleared) return "computed by a sequence from before a clear";
      if (span.cause == MissCause::dropped) return "computed after blocks before it were dropped";
      return "the index of blocks was full";
    case MissReason::history_lost:
      return "stored once; longer ago than is remembered";
  }
  return {};
}

Json span_json(const Span& span) {
  const bool lost = is_loss(span);
  const bool diverged = span.reason == MissReason::diverged;
  const bool other = span.reason == MissReason::other_namespace;
  const bool has_cause = span.cause != MissCause::none;
  return {{"first_token", span.first_token},
          {"token_count", span.token_count},
          {"reason", name_of(kReasons, span.reason)},
          {"cause", has_cause ? Json(name_of(kCauses, span.cause)) : Json(nullptr)},
          {"tier", lost ? Json(tier_name(span.tier)) : Json(nullptr)},
          {"ago_ms", lost ? Json(span.ago_ms) : Json(nullptr)},
          {"reuses", lost ? Json(span.reuses) : Json(nullptr)},
          {"field", other ? Json(name_of(kFields, span.field)) : Json(nullptr)},
          {"position", diverged ? Json(span.position) : Json(nullptr)}};
}

}  // namespace

std::string as_text(const client::WhyAnswer& answer) {
  std::string text = "prompt " + std::to_string(answer.prompt_tokens) + " tokens:";
  for (std::size_t i = 0; i < kTierCount; ++i) {
    if (answer.hit_tokens_by_tier[i] == 0) continue;
    text += " " + std::string(tier_name(static_cast<Tier>(i))) + " " +
            std::to_string(answer.hit_tokens_by_tier[i]) + ",";
  }
  text += " computed " + std::to_string(answer.computed_tokens) + "\n";
  for (const Span& span : answer.spans) {
    const std::string range = std::to_string(span.first_token) + "-" +
                              std::to_string(span.first_token + span.token_count - 1);
    std::array<char, 96> head{};
    std::snprintf(head.data(), head.size(), "%-15s %8u  %-24s  ", range.c_str(), span.token_count,
                  name_of(kReasons, span.reason).c_str());
    text += head.data() + explanation(span) + "\n";
  }
  return text + "remembered: what went in the last " + time_text(answer.history_ms) + "\n";
}

std::string as_json(const client::WhyAnswer& answer, bool indented) {
  Json hits = Json::object();
  for (std::size_t i = 0; i < kTierCount; ++i) {
    hits[std::string(tier_name(static_cast<Tier>(i)))] = answer.hit_tokens_by_tier[i];
  }
  Json spans = Json::array();
  for (const Span& span : answer.spans) spans.push_back(span_json(span));
  const Json json{{"prompt_tokens", answer.prompt_tokens},
                  {"hit_tokens", hits},
                  {"computed_tokens", answer.computed_tokens},
                  {"spans", spans},
                  {"history_ms", answer.history_ms}};
  return json.dump(indented ? 2 : -1) + "\n";
}

}  // namespace kv::cachectl
