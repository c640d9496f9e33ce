#include "tools/cachebench/engine_loop.h"

#include "allocator/base/check.h"
#include "tools/cachebench/core_caches.h"

namespace kv::cachebench {
namespace {

core::Engine::Options options_of(std::uint32_t device_blocks) {
  core::Engine::Options options;
  options.tier_bytes[tier_index(Tier::device)] =
      device_blocks * block_bytes(small_layout(), GroupId(0));
  options.hash_seed = 99;
  return options;
}

}  // namespace

EngineLoop::EngineLoop(std::uint32_t device_blocks) : engine_(options_of(device_blocks)) {
  input(core::ClientAttached{.client = client_, .tenant = "tenant"});
  const KvLayout layout = small_layout();
  input(core::AttachPool{.header = next_header(), .layout = &layout});
}

void EngineLoop::input(const core::InputView& input) {
  actions_.clear();
  engine_.step(TimePoint{}, input, actions_);
  for (;;) {
    for (const core::Reply& reply : actions_.replies) {
      KV_CHECK(reply.error.code == ErrorCode::ok);
    }
    if (!actions_.continue_wanted) return;
    actions_.clear();
    engine_.step(TimePoint{}, core::Continue{}, actions_);
  }
}

void EngineLoop::admit(SequenceId sequence, std::span<const Token> tokens,
                       std::uint32_t max_new_tokens) {
  static const NamespaceFields fields;
  input(core::Open{
      .header = next_header(), .sequence = sequence, .fields = &fields, .tokens = tokens});
  input(
      core::Admit{.header = next_header(), .sequence = sequence, .max_new_tokens = max_new_tokens});
}

std::uint32_t EngineLoop::step(std::span<const core::StepItem> items,
                               std::span<const Token> tokens) {
  ++step_seq_;
  input(core::Step{.header = next_header(),
                   .step_seq = step_seq_,
                   .completed_step = step_seq_,
                   .items = items,
                   .tokens = tokens});
  return static_cast<std::uint32_t>(items.size());
}

void EngineLoop::run_cold(std::span<const Token> tokens) {
  const SequenceId sequence(1'000'000 + ++sequences_);
  admit(sequence, tokens, 0);
  const core::StepItem items[] = {{.sequence = sequence,
                                   .op = core::StepOp::publish,
                                   .value = static_cast<std::uint32_t>(tokens.size())},
                                  {.sequence = sequence, .op = core::StepOp::free}};
  (void)step(items, {});
}

}  // namespace kv::cachebench
