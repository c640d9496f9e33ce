#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "cachesvc/core/trace.h"

namespace kv::core {
namespace {

const KvLayout sample_layout{4, {{AttentionKind::full, 2, 1, 8, 8, DType::f32, DType::f32, 0, 0}}};
const KvLayout other_layout{8, {{AttentionKind::full, 2, 1, 8, 8, DType::f32, DType::f32, 0, 0}}};

Actions sample() {
  Actions actions;
  actions.erases = {{{}, 1, GroupId{0}, SlotId{2}, 3}};
  actions.transfers = {{TransferId{4}, Tier::device, Tier::host, GroupId{0}, 0, 1, 0, {}}};
  actions.transfer_blocks = {{SlotId{5}, SlotId{6}, 7, 8, 9, 10, {}, {}}};
  actions.tokens = {11, 12};
  actions.syncs = {{13}};
  actions.replies = {{ClientId{14}, RequestId{15}, {ErrorCode::ok, {}, {}}, 16, AdmitReply{}}};
  actions.notices = {
      {ClientId{17}, 18, NoticeKind::sequence_ready, SequenceId{19}, ErrorCode::busy, {}}};
  actions.format_defined = &sample_layout;
  return actions;
}

// Both numbers were derived by a separate program (in Python) from the list of words.
TEST(ActionsDigest, IsTheSameNumberOnEveryMachine) {
  Actions nothing;
  EXPECT_EQ(actions_digest(0, nothing), 0xC0FFE93899453060U);
  EXPECT_EQ(actions_digest(1, sample()), 0x86E084351EA1F2B6U);
}

TEST(ActionsDigest, DependsOnWhatCameBefore) {
  EXPECT_NE(actions_digest(1, sample()), actions_digest(2, sample()));
}

TEST(ActionsDigest, TakesTwoEqualActionsAsEqualWhateverTheirMemory) {
  Actions actions = sample();
  Actions other = sample();
  const KvLayout copy = sample_layout;
  other.format_defined = &copy;
  other.tokens.reserve(1'000);
  EXPECT_EQ(actions_digest(3, actions), actions_digest(3, other));
}

TEST(ActionsDigest, ChangesWithEveryField) {
  using Change = std::function<void(Actions&)>;
  const auto reply = [](const auto& body) {
    return [body](Actions& a) { a.replies[0].body = body; };
  };
  AdmitReply admit_ready;
  admit_ready.ready = true;
  AdmitReply admit_hit;
  admit_hit.account.hit_tokens[1] = 1;
  AdmitReply admit_slots;
  admit_slots.slots = {SlotId{0}};
  StepReply step_failure;
  step_failure.failures = {{0, {ErrorCode::invalid, "why", "field"}}};
  StepReply step_failure_reason;
  step_failure_reason.failures = {{0, {ErrorCode::invalid, "whyf", "ield"}}};
  StepReply step_delta;
  step_delta.deltas = {{SequenceId{1}, GroupId{0}, 1, 0, 0, 1}};
  StepReply step_ended;
  step_ended.ended = {{SequenceId{1}, {}}};
  StepReply step_copy;
  step_copy.copies = {{SequenceId{1}, GroupId{0}, SlotId{1}, SlotId{2}, 3}};
  WhyReply why_hit;
  why_hit.hit_tokens[3] = 1;
  WhyReply why_span;
  why_span.spans.resize(1);
  WhyReply why_reason = why_span;
  why_reason.spans[0].reason = MissReason::corrupt;
  WhyReply why_field = why_span;
  why_field.spans[0].field = NamespaceField::salt;
  WhyReply why_ago = why_span;
  why_ago.spans[0].ago_ms = 1;
  WhyReply why_history;
  why_history.history_ms = 1;
  StatusReply status_counter;
  status_counter.counters.gone_clients = 1;
  StatusReply status_tier;
  status_tier.tiers[2].arriving = 1;
  StatusReply status_recovering;
  status_recovering.recovering = true;
  StatusReply status_retired;
  status_retired.retired_blocks = 1;
  StatusReply status_epoch;
  status_epoch.epochs.resize(1);
  TreeReply tree_node;
  tree_node.nodes.resize(1);
  TreeReply tree_truncated;
  tree_truncated.truncated = true;
  const std::vector<Change> changes = {
      [](Actions& /*unchanged*/) {},
      [](Actions& a) { a.erases.clear(); },
      [](Actions& a) { a.erases[0].key.bytes[31] = std::byte{1}; },
      [](Actions& a) { a.erases[0].depth++; },
      [](Actions& a) { a.erases[0].slot.value++; },
      [](Actions& a) { a.erases[0].generation++; },
      [](Actions& a) { a.transfers[0].id.value++; },
      [](Actions& a) { a.transfers[0].to = Tier::disk; },
      [](Actions& a) { a.transfers[0].block_count++; },
      [](Actions& a) { a.transfers[0].first_token++; },
      [](Actions& a) { a.transfers[0].namespace_digest.bytes[8] = std::byte{1}; },
      [](Actions& a) { a.transfer_blocks[0].from_slot.value++; },
      [](Actions& a) { a.transfer_blocks[0].to_slot.value++; },
      [](Actions& a) { a.transfer_blocks[0].from_generation++; },
      [](Actions& a) { a.transfer_blocks[0].to_generation++; },
      [](Actions& a) { a.transfer_blocks[0].checksum++; },
      [](Actions& a) { a.transfer_blocks[0].depth++; },
      [](Actions& a) { a.transfer_blocks[0].key.bytes[0] = std::byte{1}; },
      [](Actions& a) { a.transfer_blocks[0].parent_key.bytes[0] = std::byte{1}; },
      [](Actions& a) { a.tokens[1]++; },
      [](Actions& a) { a.tokens.push_back(0); },
      [](Actions& a) { a.syncs[0].id++; },
      [](Actions& a) { a.replies[0].client.value++; },
      [](Actions& a) { a.replies[0].request.value++; },
      [](Actions& a) { a.replies[0].error = {ErrorCode::busy, {}, {}}; },
      [](Actions& a) { a.replies[0].error = {ErrorCode::busy, "reason", {}}; },
      [](Actions& a) { a.replies[0].error = {ErrorCode::busy, {}, "reason"}; },
      [](Actions& a) { a.replies[0].retry_after_us++; },
      reply(std::monostate{}),
      reply(HelloReply{}),
      reply(HelloReply{1, 0}),
      reply(HelloReply{0, 1}),
      reply(HelloReply{0, 0, 1}),
      reply(AttachPoolReply{}),
      reply(AttachPoolReply{{}, 1}),
      reply(AttachPoolReply{{{0, 0, 1}}, 0}),
      reply(admit_ready),
      reply(admit_hit),
      reply(admit_slots),
      reply(StepReply{}),
      reply(step_failure),
      reply(step_failure_reason),
      reply(step_delta),
      reply(step_ended),
      reply(step_copy),
      reply(WhyReply{}),
      reply(why_hit),
      reply(why_span),
      reply(why_reason),
      reply(why_field),
      reply(why_ago),
      reply(why_history),
      reply(LookupReply{1, {}, 0}),
      reply(LookupReply{0, {}, 1}),
      reply(StatusReply{}),
      reply(status_counter),
      reply(status_tier),
      reply(status_recovering),
      reply(TreeReply{}),
      reply(tree_node),
      reply(tree_truncated),
      reply(DemoteReply{1, 0, 0}),
      reply(DemoteReply{0, 1, 0}),
      reply(DemoteReply{0, 0, 1}),
      reply(FlushReply{1, 0}),
      reply(FlushReply{0, 1}),
      reply(ClearReply{1, 0, 0}),
      reply(ClearReply{0, 1, 0}),
      reply(ClearReply{0, 0, 1}),
      reply(status_retired),
      reply(status_epoch),
      [](Actions& a) { a.notices[0].client.value++; },
      [](Actions& a) { a.notices[0].number++; },
      [](Actions& a) { a.notices[0].kind = NoticeKind::lease_expired; },
      [](Actions& a) { a.notices[0].sequence.value++; },
      [](Actions& a) { a.notices[0].code = ErrorCode::ok; },
      [](Actions& a) { a.notices[0].account.generated_tokens++; },
      [](Actions& a) { a.format_defined = nullptr; },
      [](Actions& a) { a.format_defined = &other_layout; },
      [](Actions& a) { a.continue_wanted = true; },
      [](Actions& a) { a.ended_clients = {ClientId{1}}; },
      [](Actions& a) { a.ended_clients = {ClientId{2}}; },
  };
  std::set<std::uint64_t> digests;
  for (const Change& change : changes) {
    Actions actions = sample();
    change(actions);
    digests.insert(actions_digest(5, actions));
  }
  EXPECT_EQ(digests.size(), changes.size());
}

}  // namespace
}  // namespace kv::core
