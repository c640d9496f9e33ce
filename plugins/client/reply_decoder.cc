#include "plugins/client/reply_decoder.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "plugins/client/aligned_frame.h"
#include "plugins/client/static_text.h"
#include "schemas/reply_generated.h"

namespace kv::client {
namespace {

static_assert(static_cast<int>(wire::ErrorCode::mismatch) + 1 == kErrorCodeCount);
static_assert(static_cast<int>(ErrorCode::mismatch) == static_cast<int>(wire::ErrorCode::mismatch));

constexpr Error kContradiction{ErrorCode::corrupt, "a reply contradicts itself", "reply"};
constexpr std::uint32_t kVerifierDepth = 16;
constexpr std::uint32_t kVerifierTables = 4'096;

template <class E>
bool in_range(E value, E last) {
  return static_cast<int>(value) <= static_cast<int>(last);
}
bool known(wire::ErrorCode code) { return in_range(code, wire::ErrorCode::mismatch); }

// The verifier does not look at the alignment of a vector's elements.
template <class T>
Result<std::span<const T>> elements(const flatbuffers::Vector<const T*>* vector) {
  if (vector == nullptr || vector->size() == 0) return std::span<const T>();
  if (reinterpret_cast<std::uintptr_t>(vector->Data()) % alignof(T) != 0) {
    return Error{ErrorCode::corrupt, "a reply's vector is misaligned", "reply"};
  }
  return std::span(reinterpret_cast<const T*>(vector->Data()), vector->size());
}

std::string_view text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : std::string_view(text->c_str(), text->size());
}

Error error_of(wire::ErrorCode wire_code, std::string_view reason, std::string_view field) {
  const auto code = static_cast<ErrorCode>(wire_code);
  return Error{code, static_text(reason, error_name(code)), static_text(field, {})};
}

Account account_of(const wire::Account& in) {
  return Account{
      .prompt_tokens = in.prompt_tokens(),
      .hit_tokens = {in.device_tokens(), in.host_tokens(), in.disk_tokens(), in.remote_tokens()},
      .computed_tokens = in.computed_tokens(),
      .generated_tokens = in.generated_tokens()};
}

Digest digest_of(const wire::Digest& in) {
  Digest out;
  const std::array<std::uint64_t, 4> words{in.a(), in.b(), in.c(), in.d()};
  for (std::size_t i = 0; i < out.bytes.size(); ++i) {
    out.bytes[i] = static_cast<std::byte>(words[i / 8] >> (8 * (i % 8)));
  }
  return out;
}

Result<PoolAnswer> decode(const wire::AttachPoolReply& in) {
  PoolAnswer out{.pool_bytes = in.pool_bytes(), .groups = {}};
  KV_TRY(const auto groups, elements(in.groups()));
  if (groups.size() > kLayerGroupsMax) return kContradiction;
  for (const wire::PoolGroup& group : groups) {
    const bool inside =
        group.offset() <= out.pool_bytes &&
        (group.slot_bytes() == 0 ||
         group.slot_count() <= (out.pool_bytes - group.offset()) / group.slot_bytes());
    if (!inside) return kContradiction;
    out.groups.push_back({group.offset(), group.slot_bytes(), group.slot_count()});
  }
  return out;
}

Result<AdmitAnswer> decode(const wire::AdmitReply& in) {
  AdmitAnswer out;
  out.ready = in.ready();
  if (in.account() != nullptr) out.admission.account = account_of(*in.account());
  out.admission.table_version = in.table_version();
  out.admission.block_count = in.block_count();
  if (const auto* slots = in.slots(); slots != nullptr) {
    out.admission.slots.reserve(slots->size());
    for (const std::uint32_t slot : *slots) out.admission.slots.emplace_back(slot);
  }
  const std::size_t blocks = out.admission.block_count;
  const std::size_t slots = out.admission.slots.size();
  const bool whole_groups = blocks == 0 ? slots == 0 : slots % blocks == 0;
  if (!whole_groups) return kContradiction;
  return out;
}

Result<StepAnswer> decode(const wire::StepReply& in) {
  StepAnswer out;
  KV_TRY(const auto failures, elements(in.failures()));
  const auto* reasons = in.failure_reasons();
  for (std::size_t i = 0; i < failures.size(); ++i) {
    const wire::ErrorCode code = failures[i].code();
    if (!known(code) || code == wire::ErrorCode::ok) return kContradiction;
    const auto index = static_cast<flatbuffers::uoffset_t>(i);
    const bool has_reason = reasons != nullptr && index < reasons->size();
    const auto reason = has_reason ? text_of(reasons->Get(index)) : std::string_view();
    out.failures.push_back({failures[i].item(), error_of(code, reason, {})});
  }
  KV_TRY(const auto deltas, elements(in.deltas()));
  const std::size_t slot_count = in.slots() == nullptr ? 0 : in.slots()->size();
  for (const wire::TableDelta& delta : deltas) {
    const bool inside =
        delta.slot_offset() <= slot_count && delta.slot_count() <= slot_count - delta.slot_offset();
    if (!inside) return kContradiction;
    TableDelta& made = out.deltas.emplace_back();
    made.sequence = SequenceId(delta.sequence());
    made.group = GroupId(delta.group());
    made.version = delta.version();
    made.first_block = delta.first_block();
    for (std::uint32_t i = 0; i < delta.slot_count(); ++i) {
      made.slots.emplace_back(in.slots()->Get(delta.slot_offset() + i));
    }
  }
  KV_TRY(const auto ended, elements(in.ended()));
  for (const wire::EndedSequence& end : ended) {
    out.ended.push_back({SequenceId(end.sequence()), account_of(end.account())});
  }
  KV_TRY(const auto copies, elements(in.copies()));
  for (const wire::BlockCopy& copy : copies) {
    out.copies.push_back({SequenceId(copy.sequence()), GroupId(copy.group()),
                          SlotId(copy.from_slot()), SlotId(copy.to_slot()), copy.token_count()});
  }
  return out;
}

Result<std::array<std::uint64_t, kTierCount>> decode_by_tier(
    const flatbuffers::Vector<std::uint64_t>* by_tier) {
  std::array<std::uint64_t, kTierCount> out{};
  if (by_tier == nullptr) return out;
  if (by_tier->size() > kTierCount) return kContradiction;
  if (reinterpret_cast<std::uintptr_t>(by_tier->Data()) % alignof(std::uint64_t) != 0) {
    return kContradiction;
  }
  std::ranges::copy(*by_tier, out.begin());
  return out;
}

Result<LookupHits> decode(const wire::LookupReply& in) {
  LookupHits out;
  out.hit_tokens = in.hit_tokens();
  out.known_tokens = in.known_tokens();
  KV_TRY(out.hit_tokens_by_tier, decode_by_tier(in.hit_tokens_by_tier()));
  return out;
}

static_assert(static_cast<int>(wire::MissReason::MAX) + 1 == kMissReasonCount);
static_assert(static_cast<int>(wire::MissCause::MAX) + 1 == kMissCauseCount);
static_assert(static_cast<int>(wire::NamespaceField::MAX) + 1 == kNamespaceFieldCount);

Result<WhyAnswer> decode(const wire::WhyReply& in) {
  WhyAnswer out;
  out.prompt_tokens = in.prompt_tokens();
  KV_TRY(out.hit_tokens_by_tier, decode_by_tier(in.hit_tokens_by_tier()));
  out.computed_tokens = in.computed_tokens();
  out.history_ms = in.history_ms();
  KV_TRY(const auto spans, elements(in.spans()));
  for (const wire::WhySpan& span : spans) {
    const bool is_known = in_range(span.reason(), wire::MissReason::MAX) &&
                          in_range(span.cause(), wire::MissCause::MAX) &&
                          in_range(span.tier(), wire::Tier::MAX) &&
                          in_range(span.field(), wire::NamespaceField::MAX);
    if (!is_known) return kContradiction;
    out.spans.push_back({.first_token = span.first_token(),
                         .token_count = span.token_count(),
                         .reason = static_cast<MissReason>(span.reason()),
                         .cause = static_cast<MissCause>(span.cause()),
                         .tier = static_cast<Tier>(span.tier()),
                         .field = static_cast<NamespaceField>(span.field()),
                         .position = span.position(),
                         .reuses = span.reuses(),
                         .ago_ms = span.ago_ms()});
  }
  return out;
}

Result<ServiceStatus> decode(const wire::StatusReply& in) {
  ServiceStatus out;
  out.clients = in.clients();
  out.sequences = in.sequences();
  out.transfers_in_flight = in.transfers_in_flight();
  out.tree_blocks = in.tree_blocks();
  out.tree_nodes = in.tree_nodes();
  out.holes = in.holes();
  out.namespaces = in.namespaces();
  out.block_tokens = in.block_tokens();
  out.metadata_bytes = in.metadata_bytes();
  out.recovering = in.recovering();
  out.retired_blocks = in.retired_blocks();
  if (in.disk_problem() != nullptr) out.disk_problem = in.disk_problem()->str();
  KV_TRY(const auto epochs, elements(in.epochs()));
  for (const wire::NamespaceEpoch& of : epochs) {
    out.epochs.push_back({digest_of(of.namespace_digest()), of.epoch()});
  }
  KV_TRY(const auto tiers, elements(in.tiers()));
  if (tiers.size() > kTierCount) return kContradiction;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const wire::TierStatus& tier = tiers[i];
    out.tiers[i] = {.slot_bytes = tier.slot_bytes(),
                    .slots = tier.slots(),
                    .free = tier.free(),
                    .held = tier.held(),
                    .cached = tier.cached(),
                    .fenced = tier.fenced(),
                    .covered = tier.covered(),
                    .evictable = tier.evictable(),
                    .arriving = tier.arriving()};
  }
  if (const auto* counters = in.counters(); counters != nullptr) {
    for (const auto* counter : *counters) {
      out.counters.push_back({std::string(text_of(counter->name())), counter->value()});
    }
  }
  return out;
}

Result<TreeView> decode(const wire::TreeReply& in) {
  TreeView out;
  out.truncated = in.truncated();
  KV_TRY(const auto nodes, elements(in.nodes()));
  for (const wire::TreeNode& node : nodes) {
    const bool parent_first =
        node.parent() == TreeNode::kNoParent || node.parent() < out.nodes.size();
    if (!parent_first) return kContradiction;
    out.nodes.push_back({.parent = node.parent(),
                         .namespace_digest = digest_of(node.namespace_digest()),
                         .last_key = digest_of(node.last_key()),
                         .depth = node.depth(),
                         .block_count = node.block_count(),
                         .copies = {node.device_copies(), node.host_copies(), node.disk_copies(),
                                    node.remote_copies()},
                         .pinned = node.pinned()});
  }
  return out;
}

template <class Table>
Result<void> decode_into(ReplyBody& body, const Table* table) {
  KV_TRY(auto value, decode(*table));
  body = std::move(value);
  return {};
}

Result<void> decode_body(const wire::Reply& in, ReplyBody& body) {
  if (in.body() == nullptr) return {};
  switch (in.body_type()) {
    case wire::ReplyBody::HelloReply:
      body = HelloAnswer{in.body_as_HelloReply()->lease_ms(), in.body_as_HelloReply()->credits(),
                         in.body_as_HelloReply()->message_bytes()};
      return {};
    case wire::ReplyBody::AttachPoolReply:
      return decode_into(body, in.body_as_AttachPoolReply());
    case wire::ReplyBody::AdmitReply:
      return decode_into(body, in.body_as_AdmitReply());
    case wire::ReplyBody::StepReply:
      return decode_into(body, in.body_as_StepReply());
    case wire::ReplyBody::LookupReply:
      return decode_into(body, in.body_as_LookupReply());
    case wire::ReplyBody::StatusReply:
      return decode_into(body, in.body_as_StatusReply());
    case wire::ReplyBody::TreeReply:
      return decode_into(body, in.body_as_TreeReply());
    case wire::ReplyBody::DemoteReply: {
      const auto& reply = *in.body_as_DemoteReply();
      body = DemoteOutcome{reply.saved_blocks(), reply.dropped_blocks(), reply.kept_blocks()};
      return {};
    }
    case wire::ReplyBody::FlushReply:
      body = FlushOutcome{in.body_as_FlushReply()->durable_blocks(),
                          in.body_as_FlushReply()->unsaved_blocks()};
      return {};
    case wire::ReplyBody::ClearReply: {
      const auto& reply = *in.body_as_ClearReply();
      body = ClearOutcome{reply.cleared_blocks(), reply.kept_blocks(), reply.epoch()};
      return {};
    }
    case wire::ReplyBody::WhyReply:
      return decode_into(body, in.body_as_WhyReply());
    case wire::ReplyBody::NONE:
      return {};
  }
  return {};  // of a later protocol
}

Result<std::vector<Notice>> decode_notices(const wire::Reply& in) {
  KV_TRY(const auto notices, elements(in.notices()));
  std::vector<Notice> out;
  out.reserve(notices.size());
  for (const wire::Notice& notice : notices) {
    if (!known(notice.code())) return kContradiction;
    if (!in_range(notice.kind(), wire::NoticeKind::lease_expired)) return kContradiction;
    out.push_back({.number = notice.number(),
                   .sequence = SequenceId(notice.sequence()),
                   .account = account_of(notice.account()),
                   .kind = static_cast<NoticeKind>(notice.kind()),
                   .code = static_cast<ErrorCode>(notice.code())});
  }
  return out;
}

}  // namespace

Result<ReplyMessage> decode_reply(std::span<const std::byte> frame) {
  if (frame.size() > kReplyBytesMax) {
    return Error{ErrorCode::too_large, "a reply has at most 64 MiB", "reply"};
  }
  const AlignedFrame aligned(frame);
  flatbuffers::Verifier verifier(aligned.data(), aligned.size(), kVerifierDepth, kVerifierTables);
  if (!wire::VerifyReplyBuffer(verifier)) {
    return Error{ErrorCode::corrupt, "a frame is no valid reply", "reply"};
  }
  const wire::Reply& in = *wire::GetReply(aligned.data());
  if (!known(in.code())) return kContradiction;
  ReplyMessage out;
  if (in.boot() != nullptr) out.boot = {in.boot()->a(), in.boot()->b()};
  out.request = RequestId(in.request());
  if (in.code() != wire::ErrorCode::ok) {
    out.error = error_of(in.code(), text_of(in.reason()), text_of(in.field()));
  }
  out.retry_after_us = in.retry_after_us();
  KV_TRY(out.notices, decode_notices(in));
  KV_TRY_VOID(decode_body(in, out.body));
  return out;
}

}  // namespace kv::client
