#include "cachesvc/wire/request_decoder.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "schemas/request_generated.h"

namespace kv::codec {
namespace {

// Numbers are read in place.
static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(Token) == sizeof(std::uint32_t));
// The schema's words are the core's words.
static_assert(static_cast<std::uint8_t>(wire::StepOp::drop) ==
              static_cast<std::uint8_t>(core::StepOp::drop));
static_assert(static_cast<std::uint8_t>(wire::StepOp::MAX) == core::kStepOpCount - 1);
static_assert(static_cast<std::uint8_t>(wire::Tier::remote) ==
              static_cast<std::uint8_t>(Tier::remote));
static_assert(static_cast<std::uint8_t>(wire::Tier::MAX) == kTierCount - 1);

constexpr std::size_t kFrameAlignment = 8;  // of the widest scalar in the schemas
constexpr std::uint32_t kVerifyDepthMax = 16;
constexpr std::uint32_t kVerifyTablesMax = 4'096;

bool is_aligned(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kFrameAlignment == 0;
}

Error invalid(std::string_view reason, std::string_view field) {
  return Error{ErrorCode::invalid, reason, field};
}

Error too_large(std::string_view reason, std::string_view field) {
  return Error{ErrorCode::too_large, reason, field};
}

// Names are shown to people: nothing that could steer a terminal or break a line.
bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

Result<SequenceId> sequence_id(std::uint64_t value) {
  if (SequenceId(value).is_none()) return invalid("reserved value", "sequence");
  return SequenceId(value);
}

Result<std::span<const Token>> token_span(const flatbuffers::Vector<std::uint32_t>* tokens) {
  if (tokens == nullptr) return std::span<const Token>();
  if (tokens->size() > core::kTokensPerMessageMax) return too_large("too many", "tokens");
  return std::span<const Token>(tokens->data(), tokens->size());
}

Result<std::string_view> namespace_field(const flatbuffers::Vector<std::uint8_t>* bytes,
                                         std::string_view name) {
  if (bytes == nullptr) return std::string_view();
  if (bytes->size() > kNamespaceFieldBytesMax) return too_large("too long", name);
  return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

// The tenant is not of the message, and block_tokens is the service's: both stay as they are.
Result<NamespaceFields> namespace_fields(const wire::Namespace& from) {
  NamespaceFields fields;
  KV_TRY(fields.weights, namespace_field(from.weights(), "weights"));
  KV_TRY(fields.model_config, namespace_field(from.model_config(), "model_config"));
  KV_TRY(fields.adapter, namespace_field(from.adapter(), "adapter"));
  KV_TRY(fields.adapter_revision, namespace_field(from.adapter_revision(), "adapter_revision"));
  KV_TRY(fields.salt, namespace_field(from.salt(), "salt"));
  return fields;
}

Result<LayerGroup> layer_group(const wire::LayerGroup& from) {
  if (from.kind() >= kAttentionKindCount) return invalid("out of range", "kind");
  if (from.k_dtype() >= kDTypeCount) return invalid("out of range", "k_dtype");
  if (from.v_dtype() >= kDTypeCount) return invalid("out of range", "v_dtype");
  return LayerGroup{.kind = static_cast<AttentionKind>(from.kind()),
                    .layer_count = from.layer_count(),
                    .kv_head_count = from.kv_head_count(),
                    .head_dim_k = from.head_dim_k(),
                    .head_dim_v = from.head_dim_v(),
                    .k_dtype = static_cast<DType>(from.k_dtype()),
                    .v_dtype = static_cast<DType>(from.v_dtype()),
                    .window_tokens = from.window_tokens(),
                    .sink_tokens = from.sink_tokens()};
}

// A wire item is a core item: both are copied as bytes, then looked at in place.
static_assert(sizeof(wire::StepItem) == sizeof(core::StepItem));
static_assert(std::is_trivially_copyable_v<core::StepItem>);
static_assert(offsetof(core::StepItem, sequence) == 0 && offsetof(core::StepItem, op) == 8);
static_assert(offsetof(core::StepItem, token_offset) == 12);
static_assert(offsetof(core::StepItem, token_count) == 16);
static_assert(offsetof(core::StepItem, value) == 20);
static_assert(sizeof(SequenceId) == sizeof(std::uint64_t));

// What an operation does not use must be 0: it stays free for a later meaning.
constexpr bool uses_offset(core::StepOp op) {
  return (op == core::StepOp::append) | (op == core::StepOp::drop);
}
constexpr bool uses_count(core::StepOp op) { return uses_offset(op) | (op == core::StepOp::fork); }
constexpr bool uses_value(core::StepOp op) {
  return (op == core::StepOp::publish) | (op == core::StepOp::truncate) |
         (op == core::StepOp::acknowledge) | (op == core::StepOp::fork);
}

// How many of each the items may name.
struct Listed {
  std::uint64_t tokens = 0, children = 0;
};

// The whole judgement, without branches: a Step has thousands of items, all of them good.
bool all_good(std::span<const core::StepItem> items, Listed listed) {
  unsigned bad = 0;
  for (const core::StepItem& item : items) {
    const std::uint64_t token_end = std::uint64_t{item.token_offset} + item.token_count;
    bad |=
        static_cast<unsigned>(item.sequence.value == SequenceId::none().value) |
        static_cast<unsigned>(static_cast<std::uint8_t>(item.op) >= core::kStepOpCount) |
        static_cast<unsigned>((token_end > listed.tokens) & (item.op == core::StepOp::append)) |
        static_cast<unsigned>((item.value >= listed.children) & (item.op == core::StepOp::fork)) |
        static_cast<unsigned>((item.token_offset != 0) & !uses_offset(item.op)) |
        static_cast<unsigned>((item.token_count != 0) & !uses_count(item.op)) |
        static_cast<unsigned>((item.value != 0) & !uses_value(item.op));
  }
  return bad == 0;
}

// Names what is wrong with an item that is not good.
Error fault_of(const core::StepItem& item, Listed listed) {
  if (item.sequence.is_none()) return invalid("reserved value", "sequence");
  if (static_cast<std::uint8_t>(item.op) >= core::kStepOpCount)
    return invalid("out of range", "op");
  if (item.op == core::StepOp::append &&
      std::uint64_t{item.token_offset} + item.token_count > listed.tokens) {
    return invalid("outside of the message's tokens", "token_count");
  }
  if (item.op == core::StepOp::fork && item.value >= listed.children) {
    return invalid("outside of the message's children", "value");
  }
  if (item.token_offset != 0 && !uses_offset(item.op)) {
    return invalid("not of this op", "token_offset");
  }
  if (item.token_count != 0 && !uses_count(item.op)) {
    return invalid("not of this op", "token_count");
  }
  KV_CHECK(item.value != 0 && !uses_value(item.op));
  return invalid("not of this op", "value");
}

Result<core::InputView> decode_hello(const core::RequestHeader& header, const wire::Hello& body) {
  std::string_view name;
  if (body.name() != nullptr) name = std::string_view(body.name()->c_str(), body.name()->size());
  if (name.size() > kClientNameBytesMax) return too_large("too long", "name");
  if (!is_printable(name)) return invalid("not printable", "name");
  return core::InputView(core::Hello{.header = header,
                                     .protocol_version = body.protocol_version(),
                                     .name = name,
                                     .instance = body.instance(),
                                     .rank = body.rank()});
}

Result<core::InputView> decode_admit(const core::RequestHeader& header, const wire::Admit& body) {
  KV_TRY(const SequenceId sequence, sequence_id(body.sequence()));
  return core::InputView(
      core::Admit{.header = header, .sequence = sequence, .max_new_tokens = body.max_new_tokens()});
}

Result<core::InputView> decode_tree(const core::RequestHeader& header, const wire::Tree& body) {
  if (body.node_limit() > core::kTreeNodesMax) return too_large("over the limit", "node_limit");
  return core::InputView(core::Tree{.header = header, .node_limit = body.node_limit()});
}

Result<core::InputView> decode_demote(const core::RequestHeader& header, const wire::Demote& body) {
  const auto tier = static_cast<std::uint8_t>(body.tier());
  if (tier >= kTierCount) return invalid("out of range", "tier");
  return core::InputView(core::Demote{.header = header, .tier = static_cast<Tier>(tier)});
}

}  // namespace

// The bodies that need memory of the decoder.
struct RequestDecoder::Body {
  RequestDecoder& decoder;
  core::RequestHeader header;

  [[nodiscard]] Result<core::InputView> attach_pool(const wire::AttachPool& body) const;
  [[nodiscard]] Result<core::InputView> open(const wire::Open& body) const;
  [[nodiscard]] Result<core::InputView> step(const wire::Step& body) const;
  [[nodiscard]] Result<core::InputView> lookup(const wire::Lookup& body) const;
  [[nodiscard]] Result<core::InputView> why(const wire::Why& body) const;
  [[nodiscard]] Result<core::InputView> clear(const wire::Clear& body) const;
  [[nodiscard]] Result<core::InputView> set_epoch(const wire::SetEpoch& body) const;
  [[nodiscard]] Result<core::InputView> any(const wire::Request& request) const;
};

Result<core::InputView> RequestDecoder::Body::attach_pool(const wire::AttachPool& body) const {
  KvLayout& layout = decoder.layout_;
  layout.block_tokens = body.layout()->block_tokens();
  layout.groups.clear();
  if (const auto* groups = body.layout()->groups(); groups != nullptr) {
    if (groups->size() > kLayerGroupsMax) return too_large("too many", "groups");
    for (const wire::LayerGroup* from : *groups) {
      KV_TRY(const LayerGroup group, layer_group(*from));
      layout.groups.push_back(group);
    }
  }
  KV_TRY_VOID(validate(layout));
  return core::InputView(core::AttachPool{.header = header, .layout = &layout});
}

Result<core::InputView> RequestDecoder::Body::open(const wire::Open& body) const {
  KV_TRY(const SequenceId sequence, sequence_id(body.sequence()));
  KV_TRY(const std::span<const Token> tokens, token_span(body.tokens()));
  const bool first = body.fields() != nullptr;
  if (first) {
    KV_TRY(decoder.fields_, namespace_fields(*body.fields()));
  }
  return core::InputView(core::Open{.header = header,
                                    .sequence = sequence,
                                    .first = first,
                                    .fields = first ? &decoder.fields_ : nullptr,
                                    .tokens = tokens,
                                    .skip_read = body.skip_read(),
                                    .accept_rewrite = body.accept_rewrite()});
}

Result<core::InputView> RequestDecoder::Body::step(const wire::Step& body) const {
  KV_TRY(const std::span<const Token> tokens, token_span(body.tokens()));
  std::span<core::StepItem> items;
  if (const auto* from = body.items(); from != nullptr && from->size() > 0) {
    if (from->size() > core::kStepItemsMax) return too_large("too many", "items");
    items = std::span(decoder.items_).first(from->size());
    // Copied: FlatBuffers 2.0.8 does not verify that elements of 8 bytes are aligned.
    std::memcpy(items.data(), from->Data(), items.size_bytes());
  }
  std::span<SequenceId> children;
  if (const auto* from = body.children(); from != nullptr && from->size() > 0) {
    if (from->size() > core::kStepItemsMax) return too_large("too many", "children");
    children = std::span(decoder.children_).first(from->size());
    std::memcpy(children.data(), from->Data(), children.size_bytes());  // as the items
    if (std::ranges::any_of(children, &SequenceId::is_none)) {
      return invalid("reserved value", "children");
    }
  }
  const Listed listed{.tokens = tokens.size(), .children = children.size()};
  if (!all_good(items, listed)) {
    const auto bad = std::ranges::find_if_not(
        items, [&](const core::StepItem& item) { return all_good(std::span(&item, 1), listed); });
    return fault_of(*bad, listed);
  }
  return core::InputView(core::Step{.header = header,
                                    .step_seq = body.step_seq(),
                                    .completed_step = body.completed_step(),
                                    .items = items,
                                    .tokens = tokens,
                                    .children = children});
}

Result<core::InputView> RequestDecoder::Body::lookup(const wire::Lookup& body) const {
  KV_TRY(const std::span<const Token> tokens, token_span(body.tokens()));
  KV_TRY(decoder.fields_, namespace_fields(*body.fields()));
  return core::InputView(
      core::Lookup{.header = header, .fields = &decoder.fields_, .tokens = tokens});
}

Result<core::InputView> RequestDecoder::Body::why(const wire::Why& body) const {
  KV_TRY(const std::span<const Token> tokens, token_span(body.tokens()));
  KV_TRY(decoder.fields_, namespace_fields(*body.fields()));
  return core::InputView(core::Why{.header = header, .fields = &decoder.fields_, .tokens = tokens});
}

Result<core::InputView> RequestDecoder::Body::clear(const wire::Clear& body) const {
  const auto tier = static_cast<std::uint8_t>(body.tier());
  if (tier >= kTierCount) return invalid("out of range", "tier");
  if (body.all_tiers() && tier != 0) return invalid("all tiers, and one of them", "tier");
  if (body.fields() != nullptr) {
    KV_TRY(decoder.fields_, namespace_fields(*body.fields()));
  }
  return core::InputView(
      core::Clear{.header = header,
                  .all_tiers = body.all_tiers(),
                  .tier = static_cast<Tier>(tier),
                  .fields = body.fields() != nullptr ? &decoder.fields_ : nullptr});
}

Result<core::InputView> RequestDecoder::Body::set_epoch(const wire::SetEpoch& body) const {
  KV_TRY(decoder.fields_, namespace_fields(*body.fields()));
  return core::InputView(
      core::SetEpoch{.header = header, .fields = &decoder.fields_, .epoch = body.epoch()});
}

Result<core::InputView> RequestDecoder::Body::any(const wire::Request& request) const {
  using wire::RequestBody;
  const RequestBody type = request.body_type();
  if (type > RequestBody::MAX) return Error{ErrorCode::unsupported, "unknown request", "body"};
  // A type may come without its table: the verifier lets that pass.
  if (type == RequestBody::NONE || request.body() == nullptr) return invalid("missing", "body");
  switch (type) {
    case RequestBody::Hello:
      return decode_hello(header, *request.body_as_Hello());
    case RequestBody::Heartbeat:
      return core::InputView(core::Heartbeat{header});
    case RequestBody::Bye:
      return core::InputView(core::Bye{header});
    case RequestBody::AttachPool:
      return attach_pool(*request.body_as_AttachPool());
    case RequestBody::Open:
      return open(*request.body_as_Open());
    case RequestBody::Admit:
      return decode_admit(header, *request.body_as_Admit());
    case RequestBody::Step:
      return step(*request.body_as_Step());
    case RequestBody::Lookup:
      return lookup(*request.body_as_Lookup());
    case RequestBody::Status:
      return core::InputView(core::Status{header});
    case RequestBody::Tree:
      return decode_tree(header, *request.body_as_Tree());
    case RequestBody::Demote:
      return decode_demote(header, *request.body_as_Demote());
    case RequestBody::Flush:
      return core::InputView(core::Flush{header});
    case RequestBody::Clear:
      return clear(*request.body_as_Clear());
    case RequestBody::SetEpoch:
      return set_epoch(*request.body_as_SetEpoch());
    case RequestBody::Why:
      return why(*request.body_as_Why());
    case RequestBody::NONE:
      break;
  }
  return invalid("missing", "body");
}

RequestDecoder::RequestDecoder()
    : copy_(std::make_unique_for_overwrite<std::byte[]>(kMessageBytesMax)) {
  items_.resize(core::kStepItemsMax);
  children_.resize(core::kStepItemsMax);
  layout_.groups.reserve(kLayerGroupsMax);
}

std::span<const std::byte> RequestDecoder::aligned(std::span<const std::byte> frame) {
  if (frame.empty() || is_aligned(frame.data())) return frame;
  std::memcpy(copy_.get(), frame.data(), frame.size());
  return {copy_.get(), frame.size()};
}

Result<DecodedRequest> RequestDecoder::decode(std::span<const std::byte> frame) {
  envelope_ = Envelope{};
  if (frame.size() > kMessageBytesMax) return too_large("over 1 MiB", "frame");
  const std::span<const std::byte> bytes = aligned(frame);
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
                                 kVerifyDepthMax, kVerifyTablesMax);
  if (!wire::VerifyRequestBuffer(verifier)) return invalid("no valid request", "frame");

  const wire::Request& request = *wire::GetRequest(bytes.data());
  envelope_.client = ClientId(request.client());
  if (const wire::Id128* secret = request.secret(); secret != nullptr) {
    envelope_.secret = Id128{secret->a(), secret->b()};
  }
  if (envelope_.client.is_none()) return invalid("reserved value", "client");
  if (request.request() == 0 || RequestId(request.request()).is_none()) {
    return invalid("reserved value", "request");
  }
  envelope_.request = RequestId(request.request());
  const core::RequestHeader header{.client = envelope_.client,
                                   .request = envelope_.request,
                                   .notices_acknowledged = request.notices_acknowledged()};
  KV_TRY(const core::InputView input, Body{*this, header}.any(request));
  return DecodedRequest{envelope_, input};
}

}  // namespace kv::codec
