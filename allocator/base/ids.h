// Strong ids: an index of one kind, no arithmetic, ordered (ties are broken by id, never by
// address).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>

namespace kv {

template <class Tag, class Rep = std::uint32_t>
struct StrongId {
  using rep = Rep;
  Rep value = std::numeric_limits<Rep>::max();  // none() until set
  constexpr StrongId() = default;
  explicit constexpr StrongId(Rep v) : value(v) {}
  [[nodiscard]] static constexpr StrongId none() { return StrongId(); }
  [[nodiscard]] constexpr bool is_none() const { return *this == none(); }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using BlockId = StrongId<struct BlockIdTag>;  // a block's record, in the prefix tree
using NodeId = StrongId<struct NodeIdTag>;    // a node of the prefix tree
using RootId = StrongId<struct RootIdTag>;    // a namespace's root
using SlotId = StrongId<struct SlotIdTag>;    // a place in one tier, for one layer group
using GroupId = StrongId<struct GroupIdTag>;  // a layer group, by its index in the KvLayout
using ClientId = StrongId<struct ClientIdTag, std::uint64_t>;
using SequenceId = StrongId<struct SequenceIdTag, std::uint64_t>;  // chosen by the client
using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;    // rising, per client
using TransferId = StrongId<struct TransferIdTag, std::uint64_t>;

}  // namespace kv

template <class Tag, class Rep>
struct std::hash<kv::StrongId<Tag, Rep>> {
  std::size_t operator()(kv::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>()(id.value);
  }
};
