#include "tools/cachectl/render.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace kv::cachectl {
namespace {

using client::TreeNode;
using nlohmann::json;

StatusReport example() {
  StatusReport report{.status = {}, .endpoint = "ipc:///d/service.sock", .boot = {0x1A, 0x2B}};
  report.status.block_tokens = 16;
  report.status.clients = 2;
  report.status.tiers[0] = {.slot_bytes = 1'024,
                            .slots = 100,
                            .free = 40,
                            .held = 10,
                            .cached = 50,
                            .fenced = 1,
                            .covered = 20,
                            .evictable = 30,
                            .arriving = 3};
  report.status.counters = {{"hit_tokens.device", 30},
                            {"hit_tokens.host", 10},
                            {"prompt_tokens", 160},
                            {"evicted_blocks.device", 7}};
  return report;
}

TreeNode node(std::uint32_t parent, std::uint32_t depth, std::uint32_t blocks, std::uint8_t root) {
  TreeNode made;
  made.parent = parent;
  made.depth = depth;
  made.block_count = blocks;
  made.namespace_digest.bytes[0] = static_cast<std::byte>(root);
  made.copies = {blocks, 0, 1, 0};
  return made;
}

TEST(RenderJson, GivesNumbersAsNumbersAndCountersByGroup) {
  const auto status = json::parse(as_json(example(), true));
  EXPECT_EQ(status["endpoint"], "ipc:///d/service.sock");
  EXPECT_EQ(status["boot_id"], "000000000000001a000000000000002b");
  EXPECT_EQ(status["block_tokens"], 16);
  EXPECT_DOUBLE_EQ(status["hit_ratio"].get<double>(), 0.25);
  EXPECT_EQ(status["tiers"]["device"]["bytes"], 102'400);
  EXPECT_EQ(status["tiers"]["device"]["used_bytes"], 61'440);
  EXPECT_EQ(status["tiers"]["device"]["pinned"], 20);
  EXPECT_EQ(status["tiers"]["device"]["evictable"], 30);
  EXPECT_EQ(status["tiers"]["remote"]["slots"], 0);
  EXPECT_EQ(status["counters"]["hit_tokens"]["host"], 10);
  EXPECT_EQ(status["counters"]["prompt_tokens"], 160);
  EXPECT_EQ(status["counters"]["evicted_blocks"]["device"], 7);
}

TEST(RenderJson, IsOneLineForWatching) {
  const std::string line = as_json(example(), false);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(RenderJson, HasNoRatioBeforeTheFirstPrompt) {
  EXPECT_TRUE(json::parse(as_json(StatusReport(), true))["hit_ratio"].is_null());
}

TEST(RenderJson, SurvivesNamesThatAreNoText) {
  StatusReport report;
  report.status.counters = {{"\xFF\xFE", 1}, {"a", 2}, {"a.b", 3}};
  const auto status = json::parse(as_json(report, true));
  EXPECT_EQ(status["counters"]["a"]["b"], 3);
}

TEST(RenderJson, GivesHitsByTierUnderTheNamesOfTheRunner) {
  const LookupReport report{
      .hits = {.hit_tokens = 96, .hit_tokens_by_tier = {16, 32, 48, 0}, .known_tokens = 112},
      .prompt_tokens = 120,
      .block_tokens = 16};
  const auto lookup = json::parse(as_json(report, true));
  EXPECT_EQ(lookup["prompt_tokens"], 120);
  EXPECT_EQ(lookup["hit_tokens"]["disk"], 48);
  EXPECT_EQ(lookup["hit_tokens_total"], 96);
  EXPECT_EQ(lookup["hit_blocks"], 6);
  EXPECT_EQ(lookup["known_tokens"], 112);
}

TEST(RenderJson, GivesTheTreesNodesWithTheirParents) {
  client::TreeView tree;
  tree.nodes = {node(TreeNode::kNoParent, 0, 4, 1), node(0, 4, 2, 1)};
  tree.nodes[1].last_key.bytes[31] = std::byte{0xAB};
  const auto json_tree = json::parse(as_json(tree, true));
  EXPECT_TRUE(json_tree["nodes"][0]["parent"].is_null());
  EXPECT_EQ(json_tree["nodes"][1]["parent"], 0);
  EXPECT_EQ(json_tree["nodes"][1]["depth"], 4);
  EXPECT_EQ(json_tree["nodes"][1]["copies"]["device"], 2);
  EXPECT_EQ(json_tree["nodes"][1]["last_key"], std::string(62, '0') + "ab");
  EXPECT_FALSE(json_tree["truncated"].get<bool>());
}

TEST(RenderJson, GivesTheOutcomesOfDemoteAndFlush) {
  const auto demote = json::parse(as_json(DemoteReport{Tier::host, {1, 2, 3}}, true));
  EXPECT_EQ(
      demote,
      json({{"tier", "host"}, {"saved_blocks", 1}, {"dropped_blocks", 2}, {"kept_blocks", 3}}));
  const auto flush = json::parse(as_json(FlushReport{.outcome = {8, 9}, .disk_problem = {}}, true));
  EXPECT_EQ(flush, json({{"durable_blocks", 8},
                         {"unsaved_blocks", 9},
                         {"disk_is_off", false},
                         {"disk_problem", nullptr}}));
}

TEST(RenderText, ShowsTiersAndRatioWithoutControlCodes) {
  const std::string text = as_text(example());
  EXPECT_NE(text.find("60.0 KiB / 100.0 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find("hit ratio  25.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("host    off"), std::string::npos) << text;
  EXPECT_NE(text.find("hit_tokens               device 30 host 10\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(as_text(StatusReport()).find("no runner attached a pool yet"), std::string::npos);
}

TEST(RenderText, IndentsTheTreeByItsTopologyWhateverTheOrderOfTheNodes) {
  client::TreeView tree;
  // Breadth first: two namespaces, then the children of the first.
  tree.nodes = {node(TreeNode::kNoParent, 0, 4, 1), node(TreeNode::kNoParent, 0, 1, 2),
                node(0, 4, 2, 1), node(0, 4, 1, 1), node(2, 6, 1, 1)};
  tree.nodes[2].pinned = 1;
  tree.truncated = true;
  const std::string zero = "  key 000000000000\n";
  EXPECT_EQ(as_text(tree),
            "namespace 010000000000\n"
            "  blocks 0-3  device 4  disk 1" +
                zero + "    blocks 4-6  device 3  disk 2  pinned 1" + zero +
                "    block 4  device 1  disk 1" + zero +
                "namespace 020000000000\n"
                "  block 0  device 1  disk 1" +
                zero + "... more nodes exist; raise --limit\n");
  EXPECT_EQ(as_text(client::TreeView()), "nothing is cached\n");
}

TEST(RenderText, ShowsAChainOfNodesInTheSameTiersAsOneRun) {
  client::TreeView tree;
  for (std::uint32_t i = 0; i < 5; ++i) {
    tree.nodes.push_back(node(i == 0 ? TreeNode::kNoParent : i - 1, i, 1, 1));
  }
  tree.nodes[4].last_key.bytes[0] = std::byte{0xAB};
  EXPECT_EQ(as_text(tree),
            "namespace 010000000000\n"
            "  blocks 0-4  device 5  disk 5  key ab0000000000\n");
  // What lies in other tiers stays a line of its own.
  tree.nodes[2].copies = {0, 0, 1, 0};
  EXPECT_EQ(as_text(tree),
            "namespace 010000000000\n"
            "  blocks 0-1  device 2  disk 2  key 000000000000\n"
            "    block 2  disk 1  key 000000000000\n"
            "      blocks 3-4  device 2  disk 2  key ab0000000000\n");
}

TEST(RenderText, HidesCountersThatAre0UnlessAllAreAskedFor) {
  StatusReport report = example();
  report.status.counters = {{"hit_tokens.device", 30},
                            {"hit_tokens.host", 0},
                            {"hit_tokens.disk", 5},
                            {"prompt_tokens", 160},
                            {"busy", 0},
                            {"evicted_blocks.host", 0}};
  const auto counters = [&report] {
    const std::string text = as_text(report);
    return text.substr(text.find("\n\n") + 2);
  };
  EXPECT_EQ(counters(),
            "hit_tokens               device 30 disk 5\n"
            "prompt_tokens            160\n"
            "3 counters are 0; --all shows them\n");
  report.all_counters = true;
  EXPECT_EQ(counters(),
            "hit_tokens               device 30 host 0 disk 5\n"
            "prompt_tokens            160\n"
            "busy                     0\n"
            "evicted_blocks           host 0\n");
}

TEST(RenderText, KeepsCountersInTheirColumnBesideALongName) {
  StatusReport report = example();
  report.status.counters = {
      {"a_counter_with_quite_a_long_name", 1}, {"short", 2}, {"tier.host", 3}};
  const std::string text = as_text(report);
  EXPECT_TRUE(
      text.ends_with("\n\n"
                     "a_counter_with_quite_a_long_name 1\n"
                     "short                            2\n"
                     "tier                             host 3\n"))
      << text;
}

TEST(RenderText, SaysOneBlock) {
  EXPECT_EQ(as_text(FlushReport{.outcome = {1, 0}, .disk_problem = {}}),
            "durable 1 block, unsaved 0\n");
  EXPECT_EQ(as_text(FlushReport{.outcome = {2, 1}, .disk_problem = {}}),
            "durable 2 blocks, unsaved 1\n");
  EXPECT_EQ(as_text(DemoteReport{Tier::host, {1, 1, 1}}),
            "tier host: saved 1, dropped 1, kept 1 block\n");
  EXPECT_EQ(as_text(ClearReport{.tier = {}, .one_namespace = false, .outcome = {1, 0, 0}}),
            "all tiers: cleared 1 block, in use 0\n");
}

TEST(RenderText, DoesNotAskForALimitAboveTheLargest) {
  client::TreeView tree;
  tree.nodes.assign(1'000, node(TreeNode::kNoParent, 0, 1, 1));
  tree.truncated = true;
  EXPECT_TRUE(as_text(tree).ends_with("... more nodes exist than one answer can show\n"));
}

TEST(RenderText, AlignsTheTiersWhateverTheUnitsOfTheirSizes) {
  StatusReport report = example();
  report.status.tiers[0].slot_bytes = 1;                               // 60 B / 100 B
  report.status.tiers[1] = {.slot_bytes = 1'048'575, .slots = 1'023};  // 0 B / 1023.0 MiB
  report.status.tiers[1].free = 0;
  report.status.tiers[2] = {.slot_bytes = std::uint64_t{1} << 30U, .slots = 1'024, .free = 1'024};
  const std::string text = as_text(report);
  std::vector<std::size_t> slashes, slots;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto slash = line.find(" / ");
    if (slash == std::string::npos) continue;
    slashes.push_back(slash);
    slots.push_back(line.size());
  }
  EXPECT_EQ(slashes, std::vector<std::size_t>(4, slashes[0])) << text;
  EXPECT_EQ(slots, std::vector<std::size_t>(4, slots[0])) << text;
  EXPECT_NE(text.find("1023.0 MiB / 1023.0 MiB"), std::string::npos) << text;
}

TEST(RenderText, ShowsHitsByTier) {
  const LookupReport report{
      .hits = {.hit_tokens = 96, .hit_tokens_by_tier = {16, 32, 48, 0}, .known_tokens = 112},
      .prompt_tokens = 120,
      .block_tokens = 16};
  EXPECT_EQ(as_text(report),
            "prompt 120 tokens, hit 96 (80.0 %), known 112\n"
            "device         16 tokens       1 block\n"
            "host           32 tokens       2 blocks\n"
            "disk           48 tokens       3 blocks\n"
            "remote          0 tokens       0 blocks\n");
}

TEST(RenderText, WritesBytesInTheLargestUnitThatFits) {
  EXPECT_EQ(bytes_as_text(0), "0 B");
  EXPECT_EQ(bytes_as_text(1'023), "1023 B");
  EXPECT_EQ(bytes_as_text(1'536), "1.5 KiB");
  EXPECT_EQ(bytes_as_text(std::uint64_t{64} << 20U), "64.0 MiB");
  EXPECT_EQ(bytes_as_text(std::uint64_t{3} << 50U), "3.0 PiB");
  EXPECT_EQ(bytes_as_text((std::uint64_t{1} << 30U) - 1), "1.0 GiB") << "not 1024.0 MiB";
  EXPECT_EQ(bytes_as_text((std::uint64_t{1} << 20U) - 1), "1.0 MiB");
  EXPECT_EQ(bytes_as_text((std::uint64_t{1023} << 20U)), "1023.0 MiB");
}

client::WhyAnswer why_example() {
  using client::MissCause;
  using client::MissReason;
  client::WhyAnswer answer;
  answer.prompt_tokens = 150;
  answer.hit_tokens_by_tier = {64, 0, 16, 0};
  answer.computed_tokens = 70;
  answer.history_ms = 7'200'000;
  answer.spans = {
      {.first_token = 80,
       .token_count = 16,
       .reason = MissReason::evicted,
       .cause = MissCause::room,
       .tier = Tier::disk,
       .reuses = 3,
       .ago_ms = 90'000},
      {.first_token = 96,
       .token_count = 16,
       .reason = MissReason::other_namespace,
       .field = NamespaceField::salt},
      {.first_token = 112, .token_count = 16, .reason = MissReason::diverged, .position = 119},
      {.first_token = 128, .token_count = 16, .reason = MissReason::after_divergence},
      {.first_token = 144, .token_count = 6, .reason = MissReason::below_block}};
  return answer;
}

TEST(RenderWhy, GivesALineForEachReason) {
  EXPECT_EQ(as_text(why_example()),
            "prompt 150 tokens: device 64, disk 16, computed 70\n"
            "80-95                 16  evicted                   from the disk tier, 90.0 seconds "
            "ago, for want of room; it had been hit 3 times\n"
            "96-111                16  other_namespace           stored under another salt\n"
            "112-127               16  diverged                  token 119 is the first that "
            "differs\n"
            "128-143               16  after_divergence          behind the first token that "
            "differs\n"
            "144-149                6  below_block               too few tokens for a block\n"
            "remembered: what went in the last 2.0 hours\n");
}

TEST(RenderWhy, GivesFactsInJsonOnlyWhereTheyMeanSomething) {
  const auto why = json::parse(as_json(why_example(), true));
  EXPECT_EQ(why["prompt_tokens"], 150);
  EXPECT_EQ(why["hit_tokens"]["disk"], 16);
  EXPECT_EQ(why["computed_tokens"], 70);
  EXPECT_EQ(why["history_ms"], 7'200'000);
  ASSERT_EQ(why["spans"].size(), 5U);
  EXPECT_EQ(why["spans"][0], json({{"first_token", 80},
                                   {"token_count", 16},
                                   {"reason", "evicted"},
                                   {"cause", "room"},
                                   {"tier", "disk"},
                                   {"ago_ms", 90'000},
                                   {"reuses", 3},
                                   {"field", nullptr},
                                   {"position", nullptr}}));
  EXPECT_EQ(why["spans"][1]["field"], "salt");
  EXPECT_TRUE(why["spans"][1]["tier"].is_null());
  EXPECT_EQ(why["spans"][2]["position"], 119);
}

TEST(RenderWhy, HasAWordForEveryReasonCauseAndField) {
  client::WhyAnswer answer;
  for (std::uint8_t i = 0; i < client::kMissReasonCount; ++i) {
    answer.spans.push_back({.first_token = i,
                            .token_count = 1,
                            .reason = static_cast<client::MissReason>(i),
                            .cause = static_cast<client::MissCause>(i % client::kMissCauseCount),
                            .field = static_cast<NamespaceField>(i % kNamespaceFieldCount)});
  }
  std::set<std::string> reasons;
  const auto why = json::parse(as_json(answer, false));
  for (const auto& span : why["spans"]) {
    reasons.insert(span["reason"].get<std::string>());
  }
  EXPECT_EQ(reasons.size(), std::size_t{client::kMissReasonCount});
  const std::string text = as_text(answer);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), client::kMissReasonCount + 2);
}

}  // namespace
}  // namespace kv::cachectl
