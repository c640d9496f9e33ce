#include "tests/support/in_process_service.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "plugins/client/session.h"

namespace kv::testing {
namespace {

constexpr std::uint32_t kBlockTokens = 4;
constexpr SequenceId kSequence{1};

KvLayout layout() {
  LayerGroup group;
  group.layer_count = 2;
  group.kv_head_count = 1;
  group.head_dim_k = group.head_dim_v = 8;
  return {kBlockTokens, {group}};
}

InProcessService::Options options() {
  InProcessService::Options options;
  const std::uint64_t bytes = block_bytes(layout(), GroupId{0});
  options.engine.tier_bytes = {16 * bytes, 16 * bytes, std::uint64_t{16} * 4096, 0};
  options.engine.write_through = false;
  return options;
}

NamespaceFields fields() {
  NamespaceFields fields;
  fields.weights = "test";
  return fields;
}

client::Deadline soon() { return client::in(std::chrono::seconds(30)); }

// A runner whose KV of a token is the token's low byte, in every byte.
class Runner {
 public:
  explicit Runner(InProcessService& service) : session_(service.session()) {
    auto pool = session_->attach_pool(layout(), soon());
    EXPECT_TRUE(pool);
    pool_ = *pool;
  }

  // Runs the whole prompt: checks the bytes of what was hit, writes the rest, publishes, frees.
  client::Account run(std::span<const Token> tokens) {
    EXPECT_TRUE(session_->open(kSequence, fields(), tokens, {}, soon()));
    const auto admission = session_->admit(kSequence, 0, soon());
    EXPECT_TRUE(admission);
    if (!admission) return {};
    const std::uint64_t hits = admission->account.hits();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      for (std::byte& byte : bytes_of_token(admission->slots[i / kBlockTokens], i)) {
        const auto value = static_cast<std::byte>(tokens[i] & 0xFFU);
        if (i < hits) {
          EXPECT_EQ(byte, value) << "token " << i;
        } else {
          byte = value;
        }
      }
    }
    client::StepRequest step;
    step.step_seq = ++step_;
    step.completed_step = step_ - 1;
    step.publish = {{kSequence, static_cast<std::uint32_t>(tokens.size())}};
    const auto published = session_->step(step, soon());
    EXPECT_TRUE(published && published->failures.empty());
    step = {};
    step.step_seq = ++step_;
    step.completed_step = step_ - 1;
    step.free = {kSequence};
    const auto ended = session_->step(step, soon());
    EXPECT_TRUE(ended && ended->failures.empty() && ended->ended.size() == 1);
    // Until its last step is finished on the device, a sequence keeps its blocks.
    step = {};
    step.step_seq = ++step_;
    step.completed_step = step_ - 1;
    EXPECT_TRUE(session_->step(step, soon()));
    return ended && ended->ended.size() == 1 ? ended->ended[0].account : client::Account{};
  }

  client::Session& session() { return *session_; }

 private:
  // A quarter of the block for each of its tokens: where in it does not matter here.
  std::span<std::byte> bytes_of_token(SlotId slot, std::size_t token) {
    const auto& group = pool_.groups.at(0);
    const std::uint64_t bytes = group.slot_bytes / kBlockTokens;
    return pool_.memory.subspan(
        group.offset + slot.value * group.slot_bytes + token % kBlockTokens * bytes, bytes);
  }

  std::unique_ptr<client::Session> session_;
  client::Pool pool_;
  std::uint64_t step_ = 0;
};

std::vector<Token> prompt() {
  std::vector<Token> tokens(21);  // 5 full blocks and one token
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

std::array<std::uint64_t, kTierCount> hits(std::uint64_t device, std::uint64_t host,
                                           std::uint64_t disk) {
  return {device, host, disk, 0};
}

TEST(InProcessService, ServesWhatAnotherSessionPublished) {
  InProcessService service(options());
  Runner first(service);
  Runner second(service);
  EXPECT_EQ(first.run(prompt()).hit_tokens, hits(0, 0, 0));
  EXPECT_EQ(second.run(prompt()).hit_tokens, hits(20, 0, 0));
  EXPECT_EQ(service.status().tiers[0].cached, 5U);
}

TEST(InProcessService, KeepsTheBytesOnTheWayThroughHostAndDiskAndARestart) {
  InProcessService service(options());
  {
    Runner runner(service);
    runner.run(prompt());
    const auto demoted = service.demote(Tier::device);
    EXPECT_EQ(demoted.saved_blocks, 5U);
    EXPECT_EQ(demoted.dropped_blocks, 5U);
    EXPECT_EQ(service.status().tiers[0].cached, 0U);
    EXPECT_EQ(runner.run(prompt()).hit_tokens, hits(0, 20, 0));
    EXPECT_EQ(service.flush().durable_blocks, 5U);
    EXPECT_EQ(service.memory_disk().blob_count(), 5U);
  }
  service.restart();
  EXPECT_EQ(service.lookup(fields(), prompt()).hit_tokens_by_tier, hits(0, 0, 20));
  Runner runner(service);
  EXPECT_EQ(runner.run(prompt()).hit_tokens, hits(0, 0, 20));
  EXPECT_EQ(runner.run(prompt()).hit_tokens, hits(20, 0, 0));
}

// The same with a store of files; the second service is another one on the same directory.
TEST(InProcessService, ServesFromFilesThatAnEarlierServiceWrote) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() /
      ("kv-in-process-" + std::to_string(::getpid()) + "-" + std::to_string(__LINE__));
  InProcessService::Options with_files = options();
  with_files.disk_directory = directory.string();
  {
    InProcessService service(with_files);
    Runner(service).run(prompt());
    EXPECT_EQ(service.flush().durable_blocks, 5U);
    service.restart();
    EXPECT_EQ(service.lookup(fields(), prompt()).hit_tokens_by_tier, hits(0, 0, 20));
  }
  {
    InProcessService service(with_files);
    Runner runner(service);
    EXPECT_EQ(runner.run(prompt()).hit_tokens, hits(0, 0, 20));
    EXPECT_EQ(service.memory_disk().blob_count(), 0U);
  }
  std::filesystem::remove_all(directory);
}

TEST(InProcessService, ForgetsWhatWasNotFlushed) {
  InProcessService service(options());
  Runner(service).run(prompt());
  service.restart();
  EXPECT_EQ(service.lookup(fields(), prompt()).hit_tokens, 0U);
}

TEST(InProcessService, ComputesABlockAgainWhoseBytesOnDiskWentBad) {
  InProcessService service(options());
  Runner(service).run(prompt());
  service.flush();
  service.restart();
  service.memory_disk().damage_all();
  Runner runner(service);
  EXPECT_EQ(runner.run(prompt()).hit_tokens, hits(0, 0, 0));
  EXPECT_GE(service.status().counters.corrupt_blocks[tier_index(Tier::disk)], 1U);
}

TEST(InProcessService, TellsASessionFromBeforeARestartThatItIsStale) {
  InProcessService service(options());
  Runner runner(service);
  service.restart();
  const auto admission = runner.session().admit(kSequence, 0, soon());
  ASSERT_FALSE(admission);
  EXPECT_EQ(admission.error().code, ErrorCode::stale);
}

// SCENARIOS SEC-05
TEST(InProcessService, KeepsTenantsApart) {
  InProcessService service(options());
  Runner(service).run(prompt());
  EXPECT_EQ(service.lookup(fields(), prompt()).hit_tokens, 20U);
  EXPECT_EQ(service.lookup(fields(), prompt(), "stranger").hit_tokens, 0U);
}

}  // namespace
}  // namespace kv::testing
