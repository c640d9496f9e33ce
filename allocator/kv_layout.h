// The geometry of a model's keys and values: layer groups, data types, bytes and strides of a
// block. A plain value; one KvLayout describes one storage format.
// Threads: none. Cost: O(groups), at most kLayerGroupsMax.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"

namespace kv {

enum class DType : std::uint8_t { f32, f16, bf16, f8_e4m3, i8 };
inline constexpr std::uint8_t kDTypeCount = 5;
[[nodiscard]] std::uint32_t dtype_bytes(DType dtype);
[[nodiscard]] std::string_view dtype_name(DType dtype);

enum class AttentionKind : std::uint8_t { full, latent, window, state };
inline constexpr std::uint8_t kAttentionKindCount = 4;

inline constexpr std::uint32_t kLayerGroupsMax = 8;
inline constexpr std::uint32_t kBlockTokensMax = 1024;

// Layers with the same attention kind and bytes.
struct LayerGroup {
  AttentionKind kind = AttentionKind::full;
  std::uint32_t layer_count = 0;
  std::uint32_t kv_head_count = 0;
  std::uint32_t head_dim_k = 0;
  std::uint32_t head_dim_v = 0;
  DType k_dtype = DType::f32;
  DType v_dtype = DType::f32;
  std::uint32_t window_tokens = 0;  // window only
  std::uint32_t sink_tokens = 0;    // window only
  friend bool operator==(const LayerGroup&, const LayerGroup&) = default;
};

// Within one block of a group (block-first; all layers contiguous; inner order head, token,
// channel):
//   layer l: K [kv_head][token][head_dim_k], then V [kv_head][token][head_dim_v]; then layer l + 1.
struct BlockStrides {
  std::int64_t block = 0;     // bytes from one slot to the next = block_bytes(group)
  std::int64_t layer = 0;     // bytes from a layer's K to the next layer's K
  std::int64_t v_offset = 0;  // bytes from a layer's K to its V
  std::int64_t k_head = 0, k_token = 0;
  std::int64_t v_head = 0, v_token = 0;
};

struct KvLayout {
  std::uint32_t block_tokens = 16;  // B, a power of two
  std::vector<LayerGroup> groups{};
  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// fails: invalid, with the field: zero or absurd dimensions, B no power of two or over
// kBlockTokensMax, a block over 64 MiB, no group or too many; unsupported: a kind other than full
// (the frame's limit).
[[nodiscard]] Result<void> validate(const KvLayout& layout);

// requires (all of these): validate(layout) passed and the group exists.
[[nodiscard]] std::uint64_t bytes_per_token(const LayerGroup& group);
[[nodiscard]] std::uint64_t block_bytes(const KvLayout& layout, GroupId group);
[[nodiscard]] BlockStrides block_strides(const KvLayout& layout, GroupId group);

// The first field in which two layouts differ ("block_tokens", "layer_count", ...); empty when
// equal.
[[nodiscard]] std::string_view first_difference(const KvLayout& a, const KvLayout& b);

// Identity of the storage format: SHA-256 of its canonical encoding.
[[nodiscard]] Digest layout_digest(const KvLayout& layout);

}  // namespace kv
