// cachectl against the real service: its JSON has the numbers that follow from what a runner did.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/end_to_end/service_fixture.h"

namespace kv::test {
namespace {

using nlohmann::json;

class CachectlFlow : public ServiceTest {
 protected:
  [[nodiscard]] json cachectl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {built("cachectl"), "--dir", dir_.path(), "--json"});
    const auto result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return json::parse(result.out, nullptr, false);
  }
  static std::vector<std::string> lookup_of(const std::vector<Token>& tokens) {
    std::string list;
    for (const Token token : tokens) list += (list.empty() ? "" : ",") + std::to_string(token);
    return {"lookup",
            "--namespace-weights",
            "test-weights",
            "--namespace-config",
            "test-config",
            "--tokens",
            list};
  }
};

TEST_F(CachectlFlow, ShowsAnEmptyServiceAndOneThatServed) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto empty = cachectl({"status"});
  EXPECT_EQ(empty["block_tokens"], 0);
  EXPECT_TRUE(empty["hit_ratio"].is_null());
  EXPECT_TRUE(cachectl({"tree"})["nodes"].empty());

  TestRunner runner(connect());
  const auto prompt = prompt_of(41, 100);
  (void)runner.run(SequenceId(1), prompt);
  (void)runner.run(SequenceId(2), prompt);
  const auto status = cachectl({"status"});
  EXPECT_EQ(status["block_tokens"], 16);
  EXPECT_EQ(status["tiers"]["device"]["bytes"], 1'048'576);
  EXPECT_EQ(status["tiers"]["device"]["slots"], 512);
  EXPECT_EQ(status["tiers"]["device"]["slot_bytes"], 2'048);
  EXPECT_EQ(status["tiers"]["device"]["cached"], 6);
  EXPECT_EQ(status["tiers"]["device"]["used_bytes"], 6 * 2'048);
  EXPECT_EQ(status["clients"], 2) << "the runner and cachectl itself";
  EXPECT_EQ(status["sequences"], 0);
  EXPECT_EQ(status["tree_blocks"], 6);
  EXPECT_EQ(status["counters"]["prompt_tokens"], 200);
  EXPECT_EQ(status["counters"]["hit_tokens"]["device"], 96);
  EXPECT_EQ(status["counters"]["computed_tokens"], 104);
  EXPECT_EQ(status["counters"]["malformed_frames"], 0);
  EXPECT_EQ(status["counters"]["refused_attaches"], 0);
  EXPECT_GE(status["counters"]["attached_clients"], 2);
  EXPECT_DOUBLE_EQ(status["hit_ratio"].get<double>(), 0.48);
}

TEST_F(CachectlFlow, FollowsAPrefixThroughTheTiers) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto prompt = prompt_of(42, 100);
  (void)runner.run(SequenceId(1), prompt);
  auto lookup = cachectl(lookup_of(prompt));
  EXPECT_EQ(lookup["prompt_tokens"], 100);
  EXPECT_EQ(lookup["hit_tokens"], json({{"device", 96}, {"host", 0}, {"disk", 0}, {"remote", 0}}));
  EXPECT_EQ(lookup["hit_blocks"], 6);

  EXPECT_EQ(cachectl({"demote", "--tier", "device"})["dropped_blocks"], 6);
  lookup = cachectl(lookup_of(prompt));
  EXPECT_EQ(lookup["hit_tokens"]["host"], 96);
  const json flushed = cachectl({"flush"});
  EXPECT_EQ(flushed["durable_blocks"], 6);
  EXPECT_EQ(flushed["unsaved_blocks"], 0);
  EXPECT_EQ(flushed["disk_is_off"], false);
  EXPECT_EQ(cachectl({"demote", "--tier", "host"})["dropped_blocks"], 6);
  lookup = cachectl(lookup_of(prompt));
  EXPECT_EQ(lookup["hit_tokens"]["disk"], 96);

  // Of 100 tokens the last four fill no block.
  auto why = lookup_of(prompt);
  why[0] = "why";
  auto explained = cachectl(why);
  EXPECT_EQ(explained["hit_tokens"]["disk"], 96);
  EXPECT_EQ(explained["computed_tokens"], 4);
  ASSERT_EQ(explained["spans"].size(), 1U);
  EXPECT_EQ(explained["spans"][0]["reason"], "below_block");
  why[2] = "other-weights";
  explained = cachectl(why);
  ASSERT_EQ(explained["spans"].size(), 2U);
  EXPECT_EQ(explained["spans"][0]["reason"], "other_namespace");
  EXPECT_EQ(explained["spans"][0]["field"], "weights");
  EXPECT_EQ(explained["spans"][0]["token_count"], 96);

  // Another namespace, and a prompt that diverges in its third block.
  auto other = lookup_of(prompt);
  other[2] = "other-weights";
  EXPECT_EQ(cachectl(other)["hit_tokens_total"], 0);
  auto diverging = prompt;
  diverging[40] += 1;
  EXPECT_EQ(cachectl(lookup_of(diverging))["hit_tokens_total"], 32);
  why = lookup_of(diverging);
  why[0] = "why";
  explained = cachectl(why);
  EXPECT_EQ(explained["spans"][0]["reason"], "diverged");
  EXPECT_EQ(explained["spans"][0]["position"], 40);

  EXPECT_EQ(cachectl({"clear", "--yes"})["cleared_blocks"], 6);
  why = lookup_of(prompt);
  why[0] = "why";
  explained = cachectl(why);
  EXPECT_EQ(explained["spans"][0]["reason"], "evicted");
  EXPECT_EQ(explained["spans"][0]["cause"], "cleared");
}

// Killed right after the answer, and started again on the same directory.
TEST_F(CachectlFlow, WhatWasClearedIsNotThereAfterAKillAndARestartEither) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto prompt = prompt_of(44, 100);
  const auto kept = prompt_of(45, 100);
  {
    TestRunner runner(connect());
    (void)runner.run(SequenceId(1), prompt);
    EXPECT_EQ(cachectl({"flush"})["durable_blocks"], 6);
    const auto cleared = cachectl({"clear", "--yes"});
    EXPECT_EQ(cleared["cleared_blocks"], 6);
    EXPECT_EQ(cleared["in_use_blocks"], 0);
    EXPECT_EQ(cachectl(lookup_of(prompt))["hit_tokens_total"], 0);
    (void)runner.run(SequenceId(2), kept);
    EXPECT_EQ(cachectl({"flush"})["durable_blocks"], 6);
    EXPECT_EQ(cachectl({"clear", "--namespace-weights", "another", "--yes"})["epoch"], 1);
  }
  kill_service();
  ASSERT_NO_FATAL_FAILURE(start_service());
  const auto client = connect();
  wait_for(*client, [](const auto& status) { return !status.recovering; });
  EXPECT_EQ(cachectl(lookup_of(prompt))["hit_tokens_total"], 0);
  EXPECT_EQ(cachectl(lookup_of(kept))["hit_tokens"]["disk"], 96);
}

TEST_F(CachectlFlow, ShowsTheTreesShapeWithItsPins) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  TestRunner runner(connect());
  const auto shared = prompt_of(43, 48);
  for (std::uint64_t ending = 1; ending <= 2; ++ending) {
    auto prompt = shared;
    for (const Token token : prompt_of(100 + ending, 32)) prompt.push_back(token);
    (void)runner.run(SequenceId(ending), prompt);
  }
  // Blocks that are being saved are pinned, too.
  wait_for(runner.client(), [](const auto& status) {
    return status.tiers[2].cached == 7 && status.transfers_in_flight == 0;
  });
  auto pinned = shared;
  pinned.push_back(1);
  (void)runner.begin(SequenceId(9), pinned);
  const auto tree = cachectl({"tree"});
  ASSERT_EQ(tree["nodes"].size(), 3U) << tree.dump(2);
  const auto& root = tree["nodes"][0];
  EXPECT_TRUE(root["parent"].is_null());
  EXPECT_EQ(root["depth"], 0);
  EXPECT_EQ(root["block_count"], 3);
  EXPECT_EQ(root["copies"]["device"], 3);
  EXPECT_EQ(root["pinned"], 3);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(tree["nodes"][i]["parent"], 0);
    EXPECT_EQ(tree["nodes"][i]["depth"], 3);
    EXPECT_EQ(tree["nodes"][i]["block_count"], 2);
    EXPECT_EQ(tree["nodes"][i]["pinned"], 0);
    EXPECT_EQ(tree["nodes"][i]["namespace"], root["namespace"]);
  }
}

TEST_F(CachectlFlow, FailsFastWhenTheServiceWasKilled) {
  ASSERT_NO_FATAL_FAILURE(start_service());
  kill_service();
  const auto result = run_program({built("cachectl"), "--dir", dir_.path(), "status"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
  EXPECT_LT(result.time, seconds(2));
}

}  // namespace
}  // namespace kv::test
