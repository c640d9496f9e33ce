#include "plugins/client/request_encoder.h"

#include <cstdint>
#include <string_view>

#include "schemas/request_generated.h"

namespace kv::client {
namespace {

using Builder = flatbuffers::FlatBufferBuilder;
using Body = flatbuffers::Offset<void>;

static_assert(static_cast<int>(StepOp::drop) == static_cast<int>(wire::StepOp::drop));
static_assert(sizeof(SequenceId) == sizeof(std::uint64_t));
static_assert(static_cast<int>(Tier::remote) == static_cast<int>(wire::Tier::remote));

wire::Id128 to_wire(const Id128& id) { return {id.a, id.b}; }

flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes(Builder& builder,
                                                             std::string_view text) {
  if (text.empty()) return 0;
  return builder.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

flatbuffers::Offset<wire::Namespace> to_wire(Builder& builder, const NamespaceFields& fields) {
  const auto weights = bytes(builder, fields.weights);
  const auto model_config = bytes(builder, fields.model_config);
  const auto adapter = bytes(builder, fields.adapter);
  const auto adapter_revision = bytes(builder, fields.adapter_revision);
  const auto salt = bytes(builder, fields.salt);
  return wire::CreateNamespace(builder, weights, model_config, adapter, adapter_revision, salt);
}

flatbuffers::Offset<flatbuffers::Vector<std::uint32_t>> tokens_of(Builder& builder,
                                                                  std::span<const Token> tokens) {
  if (tokens.empty()) return 0;
  return builder.CreateVector(tokens.data(), tokens.size());
}

// One overload a message: the body's table, and its union type beside it.
struct Writer {
  Builder& builder;
  wire::RequestBody type = wire::RequestBody::NONE;

  template <class T>
  Body done(wire::RequestBody body, flatbuffers::Offset<T> table) {
    type = body;
    return table.Union();
  }
  Body operator()(const HelloMessage& message) {
    const auto name = builder.CreateString(message.name.data(), message.name.size());
    return done(wire::RequestBody::Hello,
                wire::CreateHello(builder, kProtocolVersion, name, message.instance, message.rank));
  }
  Body operator()(const HeartbeatMessage&) {
    return done(wire::RequestBody::Heartbeat, wire::CreateHeartbeat(builder));
  }
  Body operator()(const ByeMessage&) {
    return done(wire::RequestBody::Bye, wire::CreateBye(builder));
  }
  Body operator()(const PoolMessage& message) {
    const auto& groups = message.layout->groups;
    wire::LayerGroup* out = nullptr;
    const auto vector = builder.CreateUninitializedVectorOfStructs(groups.size(), &out);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const LayerGroup& group = groups[i];
      out[i] = wire::LayerGroup(
          static_cast<std::uint8_t>(group.kind), static_cast<std::uint8_t>(group.k_dtype),
          static_cast<std::uint8_t>(group.v_dtype), group.layer_count, group.kv_head_count,
          group.head_dim_k, group.head_dim_v, group.window_tokens, group.sink_tokens);
    }
    const auto layout = wire::CreateLayout(builder, message.layout->block_tokens, vector);
    return done(wire::RequestBody::AttachPool, wire::CreateAttachPool(builder, layout));
  }
  Body operator()(const OpenMessage& message) {
    flatbuffers::Offset<wire::Namespace> fields;
    if (message.fields != nullptr) fields = to_wire(builder, *message.fields);
    const auto tokens = tokens_of(builder, message.tokens);
    return done(wire::RequestBody::Open,
                wire::CreateOpen(builder, message.sequence.value, fields, tokens,
                                 message.options.skip_read, message.options.accept_rewrite));
  }
  Body operator()(const AdmitMessage& message) {
    return done(wire::RequestBody::Admit,
                wire::CreateAdmit(builder, message.sequence.value, message.max_new_tokens));
  }
  Body operator()(const StepMessage& message) {
    wire::StepItem* out = nullptr;
    const auto items = builder.CreateUninitializedVectorOfStructs(message.items.size(), &out);
    for (std::size_t i = 0; i < message.items.size(); ++i) {
      const StepItem& item = message.items[i];
      out[i] = wire::StepItem(item.sequence.value, static_cast<std::uint8_t>(item.op),
                              item.token_offset, item.token_count, item.value);
    }
    const auto tokens = tokens_of(builder, message.tokens);
    flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> children;
    if (!message.children.empty()) {
      children = builder.CreateVector(&message.children.data()->value, message.children.size());
    }
    return done(wire::RequestBody::Step,
                wire::CreateStep(builder, message.step_seq, message.completed_step, items, tokens,
                                 children));
  }
  Body operator()(const LookupMessage& message) {
    const auto fields = to_wire(builder, *message.fields);
    const auto tokens = tokens_of(builder, message.tokens);
    return done(wire::RequestBody::Lookup, wire::CreateLookup(builder, fields, tokens));
  }
  Body operator()(const WhyMessage& message) {
    const auto fields = to_wire(builder, *message.fields);
    const auto tokens = tokens_of(builder, message.tokens);
    return done(wire::RequestBody::Why, wire::CreateWhy(builder, fields, tokens));
  }
  Body operator()(const StatusMessage&) {
    return done(wire::RequestBody::Status, wire::CreateStatus(builder));
  }
  Body operator()(const TreeMessage& message) {
    return done(wire::RequestBody::Tree, wire::CreateTree(builder, message.node_limit));
  }
  Body operator()(const DemoteMessage& message) {
    return done(wire::RequestBody::Demote,
                wire::CreateDemote(builder, static_cast<wire::Tier>(message.tier)));
  }
  Body operator()(const FlushMessage&) {
    return done(wire::RequestBody::Flush, wire::CreateFlush(builder));
  }
  Body operator()(const ClearMessage& message) {
    flatbuffers::Offset<wire::Namespace> fields;
    if (message.fields != nullptr) fields = to_wire(builder, *message.fields);
    const auto tier = static_cast<wire::Tier>(message.tier.value_or(Tier::device));
    return done(wire::RequestBody::Clear,
                wire::CreateClear(builder, !message.tier.has_value(), tier, fields));
  }
  Body operator()(const SetEpochMessage& message) {
    const auto fields = to_wire(builder, *message.fields);
    return done(wire::RequestBody::SetEpoch, wire::CreateSetEpoch(builder, fields, message.epoch));
  }
};

// The service refuses what is over its limits; a caller learns it here, without a lost connection.
struct LimitCheck {
  static Result<void> fields(const NamespaceFields& fields) {
    for (const auto field : {fields.weights, fields.model_config, fields.adapter,
                             fields.adapter_revision, fields.salt}) {
      if (field.size() > kNamespaceFieldBytesMax) {
        return Error{ErrorCode::too_large, "a namespace field has at most 4096 bytes", "namespace"};
      }
    }
    return {};
  }
  static Result<void> tokens(std::span<const Token> tokens) {
    if (tokens.size() <= kTokensPerMessageMax) return {};
    return Error{ErrorCode::too_large, "a message has at most 65536 tokens", "tokens"};
  }

  Result<void> operator()(const HelloMessage& message) const {
    if (message.name.size() <= kNameBytesMax) return {};
    return Error{ErrorCode::too_large, "a client's name has at most 128 bytes", "name"};
  }
  Result<void> operator()(const PoolMessage& message) const {
    if (message.layout->groups.size() <= kLayerGroupsMax) return {};
    return Error{ErrorCode::too_large, "a layout has at most 8 layer groups", "groups"};
  }
  Result<void> operator()(const OpenMessage& message) const {
    if (message.fields != nullptr) KV_TRY_VOID(fields(*message.fields));
    return tokens(message.tokens);
  }
  Result<void> operator()(const StepMessage& message) const {
    if (message.items.size() > kStepItemsMax) {
      return Error{ErrorCode::too_large, "a step has at most 4096 items", "items"};
    }
    if (message.children.size() > kStepItemsMax) {
      return Error{ErrorCode::too_large, "a step has at most 4096 children", "children"};
    }
    return tokens(message.tokens);
  }
  Result<void> operator()(const LookupMessage& message) const {
    KV_TRY_VOID(fields(*message.fields));
    return tokens(message.tokens);
  }
  Result<void> operator()(const WhyMessage& message) const {
    KV_TRY_VOID(fields(*message.fields));
    return tokens(message.tokens);
  }
  Result<void> operator()(const ClearMessage& message) const {
    if (message.fields == nullptr) return {};
    return fields(*message.fields);
  }
  Result<void> operator()(const SetEpochMessage& message) const { return fields(*message.fields); }
  template <class Other>
  Result<void> operator()(const Other&) const {
    return {};
  }
};

}  // namespace

struct RequestEncoder::State {
  Builder builder{4'096};
  std::size_t bytes_max = kRequestBytesMax;
};

RequestEncoder::RequestEncoder() : state_(std::make_unique<State>()) {}
RequestEncoder::~RequestEncoder() = default;
RequestEncoder::RequestEncoder(RequestEncoder&&) noexcept = default;
RequestEncoder& RequestEncoder::operator=(RequestEncoder&&) noexcept = default;

void RequestEncoder::limit_bytes(std::size_t bytes) { state_->bytes_max = bytes; }

Result<std::span<const std::byte>> RequestEncoder::encode(const RequestHead& head,
                                                          const RequestMessage& message) {
  KV_TRY_VOID(std::visit(LimitCheck{}, message));
  Builder& builder = state_->builder;
  builder.Clear();
  Writer writer{builder};
  const Body body = std::visit(writer, message);
  const wire::Id128 secret = to_wire(head.secret);
  wire::FinishRequestBuffer(
      builder, wire::CreateRequest(builder, head.client.value, &secret, head.request.value,
                                   head.notices_acknowledged, writer.type, body));
  if (builder.GetSize() > state_->bytes_max) {
    return Error{ErrorCode::too_large, "a request is longer than the service takes", "request"};
  }
  return std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
}

}  // namespace kv::client
