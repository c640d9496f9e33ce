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

std::string blocks_text(std::uint64_t count) {
  return format(count == 1 ? "%llu block" : "%llu blocks", wide(count));
}

// Counters with tiers on one line a name, in the order of the service. Without `all` only those
// that counted something.
std::string counter_lines(const std::vector<client::ServiceStatus::Counter>& counters, bool all) {
  constexpr std::size_t kNameWidth = 24;
  std::size_t width = kNameWidth;
  std::size_t hidden = 0;
  for (const auto& counter : counters) {
    const bool is_shown = all || counter.value > 0;
    if (is_shown) width = std::max(width, std::min(counter.name.find('.'), counter.name.size()));
    hidden += is_shown ? 0 : 1;
  }
  std::string text;
  std::string group;
  for (const auto& counter : counters) {
    if (!all && counter.value == 0) continue;
    const auto dot = counter.name.find('.');
    const std::string name = counter.name.substr(0, dot);
    const bool goes_on = dot != std::string::npos && name == group;
    if (!goes_on) {
      text += (text.empty() ? "" : "\n") + name + std::string(width - name.size(), ' ');
    }
    group = dot == std::string::npos ? std::string() : name;
    if (dot != std::string::npos) text += " " + counter.name.substr(dot + 1);
    text += format(" %llu", wide(counter.value));
  }
  if (!text.empty()) text += "\n";
  if (hidden > 0) text += format("%zu counters are 0; --all shows them\n", hidden);
  return text;
}

std::string copies_text(const client::TreeNode& node) {
  std::string text;
  for (std::size_t i = 0; i < kTierCount; ++i) {
    if (node.copies[i] == 0) continue;
    text += format("  %s %u", std::string(tier_name(static_cast<Tier>(i))).c_str(), node.copies[i]);
  }
  return text.empty() ? "  no copies" : text;
}

bool in_same_tiers(const client::TreeNode& one, const client::TreeNode& other) {
  return std::ranges::equal(one.copies, other.copies,
                            [](auto a, auto b) { return (a == 0) == (b == 0); });
}

void add_below(client::TreeNode& run, const client::TreeNode& child) {
  run.block_count += child.block_count;
  run.pinned += child.pinned;
  run.last_key = child.last_key;
  for (std::size_t i = 0; i < kTierCount; ++i) run.copies[i] += child.copies[i];
}

std::string run_line(const client::TreeNode& run) {
  const std::string place =
      run.block_count <= 1 ? format("block %u", run.depth)
                           : format("blocks %u-%u", run.depth, run.depth + run.block_count - 1);
  return place + copies_text(run) + (run.pinned == 0 ? "" : format("  pinned %u", run.pinned)) +
         format("  key %.12s\n", hex(run.last_key).c_str());
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
  if (!status.disk_problem.empty()) text += "disk off: " + status.disk_problem + "\n";
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
  return text + counter_lines(status.counters, report.all_counters);
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
        format("%-7s %9llu tokens %7llu %s\n", std::string(tier_name(static_cast<Tier>(i))).c_str(),
               wide(tokens), wide(blocks), blocks == 1 ? "block" : "blocks");
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
    std::uint32_t i = open.back();
    open.pop_back();
    client::TreeNode run = tree.nodes[i];
    if (run.parent == kNone) {
      if (root == nullptr || *root != run.namespace_digest) {
        text += format("namespace %.12s\n", hex(run.namespace_digest).c_str());
      }
      root = &tree.nodes[i].namespace_digest;
    } else {
      level[i] = level[run.parent] + 1;
    }
    // An only child in the same tiers goes on with the line: after a recovery every block may be a
    // node of its own.
    while (first[i] != kNone && next[first[i]] == kNone &&
           in_same_tiers(run, tree.nodes[first[i]])) {
      const std::uint32_t child = first[i];
      add_below(run, tree.nodes[child]);
      level[child] = level[i];
      i = child;
    }
    text.append(2 + 2 * std::min<std::size_t>(level[i], kIndentLevelsMax), ' ');
    text += run_line(run);
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
  return format("tier %s: saved %llu, dropped %llu, kept %s\n",
                std::string(tier_name(report.tier)).c_str(), wide(report.outcome.saved_blocks),
                wide(report.outcome.dropped_blocks),
                blocks_text(report.outcome.kept_blocks).c_str());
}

std::string as_text(const FlushReport& report) {
  std::string text = "durable " + blocks_text(report.outcome.durable_blocks);
  text += format(", unsaved %llu", wide(report.outcome.unsaved_blocks));
  if (report.disk_is_off) text += "; the disk tier is off";
  if (!report.disk_problem.empty()) text += ": " + report.disk_problem;
  return text + "\n";
}

std::string as_text(const ClearReport& report) {
  std::string text = report.tier ? "tier " + std::string(tier_name(*report.tier)) : "all tiers";
  text +=
      format("%s: cleared %s, in use %llu", report.one_namespace ? " of the namespace" : "",
             blocks_text(report.outcome.cleared_blocks).c_str(), wide(report.outcome.kept_blocks));
  if (report.outcome.epoch > 0) text += format(", epoch %llu", wide(report.outcome.epoch));
  return text + "\n";
}

}  // namespace kv::cachectl
