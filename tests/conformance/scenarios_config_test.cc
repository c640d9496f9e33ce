// Rows CFG of the scenarios: what is compared at the door.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kFirst(1);

void store(EngineDriver& driver, ClientId client, const NamespaceFields& fields,
           std::span<const Token> tokens) {
  EXPECT_EQ(driver.admit(client, kFirst, tokens, 0, fields).error.code, ErrorCode::ok);
  StepScript script;
  script.publish(kFirst, static_cast<std::uint32_t>(tokens.size())).free(kFirst);
  driver.step(client, script);
}

// SCENARIOS CFG-03: every field of a namespace keeps its blocks apart.
TEST(Scenarios, Cfg03AnyOtherFieldOfTheNamespaceIsAMiss) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const NamespaceFields stored{.weights = "w1",
                               .model_config = "bf16",
                               .adapter = "a",
                               .adapter_revision = "1",
                               .salt = "s"};
  store(driver, client, stored, numbered_tokens(1, 8));
  const auto hit_with = [&](std::string_view NamespaceFields::* field, std::string_view value) {
    NamespaceFields other = stored;
    other.*field = value;
    return driver.lookup(client, numbered_tokens(1, 9), other).hit_tokens;
  };
  for (const std::string_view other : {"", "other", "w1", "bf16", "a", "1", "s"}) {
    EXPECT_EQ(hit_with(&NamespaceFields::weights, other), other == "w1" ? 8U : 0U) << other;
    EXPECT_EQ(hit_with(&NamespaceFields::model_config, other), other == "bf16" ? 8U : 0U) << other;
    EXPECT_EQ(hit_with(&NamespaceFields::adapter, other), other == "a" ? 8U : 0U) << other;
    EXPECT_EQ(hit_with(&NamespaceFields::adapter_revision, other), other == "1" ? 8U : 0U) << other;
    EXPECT_EQ(hit_with(&NamespaceFields::salt, other), other == "s" ? 8U : 0U) << other;
  }
  const ClientId stranger = driver.attach_with_pool(4, "another tenant");
  EXPECT_EQ(driver.lookup(stranger, numbered_tokens(1, 9), stored).hit_tokens, 0U);
}

KvLayout with_dims(std::uint32_t k, std::uint32_t v) {
  KvLayout layout = one_group_layout();
  layout.groups[0].head_dim_k = k;
  layout.groups[0].head_dim_v = v;
  return layout;
}

Error attach_error(EngineDriver& driver, ClientId client, const KvLayout& layout) {
  return driver.call(client, AttachPool{.header = {}, .layout = &layout}).error;
}

// SCENARIOS CFG-04
TEST(Scenarios, Cfg04LayoutsOfEqualSizeAreNotTheSameLayout) {
  EngineDriver driver(options_with_slots(8, 0, 0));
  const KvLayout stored = with_dims(2, 6);
  const KvLayout other = with_dims(6, 2);
  ASSERT_EQ(block_bytes(stored, GroupId(0)), block_bytes(other, GroupId(0)));
  const ClientId client = driver.attach();
  ASSERT_EQ(attach_error(driver, client, stored).code, ErrorCode::ok);
  store(driver, client, NamespaceFields{}, numbered_tokens(1, 8));
  const ClientId second = driver.attach();
  const Error refused = attach_error(driver, second, other);
  EXPECT_EQ(refused.code, ErrorCode::mismatch);
  EXPECT_EQ(refused.field, "head_dim_k");
  // Without a pool there is no sequence, so that nothing of the one is read as the other.
  EXPECT_EQ(driver.open(second, kFirst, numbered_tokens(1, 9)).error.code, ErrorCode::unavailable);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 9)).hit_tokens, 8U);
}

// SCENARIOS CFG-05: the unit is the block size; the runner's message names both values.
TEST(Scenarios, Cfg05AnotherUnitIsAMismatchThatNamesIt) {
  EngineDriver driver(options_with_slots(32, 0, 0, 1));
  const ClientId client = driver.attach_with_pool(1);
  EXPECT_EQ(driver.format_count(), 1U);
  const ClientId second = driver.attach();
  const Error refused = attach_error(driver, second, one_group_layout(16));
  EXPECT_EQ(refused.code, ErrorCode::mismatch);
  EXPECT_EQ(refused.field, "block_tokens");
  EXPECT_EQ(driver.format_count(), 1U) << "no file is made for it";
  EXPECT_EQ(attach_error(driver, second, one_group_layout(1)).code, ErrorCode::ok);
  store(driver, client, NamespaceFields{}, numbered_tokens(1, 32));
  EXPECT_EQ(driver.tier(Tier::device).cached, 32U);
}

// SCENARIOS CFG-06
TEST(Scenarios, Cfg06AnotherNumberOfLayersIsRefusedAndTheFirstClientGoesOn) {
  KvLayout layout = one_group_layout();
  layout.groups[0].layer_count = 32;
  Engine::Options options = options_with_slots(0, 0, 0);
  options.tier_bytes[0] = 8 * block_bytes(layout, GroupId(0));
  EngineDriver driver(options);
  const ClientId client = driver.attach();
  ASSERT_EQ(attach_error(driver, client, layout).code, ErrorCode::ok);
  store(driver, client, NamespaceFields{}, numbered_tokens(1, 8));
  const StatusReply before = driver.status();
  layout.groups[0].layer_count = 28;
  const ClientId second = driver.attach();
  const Error refused = attach_error(driver, second, layout);
  EXPECT_EQ(refused.code, ErrorCode::mismatch);
  EXPECT_EQ(refused.field, "layer_count");
  EXPECT_EQ(driver.status().tiers, before.tiers);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 9)).hit_tokens, 8U);
}

}  // namespace
}  // namespace kv::core
