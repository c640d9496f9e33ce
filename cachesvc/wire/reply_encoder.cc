#include "cachesvc/wire/reply_encoder.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cachesvc/wire/counter_names.h"
#include "schemas/reply_generated.h"

namespace kv::codec {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
template <class T>
using StructVector = Offset<flatbuffers::Vector<const T*>>;

// The schema's words are the core's words.
static_assert(static_cast<std::uint8_t>(wire::ErrorCode::mismatch) ==
              static_cast<std::uint8_t>(ErrorCode::mismatch));
static_assert(static_cast<std::uint8_t>(wire::ErrorCode::MAX) == kErrorCodeCount - 1);
static_assert(static_cast<std::uint8_t>(wire::NoticeKind::lease_expired) ==
              static_cast<std::uint8_t>(core::NoticeKind::lease_expired));
static_assert(static_cast<std::uint8_t>(wire::NoticeKind::MAX) == core::kNoticeKindCount - 1);
static_assert(static_cast<std::uint8_t>(wire::MissReason::MAX) == core::kMissReasonCount - 1);
static_assert(static_cast<std::uint8_t>(wire::MissReason::history_lost) ==
              static_cast<std::uint8_t>(core::MissReason::history_lost));
static_assert(static_cast<std::uint8_t>(wire::MissCause::MAX) == core::kMissCauseCount - 1);
static_assert(static_cast<std::uint8_t>(wire::MissCause::dropped) ==
              static_cast<std::uint8_t>(core::MissCause::dropped));
static_assert(static_cast<std::uint8_t>(wire::NamespaceField::MAX) == kNamespaceFieldCount - 1);
static_assert(static_cast<std::uint8_t>(wire::NamespaceField::salt) ==
              static_cast<std::uint8_t>(NamespaceField::salt));
// Lists by tier and structs with a field for each tier.
static_assert(kTierCount == 4);
static_assert(sizeof(SlotId) == sizeof(std::uint32_t));

struct Body {
  wire::ReplyBody type = wire::ReplyBody::NONE;
  Offset<void> table;
};

wire::ErrorCode wire_code(ErrorCode code) { return static_cast<wire::ErrorCode>(code); }

wire::Account wire_account(const core::Account& from) {
  return {from.prompt_tokens, from.hit_tokens[0],   from.hit_tokens[1],   from.hit_tokens[2],
          from.hit_tokens[3], from.computed_tokens, from.generated_tokens};
}

// The digest's bytes in order are the bytes of the four little-endian words in order.
wire::Digest wire_digest(const Digest& from) {
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < from.bytes.size(); ++i) {
    words[i / 8] |= std::to_integer<std::uint64_t>(from.bytes[i]) << (8 * (i % 8));
  }
  return {words[0], words[1], words[2], words[3]};
}

// An absent vector reads as an empty one.
template <class T, class From, class Convert>
StructVector<T> structs(FlatBufferBuilder& builder, const From& from, const Convert& convert) {
  if (from.empty()) return {};
  const auto fill = [&](std::size_t i, T* to, const From* all) { *to = convert((*all)[i]); };
  return builder.CreateVectorOfStructs<T>(from.size(), fill, &from);
}

Offset<flatbuffers::Vector<std::uint32_t>> slot_vector(FlatBufferBuilder& builder,
                                                       const std::vector<SlotId>& slots) {
  if (slots.empty()) return {};
  return builder.CreateVector(&slots.data()->value, slots.size());
}

Offset<flatbuffers::String> text(FlatBufferBuilder& builder, std::string_view from) {
  if (from.empty()) return {};
  return builder.CreateString(from.data(), from.size());
}

Body encode_body(FlatBufferBuilder& builder, const core::HelloReply& from) {
  return {wire::ReplyBody::HelloReply,
          wire::CreateHelloReply(builder, from.lease_ms, from.credits, from.message_bytes).Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::AttachPoolReply& from) {
  const auto groups = structs<wire::PoolGroup>(builder, from.groups, [](const auto& group) {
    return wire::PoolGroup(group.offset, group.slot_bytes, group.slot_count);
  });
  return {wire::ReplyBody::AttachPoolReply,
          wire::CreateAttachPoolReply(builder, from.pool_bytes, groups).Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::AdmitReply& from) {
  const auto slots = slot_vector(builder, from.slots);
  const wire::Account account = wire_account(from.account);
  return {wire::ReplyBody::AdmitReply,
          wire::CreateAdmitReply(builder, from.ready, &account, from.table_version,
                                 from.block_count, slots)
              .Union()};
}

Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> failure_texts(
    FlatBufferBuilder& builder, const std::vector<core::StepReply::Failure>& failures,
    std::string_view Error::* part) {
  std::vector<Offset<flatbuffers::String>> texts;
  texts.reserve(failures.size());
  for (const auto& failure : failures) {
    const std::string_view from = failure.error.*part;
    texts.push_back(builder.CreateString(from.data(), from.size()));
  }
  return builder.CreateVector(texts);
}

Body encode_body(FlatBufferBuilder& builder, const core::StepReply& from) {
  const auto failures = structs<wire::StepFailure>(builder, from.failures, [](const auto& failure) {
    return wire::StepFailure(failure.item, wire_code(failure.error.code));
  });
  Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> reasons;
  Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> fields;
  if (!from.failures.empty()) {
    reasons = failure_texts(builder, from.failures, &Error::reason);
    const auto has_field = [](const auto& failure) { return !failure.error.field.empty(); };
    if (std::ranges::any_of(from.failures, has_field)) {
      fields = failure_texts(builder, from.failures, &Error::field);
    }
  }
  const auto deltas = structs<wire::TableDelta>(builder, from.deltas, [](const auto& delta) {
    return wire::TableDelta(delta.sequence.value, delta.group.value, delta.version,
                            delta.first_block, delta.slot_offset, delta.slot_count);
  });
  const auto slots = slot_vector(builder, from.slots);
  const auto ended = structs<wire::EndedSequence>(builder, from.ended, [](const auto& sequence) {
    return wire::EndedSequence(sequence.sequence.value, wire_account(sequence.account));
  });
  const auto copies = structs<wire::BlockCopy>(builder, from.copies, [](const auto& copy) {
    return wire::BlockCopy(copy.sequence.value, copy.group.value, copy.from_slot.value,
                           copy.to_slot.value, copy.token_count);
  });
  return {wire::ReplyBody::StepReply,
          wire::CreateStepReply(builder, failures, reasons, deltas, slots, ended, fields, copies)
              .Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::LookupReply& from) {
  const auto by_tier =
      builder.CreateVector(from.hit_tokens_by_tier.data(), from.hit_tokens_by_tier.size());
  return {wire::ReplyBody::LookupReply,
          wire::CreateLookupReply(builder, from.hit_tokens, by_tier, from.known_tokens).Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::WhyReply& from) {
  const auto by_tier = builder.CreateVector(from.hit_tokens.data(), from.hit_tokens.size());
  const auto spans = structs<wire::WhySpan>(builder, from.spans, [](const auto& span) {
    return wire::WhySpan(
        span.ago_ms, span.first_token, span.token_count, span.position, span.reuses,
        static_cast<wire::MissReason>(span.reason), static_cast<wire::MissCause>(span.cause),
        static_cast<wire::Tier>(span.tier), static_cast<wire::NamespaceField>(span.field));
  });
  return {wire::ReplyBody::WhyReply,
          wire::CreateWhyReply(builder, from.prompt_tokens, by_tier, from.computed_tokens, spans,
                               from.history_ms)
              .Union()};
}

Offset<flatbuffers::Vector<Offset<wire::Counter>>> counter_vector(FlatBufferBuilder& builder,
                                                                  const core::Counters& counters,
                                                                  const ShellCounters* shell) {
  std::vector<Offset<wire::Counter>> entries;
  const auto add = [&](const std::string& name, std::uint64_t value) {
    entries.push_back(wire::CreateCounter(builder, builder.CreateString(name), value));
  };
  for (const CounterName& counter : kCounterNames) {
    const std::string name(counter.name);
    if (counter.value != nullptr) {
      add(name, counters.*counter.value);
      continue;
    }
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      add(name + "." + std::string(tier_name(static_cast<Tier>(tier))),
          (counters.*counter.by_tier)[tier]);
    }
  }
  if (shell != nullptr) {
    for (const ShellCounterName& counter : kShellCounterNames) {
      add(std::string(counter.name), shell->*counter.value);
    }
  }
  return builder.CreateVector(entries);
}

Body encode_status(FlatBufferBuilder& builder, const core::StatusReply& from,
                   const ShellCounters* shell, std::string_view disk_problem) {
  const auto tiers = structs<wire::TierStatus>(builder, from.tiers, [](const auto& tier) {
    return wire::TierStatus(tier.slot_bytes, tier.slots, tier.free, tier.held, tier.cached,
                            tier.fenced, tier.covered, tier.evictable, tier.arriving);
  });
  const auto counters = counter_vector(builder, from.counters, shell);
  const auto epochs = structs<wire::NamespaceEpoch>(builder, from.epochs, [](const auto& of) {
    return wire::NamespaceEpoch(wire_digest(of.namespace_digest), of.epoch);
  });
  const auto problem = text(builder, disk_problem);
  wire::StatusReplyBuilder status(builder);
  status.add_tiers(tiers);
  status.add_counters(counters);
  status.add_clients(from.clients);
  status.add_sequences(from.sequences);
  status.add_transfers_in_flight(from.transfers_in_flight);
  status.add_tree_blocks(from.tree_blocks);
  status.add_tree_nodes(from.tree_nodes);
  status.add_holes(from.holes);
  status.add_namespaces(from.namespaces);
  status.add_block_tokens(from.block_tokens);
  status.add_metadata_bytes(from.metadata_bytes);
  status.add_recovering(from.recovering);
  status.add_retired_blocks(from.retired_blocks);
  status.add_epochs(epochs);
  status.add_disk_problem(problem);
  return {wire::ReplyBody::StatusReply, status.Finish().Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::TreeReply& from) {
  const auto nodes = structs<wire::TreeNode>(builder, from.nodes, [](const auto& node) {
    return wire::TreeNode(wire_digest(node.namespace_digest), wire_digest(node.last_key),
                          node.parent, node.depth, node.block_count, node.copies[0], node.copies[1],
                          node.copies[2], node.copies[3], node.pinned);
  });
  return {wire::ReplyBody::TreeReply,
          wire::CreateTreeReply(builder, nodes, from.truncated).Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::DemoteReply& from) {
  return {wire::ReplyBody::DemoteReply,
          wire::CreateDemoteReply(builder, from.saved_blocks, from.dropped_blocks, from.kept_blocks)
              .Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::FlushReply& from) {
  return {wire::ReplyBody::FlushReply,
          wire::CreateFlushReply(builder, from.durable_blocks, from.unsaved_blocks).Union()};
}

Body encode_body(FlatBufferBuilder& builder, const core::ClearReply& from) {
  return {
      wire::ReplyBody::ClearReply,
      wire::CreateClearReply(builder, from.cleared_blocks, from.kept_blocks, from.epoch).Union()};
}

Body encode_body(FlatBufferBuilder& /*builder*/, std::monostate /*from*/) { return {}; }

StructVector<wire::Notice> notice_vector(FlatBufferBuilder& builder,
                                         std::span<const core::Notice> notices) {
  return structs<wire::Notice>(builder, notices, [](const core::Notice& notice) {
    return wire::Notice(notice.number, notice.sequence.value, wire_account(notice.account),
                        static_cast<wire::NoticeKind>(notice.kind), wire_code(notice.code));
  });
}

}  // namespace

struct ReplyEncoder::State {
  Id128 boot;
  const ShellCounters* shell = nullptr;
  std::string disk_problem;
  FlatBufferBuilder builder;

  [[nodiscard]] std::span<const std::byte> finish(const core::Reply& reply, std::uint64_t request,
                                                  std::span<const core::Notice> notices);
};

std::span<const std::byte> ReplyEncoder::State::finish(const core::Reply& reply,
                                                       std::uint64_t request,
                                                       std::span<const core::Notice> notices) {
  builder.Clear();
  const Body body = std::visit(
      [this](const auto& from) {
        if constexpr (std::is_same_v<std::decay_t<decltype(from)>, core::StatusReply>) {
          return encode_status(builder, from, shell, disk_problem);
        } else {
          return encode_body(builder, from);
        }
      },
      reply.body);
  const auto reason = text(builder, reply.error.reason);
  const auto field = text(builder, reply.error.field);
  const auto notice_structs = notice_vector(builder, notices);
  const wire::Id128 boot_id(boot.a, boot.b);
  wire::FinishReplyBuffer(
      builder,
      wire::CreateReply(builder, &boot_id, request, wire_code(reply.error.code), reason, field,
                        reply.retry_after_us, notice_structs, body.type, body.table));
  return {reinterpret_cast<const std::byte*>(builder.GetBufferPointer()), builder.GetSize()};
}

ReplyEncoder::ReplyEncoder(const Id128& boot, const ShellCounters* shell)
    : state_(std::make_unique<State>()) {
  state_->boot = boot;
  state_->shell = shell;
}
ReplyEncoder::~ReplyEncoder() = default;

void ReplyEncoder::set_disk_problem(std::string problem) {
  state_->disk_problem = std::move(problem);
}

std::span<const std::byte> ReplyEncoder::encode(const core::Reply& reply,
                                                std::span<const core::Notice> notices) {
  return state_->finish(reply, reply.request.is_none() ? 0 : reply.request.value, notices);
}

std::span<const std::byte> ReplyEncoder::encode_notices(std::span<const core::Notice> notices) {
  return state_->finish(core::Reply{}, 0, notices);
}

}  // namespace kv::codec
