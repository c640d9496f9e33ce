// Short scripted runs in the virtual world, each for one behaviour that random runs once found
// broken.
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tools/world/virtual_client.h"
#include "tools/world/virtual_world.h"

namespace kv::model {
namespace {

using world::VirtualClient;
using world::VirtualWorld;

constexpr SequenceId kSequence{1};

// Slots of the device, host and disk tier; one token a block.
VirtualWorld::Options options(std::uint64_t device, std::uint64_t host, std::uint64_t disk) {
  VirtualWorld::Options options;
  LayerGroup group;
  group.layer_count = group.kv_head_count = group.head_dim_k = group.head_dim_v = 1;
  options.layout = {1, {group}};
  const std::uint64_t bytes = block_bytes(options.layout, GroupId{0});
  options.engine.tier_bytes = {device * bytes, host * bytes, disk * 4096, 0};
  options.engine.write_through = false;
  return options;
}

std::vector<Token> tokens_to(std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

std::string all_of(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += problem + "\n";
  return text;
}

void publish_all(VirtualClient& client, SequenceId id) {
  VirtualClient::Sequence& sequence = client.sequences().at(id);
  const auto count = static_cast<std::uint32_t>(sequence.tokens.size());
  client.compute(sequence, count);
  client.send_step({{id, core::StepOp::publish, {}, count, false}});
}

struct Sizes {
  std::uint64_t host, disk;  // slots
  std::uint64_t
      durable;  // of a chain of 10 blocks: a chain passes the host as far as it fits there
};
class SmallTiers : public ::testing::TestWithParam<Sizes> {};

TEST_P(SmallTiers, EndAFlushThatCannotSaveEverything) {
  const auto [host, disk, durable] = GetParam();
  VirtualWorld world(options(12, host, disk));
  VirtualClient client(world, "t0", core::ClientRole::runner);
  client.attach_pool();
  client.open(kSequence, "w0", tokens_to(10), 1, false, true);
  client.admit(kSequence, 0);
  publish_all(client, kSequence);
  client.complete_steps(1);
  client.send_step({{kSequence, core::StepOp::free, {}, 0, false}});
  client.complete_steps(1);
  client.send_step({});
  client.ask(core::Flush{});
  world.run_all(2'000);
  client.poll();
  EXPECT_EQ(client.outstanding(), 0U);
  EXPECT_EQ(all_of(world.problems()), "");
  const auto& tiers = world.engine().status().tiers;
  EXPECT_EQ(tiers[tier_index(Tier::disk)].cached, durable);
}

INSTANTIATE_TEST_SUITE_P(HostAndDisk, SmallTiers,
                         ::testing::Values(Sizes{4, 3, 3}, Sizes{3, 12, 2}, Sizes{12, 4, 4},
                                           Sizes{2, 10, 1}, Sizes{5, 0, 0}, Sizes{16, 16, 10}));

// The id may be in use again, for another sequence with another table.
TEST(Sequences, GetNoTableChangesOnceTheyWereFreed) {
  VirtualWorld world(options(20, 0, 0));
  VirtualClient first(world, "t0", core::ClientRole::runner);
  VirtualClient second(world, "t0", core::ClientRole::runner);
  for (VirtualClient* client : {&first, &second}) {
    client->attach_pool();
    client->open(kSequence, "w0", tokens_to(5), 1, false, true);
    client->admit(kSequence, 0);
  }
  publish_all(first, kSequence);
  first.complete_steps(1);
  first.send_step({});
  publish_all(second, kSequence);  // equal blocks: a rewrite, once the step is completed
  second.send_step({{kSequence, core::StepOp::free, {}, 0, false}});
  second.open(kSequence, "w0", {{7, 8, 9}}, 1, false, true);
  second.admit(kSequence, 0);
  second.complete_steps(2);
  second.send_step({});
  EXPECT_EQ(second.sequences().at(kSequence).version, 1U);
  EXPECT_EQ(all_of(world.problems()), "");
}

}  // namespace
}  // namespace kv::model
