// Ids that a client may not use, in every request and operation that takes one: unknown, another
// client's, of a sequence that ended, of one that is not admitted yet. Each is refused alone, with
// its own error, and changes nothing.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace kv::core {
namespace {

constexpr SequenceId kMine(1);
constexpr SequenceId kTheirs(2);
constexpr SequenceId kEnded(3);
constexpr SequenceId kOpened(4);
constexpr SequenceId kUnknown(0xFFFF'FFFE);

// What must be the same after a refusal.
struct Picture {
  std::array<TierStatus, kTierCount> tiers;
  std::uint32_t sequences = 0, tree_blocks = 0, transfers = 0;
  std::vector<Token> tokens;
  std::vector<SlotId> table;
  std::uint64_t published = 0;
  friend bool operator==(const Picture&, const Picture&) = default;
};

class InputIds : public testing::Test {
 protected:
  InputIds() : driver_(options_with_slots(16, 4, 0)) {
    me_ = driver_.attach_with_pool();
    other_ = driver_.attach_with_pool();
    driver_.admit(me_, kMine, numbered_tokens(1, 6), 6);
    driver_.admit(other_, kTheirs, numbered_tokens(100, 6), 6);
    driver_.step(other_, StepScript().publish(kTheirs, 4));
    driver_.admit(me_, kEnded, numbered_tokens(200, 6));
    driver_.step(me_, StepScript().free(kEnded));
    driver_.open(me_, kOpened, numbered_tokens(300, 6));
  }
  [[nodiscard]] Picture picture() {
    const StatusReply status = driver_.status();
    Picture now{.tiers = status.tiers,
                .sequences = status.sequences,
                .tree_blocks = status.tree_blocks,
                .transfers = status.transfers_in_flight,
                .tokens = {},
                .table = {},
                .published = status.counters.published_blocks};
    for (const auto& [client, sequence] :
         {std::pair{me_, kMine}, std::pair{other_, kTheirs}, std::pair{me_, kOpened}}) {
      const Engine::SequenceView view = driver_.live(client, sequence);
      now.tokens.insert(now.tokens.end(), view.tokens.begin(), view.tokens.end());
      now.table.insert(now.table.end(), view.table.begin(), view.table.end());
    }
    return now;
  }
  static StepScript script_of(StepOp op, SequenceId sequence) {
    StepScript script;
    switch (op) {
      case StepOp::append:
        return script.append(sequence, numbered_tokens(900, 2));
      case StepOp::publish:
        return script.publish(sequence, 4);
      case StepOp::truncate:
        return script.truncate(sequence, 5);
      case StepOp::acknowledge:
        return script.acknowledge(sequence, 0);
      case StepOp::free:
        return script.free(sequence);
      case StepOp::fork:
        return script.fork(sequence, SequenceId(77));
      case StepOp::preempt:
        return script.preempt(sequence);
      case StepOp::drop:
        return script.drop(sequence, 0, 4);
    }
    return script;
  }

  EngineDriver driver_;
  ClientId me_, other_;
};

TEST_F(InputIds, AreRefusedByEveryOperationOfAStepAndChangeNothing) {
  const Picture before = picture();
  for (std::uint8_t number = 0; number < kStepOpCount; ++number) {
    const auto op = static_cast<StepOp>(number);
    for (const SequenceId id : {kUnknown, kTheirs, kEnded}) {
      SCOPED_TRACE("operation " + std::to_string(number) + " of " + std::to_string(id.value));
      const Reply reply = driver_.step(me_, script_of(op, id));
      ASSERT_EQ(reply.error.code, ErrorCode::ok) << "the step itself is in order";
      const auto& body = std::get<StepReply>(reply.body);
      ASSERT_EQ(body.failures.size(), 1U);
      EXPECT_EQ(body.failures[0].error.code, ErrorCode::not_found);
      EXPECT_EQ(body.failures[0].error.field, "sequence");
      EXPECT_TRUE(body.ended.empty() && body.deltas.empty() && body.slots.empty());
      EXPECT_EQ(picture(), before);
    }
  }
}

TEST_F(InputIds, OfASequenceThatIsNotAdmittedAreInvalidForAllButItsEnd) {
  const Picture before = picture();
  for (const StepOp op : {StepOp::append, StepOp::publish, StepOp::truncate, StepOp::acknowledge,
                          StepOp::fork, StepOp::preempt, StepOp::drop}) {
    const Reply reply = driver_.step(me_, script_of(op, kOpened));
    const auto& body = std::get<StepReply>(reply.body);
    ASSERT_EQ(body.failures.size(), 1U);
    EXPECT_EQ(body.failures[0].error.code, ErrorCode::invalid);
    EXPECT_EQ(picture(), before);
  }
  const Reply reply = driver_.step(me_, StepScript().free(kOpened));
  EXPECT_TRUE(std::get<StepReply>(reply.body).failures.empty());
  EXPECT_EQ(driver_.status().sequences, before.sequences - 1);
}

TEST_F(InputIds, AreRefusedByEveryRequestThatTakesOne) {
  const Picture before = picture();
  const NamespaceFields fields;
  const std::vector<Token> tokens = numbered_tokens(1, 2);
  const auto more = [&](SequenceId id) {
    return driver_.call(me_, Open{.header = {}, .sequence = id, .first = false, .tokens = tokens})
        .error;
  };
  const auto first = [&](SequenceId id) {
    return driver_
        .call(
            me_,
            Open{.header = {}, .sequence = id, .first = true, .fields = &fields, .tokens = tokens})
        .error;
  };
  const auto admit = [&](SequenceId id) {
    return driver_.call(me_, Admit{.header = {}, .sequence = id, .max_new_tokens = 1}).error;
  };
  for (const SequenceId id : {kUnknown, kTheirs, kEnded}) {
    EXPECT_EQ(more(id).code, ErrorCode::not_found) << id.value;
    EXPECT_EQ(admit(id).code, ErrorCode::not_found) << id.value;
  }
  // In use by this client: neither begun again nor admitted twice.
  EXPECT_EQ(first(kMine).code, ErrorCode::exists);
  EXPECT_EQ(first(kOpened).code, ErrorCode::exists);
  EXPECT_EQ(more(kMine).code, ErrorCode::invalid);
  EXPECT_EQ(admit(kMine).code, ErrorCode::invalid);
  EXPECT_EQ(picture(), before);
}

TEST_F(InputIds, TwiceInOneStepAreCountedTwiceNotMixedUp) {
  StepScript script;
  script.append(kMine, numbered_tokens(7, 1)).append(kMine, numbered_tokens(8, 1));
  script.free(kMine).free(kMine).append(kMine, numbered_tokens(9, 1));
  const Reply reply = driver_.step(me_, script);
  const auto& body = std::get<StepReply>(reply.body);
  ASSERT_EQ(body.failures.size(), 2U);
  EXPECT_EQ(body.failures[0].item, 3U);
  EXPECT_EQ(body.failures[1].item, 4U);
  EXPECT_EQ(body.failures[0].error.code, ErrorCode::not_found);
  ASSERT_EQ(body.ended.size(), 1U);
  EXPECT_EQ(body.ended[0].account.generated_tokens, 2U);
}

TEST_F(InputIds, OfClientsThatTheServiceDoesNotKnowAreStaleInEveryRequest) {
  const Picture before = picture();
  const ClientId stranger(4'711);
  const NamespaceFields fields;
  const std::vector<Token> tokens = numbered_tokens(1, 2);
  const KvLayout layout = one_group_layout();
  const auto expect_stale = [&](const auto& request, std::string_view what) {
    EXPECT_EQ(driver_.call(stranger, request).error.code, ErrorCode::stale) << what;
  };
  expect_stale(Hello{}, "Hello");
  expect_stale(Heartbeat{}, "Heartbeat");
  expect_stale(Bye{}, "Bye");
  expect_stale(AttachPool{.header = {}, .layout = &layout}, "AttachPool");
  expect_stale(
      Open{.header = {}, .sequence = kMine, .first = true, .fields = &fields, .tokens = tokens},
      "Open");
  expect_stale(Admit{.header = {}, .sequence = kMine}, "Admit");
  expect_stale(StepScript().free(kMine).at(1, 1), "Step");
  expect_stale(Lookup{.header = {}, .fields = &fields, .tokens = tokens}, "Lookup");
  expect_stale(Status{}, "Status");
  expect_stale(Tree{}, "Tree");
  expect_stale(Demote{}, "Demote");
  expect_stale(Flush{}, "Flush");
  EXPECT_EQ(picture(), before);
}

// There is no vocabulary here: a token is a number, and each of them is itself only.
TEST(InputTokens, AtTheEndsOfTheirRangeAreContentLikeAnyOther) {
  EngineDriver driver(options_with_slots(16, 0, 0));
  const ClientId client = driver.attach_with_pool();
  const std::vector<std::vector<Token>> prompts = {
      {0, 0, 0, 0, 0},
      {0xFFFF'FFFF, 0xFFFF'FFFF, 0xFFFF'FFFF, 0xFFFF'FFFF, 0xFFFF'FFFF},
      {0x7FFF'FFFF, 0x8000'0000, 0xFFFF'FFFE, 0xFFFF'FFFF, 0},
      {0, 0, 0, 0xFFFF'FFFF, 0}};
  for (const auto& prompt : prompts) {
    EXPECT_EQ(driver.lookup(client, prompt).hit_tokens, 0U);
    driver.cache_prompt(client, prompt);
    EXPECT_EQ(driver.lookup(client, prompt).hit_tokens, 4U);
  }
  EXPECT_EQ(driver.status().tree_blocks, 4U);
}

TEST(InputTokens, NoneAtAllAreNoPrompt) {
  EngineDriver driver(options_with_slots(4, 0, 0));
  const ClientId client = driver.attach_with_pool();
  EXPECT_EQ(driver.lookup(client, {}).hit_tokens, 0U);
  const Reply refused = driver.admit(client, kMine, {}, 4);
  EXPECT_EQ(refused.error.code, ErrorCode::invalid);
  EXPECT_EQ(refused.error.reason, "the prompt is empty");
  EXPECT_EQ(driver.tier(Tier::device).free, 4U);
}

// The shell's own reports: one that makes no sense is passed over.
TEST(InputReports, OfUnknownOrRepeatedIdsChangeNothing) {
  EngineDriver driver(options_with_slots(8, 8, 8));
  const ClientId client = driver.attach_with_pool();
  driver.cache_prompt(client, numbered_tokens(1, 8));
  const StatusReply before = driver.status();
  driver.input(DiskSynced{.id = 99, .ok = true});
  driver.input(TransferDone{TransferId(99), {}, {}});
  driver.input(ClientGone{.client = ClientId(99)});
  driver.input(ClientAttached{
      .client = client, .role = ClientRole::observer, .tenant = "another", .process_id = 1});
  driver.settle();
  const StatusReply after = driver.status();
  EXPECT_EQ(after.tiers, before.tiers);
  EXPECT_EQ(after.clients, before.clients);
  EXPECT_EQ(driver.lookup(client, numbered_tokens(1, 9)).hit_tokens, 8U)
      << "role and tenant are those of the first report";
  EXPECT_EQ(driver.call(client, Flush{}).error.code, ErrorCode::ok);
  driver.input(ClientGone{.client = client});
  driver.input(ClientGone{.client = client});
  EXPECT_EQ(driver.status().clients, 0U);
  EXPECT_EQ(driver.status().counters.gone_clients, 1U);
}

}  // namespace
}  // namespace kv::core
