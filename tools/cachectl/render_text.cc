#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/cachectl/command_line.h"
#include "tools/cachectl/render.h"

namespace kv::cachectl {
namespace {

constexpr std::size_t kIndentLevelsMax = 30;

template <class... Parts>
std::string format(const char* pattern, Parts... parts) {
  std::array<char, 512> line{};
  const int written = std::snprintf(line.data(), line.size(), pattern, parts...);
  const auto bytes = static_cast<std::size_t>(std::max(written, 0));
  return {line.data(), std::min(bytes, line.size() - 1)};
}

unsigned long long wide(std::uint64_t value) { return value; }

std::string hex_of(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::string tier_line(Tier tier, const client::TierStatus& status) {
  const std::string name(tier_name(tier));
  if (status.slots == 0) return format("%-7s off\n", name.c_str());
  const std::uint64_t used = status.slots - std::min(status.free, status.slots);
  return format("%-7s %10s / %-10s %9u %9u %9u %9u %9u %9u %7u\n", name.c_str(),
                bytes_as_text(used * status.slot_bytes).c_str(),
                bytes_as_text(std::uint64_t{status.slots} * status.slot_bytes).c_str(),
                status.slots, status.free, status.cached, status.covered, status.evictable,
                status.held, status.fenced);
}

// Counters with tiers on one line a name, in the order of the service.
std::string counter_lines(const std::vector<client::ServiceStatus::Counter>& counters) {
  std::string text;
  std::string_view group;
  for (const auto& counter : counters) {
    const auto dot = counter.name.find('.');
    const std::string_view name(counter.name);
    if (dot == std::string::npos) {
      text += format("%s%-24s %llu", text.empty() ? "" : "\n", counter.name.c_str(),
                     wide(counter.value));
      group = {};
      continue;
    }
    if (name.substr(0, dot) != group) {
      group = name.substr(0, dot);
      text += format("%s%-24.*s", text.empty() ? "" : "\n", static_cast<int>(group.size()),
                     group.data());
    }
    text += format(" %s %llu", counter.name.c_str() + dot + 1, wide(counter.value));
  }
  return text.empty() ? text : text + "\n";
}

std::string copies_text(const client::TreeNode& node) {
  std::string text;
  for (std::size_t i = 0; i < kTierCount; ++i) {
    if (node.copies[i] == 0) continue;
    text += format("  %s %u", std::string(tier_name(static_cast<Tier>(i))).c_str(), node.copies[i]);
  }
  return text.empty() ? "  no copies" : text;
}

}  // namespace

std::string bytes_as_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1'024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1'024;
  std::size_t unit = 0;
  // What would be written as 1024.0 is 1.0 of the next unit.
  for (; value >= 1'023.95 && unit + 1 < kUnits.size(); ++unit) value /= 1'024;
  return format("%.1f %s", value, kUnits[unit]);
}

double hit_ratio(const client::ServiceStatus& status) {
  std::uint64_t hits = 0;
  std::uint64_t prompt = 0;
  for (const auto& counter : status.counters) {
    if (counter.name.starts_with("hit_tokens.")) hits += counter.value;
    if (counter.name == "prompt_tokens") prompt = counter.value;
  }
  return prompt == 0 ? -1.0 : static_cast<double>(hits) / static_cast<double>(prompt);
}

std::string hex(const Digest& digest) { return hex_of(digest.bytes); }

std::string hex(const client::Id128& id) {
  return format("%016llx%016llx", wide(id.a), wide(id.b));
}

std::string as_text(const StatusReport& report) {
  const auto& status = report.status;
  std::string text = format("service  %s  boot %.8s%s\n", report.endpoint.c_str(),
                            hex(report.boot).c_str(), status.recovering ? "  RECOVERING" : "");
  if (status.block_tokens == 0) {
    text += "no runner attached a pool yet: tiers have no slots\n";
  } else {
    text += format("%-7s %10s / %-10s %9s %9s %9s %9s %9s %9s %7s\n", "tier", "used", "capacity",
                   "slots", "free", "cached", "pinned", "evictable", "held", "fenced");
    for (std::size_t i = 0; i < kTierCount; ++i) {
      text += tier_line(static_cast<Tier>(i), status.tiers[i]);
    }
  }
  const double ratio = hit_ratio(status);
  text += ratio < 0 ? std::string("hit ratio  none yet\n")
                    : format("hit ratio  %.1f %%\n", ratio * 100);
  text += format("clients %u  sequences %u  transfers %u  namespaces %u\n", status.clients,
                 status.sequences, status.transfers_in_flight, status.namespaces);
  text += format("tree blocks %u  nodes %u  holes %u  block tokens %u  metadata %s\n",
                 status.tree_blocks, status.tree_nodes, status.holes, status.block_tokens,
                 bytes_as_text(status.metadata_bytes).c_str());
  if (status.retired_blocks > 0) {
    text += format("of them %u were cleared and are still in use\n", status.retired_blocks);
  }
  text += "\n";
  return text + counter_lines(status.counters);
}

std::string as_text(const LookupReport& report) {
  std::string text = format("prompt %llu tokens, hit %llu", wide(report.prompt_tokens),
                            wide(report.hits.hit_tokens));
  if (report.prompt_tokens > 0) {
    text += format(" (%.1f %%)", 100.0 * static_cast<double>(report.hits.hit_tokens) /
                                     static_cast<double>(report.prompt_tokens));
  }
  text += format(", known %llu\n", wide(report.hits.known_tokens));
  for (std::size_t i = 0; i < kTierCount; ++i) {
    const std::uint64_t tokens = report.hits.hit_tokens_by_tier[i];
    const std::uint64_t blocks = report.block_tokens == 0 ? 0 : tokens / report.block_tokens;
    text +=
        format("%-7s %9llu tokens %7llu blocks\n",
               std::string(tier_name(static_cast<Tier>(i))).c_str(), wide(tokens), wide(blocks));
  }
  return text;
}

std::string as_text(const client::TreeView& tree) {
  constexpr std::uint32_t kNone = client::TreeNode::kNoParent;
  const auto count = static_cast<std::uint32_t>(tree.nodes.size());
  // Children in order, by linked lists; depth first with a list of our own, since trees are deep.
  std::vector<std::uint32_t> first(count, kNone);
  std::vector<std::uint32_t> next(count, kNone);
  std::vector<std::uint32_t> level(count, 0);
  std::vector<std::uint32_t> open;
  for (std::uint32_t i = count; i-- > 0;) {
    const std::uint32_t parent = tree.nodes[i].parent;
    if (parent == kNone) {
      open.push_back(i);
    } else {
      next[i] = std::exchange(first[parent], i);
    }
  }
  std::string text;
  const Digest* root = nullptr;
  while (!open.empty()) {
    const std::uint32_t i = open.back();
    open.pop_back();
    const client::TreeNode& node = tree.nodes[i];
    if (node.parent == kNone) {
      if (root == nullptr || *root != node.namespace_digest) {
        text += format("namespace %.12s\n", hex(node.namespace_digest).c_str());
      }
      root = &node.namespace_digest;
    } else {
      level[i] = level[node.parent] + 1;
    }
    text.append(2 + 2 * std::min<std::size_t>(level[i], kIndentLevelsMax), ' ');
    text += format("blocks %u-%u%s%s  key %.12s\n", node.depth,
                   node.depth + std::max(node.block_count, 1U) - 1, copies_text(node).c_str(),
                   node.pinned == 0 ? "" : format("  pinned %u", node.pinned).c_str(),
                   hex(node.last_key).c_str());
    std::vector<std::uint32_t> children;
    for (std::uint32_t child = first[i]; child != kNone; child = next[child]) {
      children.push_back(child);
    }
    open.insert(open.end(), children.rbegin(), children.rend());
  }
  if (count == 0) text += "nothing is cached\n";
  if (tree.truncated) {
    text += count < kTreeNodesMax ? "... more nodes exist; raise --limit\n"
                                  : "... more nodes exist than one answer can show\n";
  }
  return text;
}

std::string as_text(const DemoteReport& report) {
  return format("tier %s: saved %llu, dropped %llu, kept %llu blocks\n",
                std::string(tier_name(report.tier)).c_str(), wide(report.outcome.saved_blocks),
                wide(report.outcome.dropped_blocks), wide(report.outcome.kept_blocks));
}

std::string as_text(const client::FlushOutcome& outcome) {
  return format("durable %llu blocks, unsaved %llu\n", wide(outcome.durable_blocks),
                wide(outcome.unsaved_blocks));
}

std::string as_text(const ClearReport& report) {
  std::string text = report.tier ? "tier " + std::string(tier_name(*report.tier)) : "all tiers";
  text += format("%s: cleared %llu blocks, in use %llu",
                 report.one_namespace ? " of the namespace" : "",
                 wide(report.outcome.cleared_blocks), wide(report.outcome.kept_blocks));
  if (report.outcome.epoch > 0) text += format(", epoch %llu", wide(report.outcome.epoch));
  return text + "\n";
}

}  // namespace kv::cachectl
