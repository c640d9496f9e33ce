#include <algorithm>

#include <nlohmann/json.hpp>

#include "tools/cachectl/render.h"

namespace kv::cachectl {
namespace {

using Json = nlohmann::ordered_json;

std::string finish(const Json& json, bool indented) {
  // Names come from the wire: bytes that are no UTF-8 are replaced, not thrown at the user.
  return json.dump(indented ? 2 : -1, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <class T>
Json by_tier(const std::array<T, kTierCount>& values) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kTierCount; ++i) {
    json[std::string(tier_name(static_cast<Tier>(i)))] = values[i];
  }
  return json;
}

Json tier_json(const client::TierStatus& tier) {
  return {{"bytes", tier.slot_bytes * tier.slots},
          {"used_bytes", tier.slot_bytes * (tier.slots - std::min(tier.free, tier.slots))},
          {"slot_bytes", tier.slot_bytes},
          {"slots", tier.slots},
          {"free", tier.free},
          {"held", tier.held},
          {"cached", tier.cached},
          {"pinned", tier.covered},
          {"evictable", tier.evictable},
          {"fenced", tier.fenced},
          {"arriving", tier.arriving}};
}

// "hit_tokens.device" becomes a member of "hit_tokens".
Json counters_json(const std::vector<client::ServiceStatus::Counter>& counters) {
  Json json = Json::object();
  for (const auto& counter : counters) {
    const auto dot = counter.name.find('.');
    if (dot == std::string::npos) {
      json[counter.name] = counter.value;
      continue;
    }
    Json& group = json[counter.name.substr(0, dot)];
    if (!group.is_object()) group = Json::object();
    group[counter.name.substr(dot + 1)] = counter.value;
  }
  return json;
}

// By namespace, as `tree` names them.
Json problem_json(const std::string& problem) {
  return problem.empty() ? Json(nullptr) : Json(problem);
}

Json epochs_json(const std::vector<client::ServiceStatus::NamespaceEpoch>& epochs) {
  Json json = Json::object();
  for (const auto& of : epochs) json[hex(of.namespace_digest)] = of.epoch;
  return json;
}

}  // namespace

std::string as_json(const StatusReport& report, bool indented) {
  const auto& status = report.status;
  Json tiers = Json::object();
  for (std::size_t i = 0; i < kTierCount; ++i) {
    tiers[std::string(tier_name(static_cast<Tier>(i)))] = tier_json(status.tiers[i]);
  }
  const double ratio = hit_ratio(status);
  Json json{{"endpoint", report.endpoint},
            {"boot_id", hex(report.boot)},
            {"block_tokens", status.block_tokens},
            {"recovering", status.recovering},
            {"hit_ratio", ratio < 0 ? Json(nullptr) : Json(ratio)},
            {"tiers", tiers},
            {"clients", status.clients},
            {"sequences", status.sequences},
            {"transfers_in_flight", status.transfers_in_flight},
            {"namespaces", status.namespaces},
            {"tree_blocks", status.tree_blocks},
            {"tree_nodes", status.tree_nodes},
            {"holes", status.holes},
            {"retired_blocks", status.retired_blocks},
            {"epochs", epochs_json(status.epochs)},
            {"metadata_bytes", status.metadata_bytes},
            {"disk_problem", problem_json(status.disk_problem)},
            {"counters", counters_json(status.counters)}};
  return finish(json, indented);
}

std::string as_json(const LookupReport& report, bool indented) {
  const std::uint64_t block_tokens = report.block_tokens;
  return finish({{"prompt_tokens", report.prompt_tokens},
                 {"hit_tokens", by_tier(report.hits.hit_tokens_by_tier)},
                 {"hit_tokens_total", report.hits.hit_tokens},
                 {"hit_blocks", block_tokens == 0 ? 0 : report.hits.hit_tokens / block_tokens},
                 {"known_tokens", report.hits.known_tokens},
                 {"block_tokens", block_tokens}},
                indented);
}

std::string as_json(const client::TreeView& tree, bool indented) {
  Json nodes = Json::array();
  for (const auto& node : tree.nodes) {
    const bool is_root = node.parent == client::TreeNode::kNoParent;
    nodes.push_back({{"index", nodes.size()},
                     {"parent", is_root ? Json(nullptr) : Json(node.parent)},
                     {"namespace", hex(node.namespace_digest)},
                     {"depth", node.depth},
                     {"block_count", node.block_count},
                     {"copies", by_tier(node.copies)},
                     {"pinned", node.pinned},
                     {"last_key", hex(node.last_key)}});
  }
  return finish({{"nodes", nodes}, {"truncated", tree.truncated}}, indented);
}

std::string as_json(const DemoteReport& report, bool indented) {
  return finish({{"tier", tier_name(report.tier)},
                 {"saved_blocks", report.outcome.saved_blocks},
                 {"dropped_blocks", report.outcome.dropped_blocks},
                 {"kept_blocks", report.outcome.kept_blocks}},
                indented);
}

std::string as_json(const FlushReport& report, bool indented) {
  return finish({{"durable_blocks", report.outcome.durable_blocks},
                 {"unsaved_blocks", report.outcome.unsaved_blocks},
                 {"disk_is_off", report.disk_is_off},
                 {"disk_problem", problem_json(report.disk_problem)}},
                indented);
}

std::string as_json(const ClearReport& report, bool indented) {
  const std::uint64_t epoch = report.outcome.epoch;
  return finish({{"tier", report.tier ? Json(tier_name(*report.tier)) : Json(nullptr)},
                 {"cleared_blocks", report.outcome.cleared_blocks},
                 {"in_use_blocks", report.outcome.kept_blocks},
                 {"epoch", epoch == 0 ? Json(nullptr) : Json(epoch)}},
                indented);
}

}  // namespace kv::cachectl
