// A steady decode step takes no memory from the heap.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "tests/cachesvc/core/engine_driver.h"

namespace {

std::atomic<std::uint64_t>& allocation_count() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

void* counted_allocation(std::size_t bytes) {
  allocation_count().fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted_allocation(bytes); }
void* operator new[](std::size_t bytes) { return counted_allocation(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace kv::core {
namespace {

constexpr std::uint32_t kSequences = 256;
constexpr std::uint32_t kBlockTokens = 16;
constexpr std::uint32_t kNewTokens = 400;
constexpr std::uint32_t kWarmSteps = 200;  // more than replies are kept
constexpr std::uint32_t kCountedSteps = 64;

// Steps of one token for each of kSequences sequences, with the memory of one Actions reused.
class DecodeLoop {
 public:
  explicit DecodeLoop(bool publish) : publish_(publish), engine_(options()), tokens_(kSequences) {
    step(ClientAttached{.client = client_, .tenant = "tenant"});
    const KvLayout layout = one_group_layout(kBlockTokens);
    step(AttachPool{.header = next_header(), .layout = &layout});
    const NamespaceFields fields;
    for (std::uint32_t i = 0; i < kSequences; ++i) {
      const std::vector<Token> prompt = numbered_tokens(i * 1000, kBlockTokens);
      step(Open{.header = next_header(),
                .sequence = SequenceId(i),
                .first = true,
                .fields = &fields,
                .tokens = prompt});
      step(Admit{.header = next_header(), .sequence = SequenceId(i), .max_new_tokens = kNewTokens});
      while (actions_.continue_wanted) step(Continue{});
    }
  }

  void decode() {
    ++step_seq_;
    items_.clear();
    for (std::uint32_t i = 0; i < kSequences; ++i) {
      tokens_[i] = static_cast<Token>(step_seq_ * 7 + i);
      items_.push_back(
          {.sequence = SequenceId(i), .op = StepOp::append, .token_offset = i, .token_count = 1});
      if (!publish_) continue;
      const auto count = static_cast<std::uint32_t>(kBlockTokens + step_seq_);
      items_.push_back({.sequence = SequenceId(i), .op = StepOp::publish, .value = count - 1});
    }
    step(Step{.header = next_header(),
              .step_seq = step_seq_,
              .completed_step = step_seq_ - 1,
              .items = items_,
              .tokens = tokens_});
    while (actions_.continue_wanted) step(Continue{});
  }
  // Publishes the same tokens of one sequence again and again, in a step that is never completed.
  void publish_again() {
    items_.assign(kStepItemsMax,
                  {.sequence = SequenceId(0), .op = StepOp::publish, .value = kBlockTokens});
    step(Step{.header = next_header(),
              .step_seq = ++step_seq_,
              .completed_step = 0,
              .items = items_,
              .tokens = {}});
    while (actions_.continue_wanted) step(Continue{});
  }
  void complete() {
    ++step_seq_;
    step(Step{.header = next_header(),
              .step_seq = step_seq_,
              .completed_step = step_seq_,
              .items = {},
              .tokens = {}});
    while (actions_.continue_wanted) step(Continue{});
  }
  // Steps that were answered without a failure.
  [[nodiscard]] std::uint32_t good_steps() const { return good_steps_; }
  [[nodiscard]] StatusReply status() const { return engine_.status(); }
  void reserve() { items_.reserve(std::size_t{2} * kSequences); }

 private:
  static Engine::Options options() {
    // Room for the prompt and all new tokens of every sequence: 26 blocks each.
    return options_with_slots(kSequences * 26, 0, 0, kBlockTokens);
  }
  RequestHeader next_header() { return {.client = client_, .request = RequestId(++request_)}; }
  void step(const InputView& input) {
    actions_.clear();
    engine_.step(TimePoint{}, input, actions_);
    for (const Reply& reply : actions_.replies) {
      const auto* body = std::get_if<StepReply>(&reply.body);
      if (body != nullptr && body->failures.empty() && reply.error.code == ErrorCode::ok) {
        ++good_steps_;
      }
    }
  }

  bool publish_;
  Engine engine_;
  Actions actions_;
  std::vector<Token> tokens_;
  std::vector<StepItem> items_;
  ClientId client_{1};
  std::uint64_t request_ = 0;
  std::uint64_t step_seq_ = 0;
  std::uint32_t good_steps_ = 0;
};

std::uint64_t allocations_of(DecodeLoop& loop, std::uint32_t steps) {
  const std::uint64_t before = allocation_count().load();
  for (std::uint32_t i = 0; i < steps; ++i) loop.decode();
  return allocation_count().load() - before;
}

TEST(Allocation, TheCounterSeesAnAllocation) {
  const std::uint64_t before = allocation_count().load();
  const auto memory = std::make_unique<std::vector<int>>(100);
  EXPECT_EQ(memory->size(), 100U);
  EXPECT_EQ(allocation_count().load() - before, 2U);
}

TEST(Allocation, SteadyDecodeStepOf256SequencesTakesNoMemory) {
  DecodeLoop loop(false);
  loop.reserve();
  allocations_of(loop, kWarmSteps);
  EXPECT_EQ(allocations_of(loop, kCountedSteps), 0U);
  EXPECT_EQ(loop.good_steps(), kWarmSteps + kCountedSteps);
  EXPECT_EQ(loop.status().tiers[0].held, kSequences * 26);
}

// With a publish every step: one block a sequence becomes full every 16 steps.
TEST(Allocation, SteadyDecodeStepThatPublishesTakesNoMemory) {
  DecodeLoop loop(true);
  loop.reserve();
  allocations_of(loop, kWarmSteps);
  EXPECT_EQ(allocations_of(loop, kCountedSteps), 0U);
  EXPECT_EQ(loop.good_steps(), kWarmSteps + kCountedSteps);
  // 16 + 264 tokens, the newest without KV, and the last publish not completed: 278 of them.
  EXPECT_EQ(loop.status().tree_blocks, kSequences * (278 / kBlockTokens));
}

// Else a client that never completes a step could fill the memory with what waits for it.
TEST(Allocation, ARepeatedPublishThatWaitsForItsStepTakesNoMemory) {
  DecodeLoop loop(true);
  for (std::uint32_t i = 0; i < kWarmSteps; ++i) loop.publish_again();
  const std::uint64_t before = allocation_count().load();
  for (std::uint32_t i = 0; i < kWarmSteps; ++i) loop.publish_again();
  EXPECT_EQ(allocation_count().load() - before, 0U);
  EXPECT_EQ(loop.good_steps(), 2 * kWarmSteps);
  EXPECT_EQ(loop.status().tree_blocks, 0U);
  loop.complete();
  EXPECT_EQ(loop.status().tree_blocks, 1U);
}

}  // namespace
}  // namespace kv::core
