#include "allocator/kv_layout.h"

#include <bit>

#include "allocator/block_key.h"

namespace kv {
namespace {

constexpr std::uint64_t kBlockBytesMax = std::uint64_t{64} << 20U;
// Far above any model; keeps every product below 2^64.
constexpr std::uint32_t kLayersMax = 4096;
constexpr std::uint32_t kHeadsMax = 4096;
constexpr std::uint32_t kHeadDimMax = 8192;

Error invalid(std::string_view field, std::string_view reason) {
  return Error{ErrorCode::invalid, reason, field};
}

bool in_range(std::uint32_t value, std::uint32_t max) { return value >= 1 && value <= max; }

Result<void> validate_group(const LayerGroup& group, std::uint32_t block_tokens) {
  if (group.kind != AttentionKind::full) {
    return Error{ErrorCode::unsupported, "only full attention is served", "kind"};
  }
  if (!in_range(group.layer_count, kLayersMax)) return invalid("layer_count", "out of range");
  if (!in_range(group.kv_head_count, kHeadsMax)) return invalid("kv_head_count", "out of range");
  if (!in_range(group.head_dim_k, kHeadDimMax)) return invalid("head_dim_k", "out of range");
  if (!in_range(group.head_dim_v, kHeadDimMax)) return invalid("head_dim_v", "out of range");
  if (dtype_bytes(group.k_dtype) == 0) return invalid("k_dtype", "unknown data type");
  if (dtype_bytes(group.v_dtype) == 0) return invalid("v_dtype", "unknown data type");
  if (group.window_tokens != 0) return invalid("window_tokens", "only for window attention");
  if (group.sink_tokens != 0) return invalid("sink_tokens", "only for window attention");
  if (bytes_per_token(group) > kBlockBytesMax / block_tokens) {
    return invalid("layer_count", "a block is over 64 MiB");
  }
  return {};
}

void append_number(std::vector<std::byte>& out, std::uint32_t value) {
  for (unsigned i = 0; i < sizeof value; ++i)
    out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

}  // namespace

std::uint32_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f8_e4m3:
    case DType::i8:
      return 1;
  }
  return 0;
}

std::string_view dtype_name(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"f32", "f16", "bf16", "f8_e4m3", "i8"};
  const auto index = static_cast<std::size_t>(dtype);
  return index < kDTypeCount ? kNames[index] : std::string_view("unknown");
}

Result<void> validate(const KvLayout& layout) {
  if (!std::has_single_bit(layout.block_tokens)) {
    return invalid("block_tokens", "not a power of two");
  }
  if (layout.block_tokens > kBlockTokensMax) return invalid("block_tokens", "over 1024");
  if (layout.groups.empty()) return invalid("groups", "no layer group");
  if (layout.groups.size() > kLayerGroupsMax) return invalid("groups", "over 8 layer groups");
  for (const LayerGroup& group : layout.groups) {
    KV_TRY_VOID(validate_group(group, layout.block_tokens));
  }
  return {};
}

std::uint64_t bytes_per_token(const LayerGroup& group) {
  const std::uint64_t k = std::uint64_t{group.head_dim_k} * dtype_bytes(group.k_dtype);
  const std::uint64_t v = std::uint64_t{group.head_dim_v} * dtype_bytes(group.v_dtype);
  return std::uint64_t{group.layer_count} * group.kv_head_count * (k + v);
}

std::uint64_t block_bytes(const KvLayout& layout, GroupId group) {
  return bytes_per_token(layout.groups[group.value]) * layout.block_tokens;
}

BlockStrides block_strides(const KvLayout& layout, GroupId group_id) {
  const LayerGroup& group = layout.groups[group_id.value];
  const std::int64_t tokens = layout.block_tokens;
  const std::int64_t heads = group.kv_head_count;
  BlockStrides strides;
  strides.k_token = std::int64_t{group.head_dim_k} * dtype_bytes(group.k_dtype);
  strides.v_token = std::int64_t{group.head_dim_v} * dtype_bytes(group.v_dtype);
  strides.k_head = strides.k_token * tokens;
  strides.v_head = strides.v_token * tokens;
  strides.v_offset = strides.k_head * heads;
  strides.layer = strides.v_offset + strides.v_head * heads;
  strides.block = strides.layer * group.layer_count;
  return strides;
}

std::string_view first_difference(const KvLayout& a, const KvLayout& b) {
  if (a.block_tokens != b.block_tokens) return "block_tokens";
  if (a.groups.size() != b.groups.size()) return "groups";
  for (std::size_t i = 0; i < a.groups.size(); ++i) {
    const LayerGroup& x = a.groups[i];
    const LayerGroup& y = b.groups[i];
    if (x.kind != y.kind) return "kind";
    if (x.layer_count != y.layer_count) return "layer_count";
    if (x.kv_head_count != y.kv_head_count) return "kv_head_count";
    if (x.head_dim_k != y.head_dim_k) return "head_dim_k";
    if (x.head_dim_v != y.head_dim_v) return "head_dim_v";
    if (x.k_dtype != y.k_dtype) return "k_dtype";
    if (x.v_dtype != y.v_dtype) return "v_dtype";
    if (x.window_tokens != y.window_tokens) return "window_tokens";
    if (x.sink_tokens != y.sink_tokens) return "sink_tokens";
  }
  return {};
}

Digest layout_digest(const KvLayout& layout) {
  constexpr std::string_view kVersion = "cachesvc-layout-v1";
  std::vector<std::byte> out;
  for (const char c : kVersion) out.push_back(static_cast<std::byte>(c));
  append_number(out, layout.block_tokens);
  append_number(out, static_cast<std::uint32_t>(layout.groups.size()));
  for (const LayerGroup& group : layout.groups) {
    for (const std::uint32_t field :
         {static_cast<std::uint32_t>(group.kind), group.layer_count, group.kv_head_count,
          group.head_dim_k, group.head_dim_v, static_cast<std::uint32_t>(group.k_dtype),
          static_cast<std::uint32_t>(group.v_dtype), group.window_tokens, group.sink_tokens}) {
      append_number(out, field);
    }
  }
  return sha256(out);
}

}  // namespace kv
