// The messages between client and service as plain values, without FlatBuffers: what the encoder
// takes and the decoder gives. Requests hold views, valid for the call only; replies own what they
// hold. Threads: none. Cost: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/base/token.h"
#include "allocator/namespace.h"
#include "plugins/client/admin.h"
#include "plugins/client/session.h"

namespace kv::client {

inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::size_t kRequestBytesMax = std::size_t{1} << 20;
inline constexpr std::size_t kReplyBytesMax = std::size_t{64} << 20;
inline constexpr std::uint32_t kTokensPerMessageMax = 65'536;
inline constexpr std::uint32_t kStepItemsMax = 4'096;
inline constexpr std::size_t kNameBytesMax = 128;

struct Id128 {
  std::uint64_t a = 0, b = 0;
  friend bool operator==(const Id128&, const Id128&) = default;
};

// ---------------------------------------------------------------- requests
struct RequestHead {
  ClientId client;
  Id128 secret;
  RequestId request;
  std::uint64_t notices_acknowledged = 0;
};

struct HelloMessage {
  std::string_view name;
  std::uint64_t instance = 0;
  std::uint32_t rank = 0;
};
struct HeartbeatMessage {};
struct ByeMessage {};
struct PoolMessage {
  const KvLayout* layout = nullptr;  // never null
};
struct OpenMessage {
  SequenceId sequence;
  const NamespaceFields* fields = nullptr;  // with the first part only
  std::span<const Token> tokens;
  OpenOptions options;
};
struct AdmitMessage {
  SequenceId sequence;
  std::uint32_t max_new_tokens = 0;
};
enum class StepOp : std::uint8_t {
  append,
  publish,
  truncate,
  free,
  acknowledge,
  fork,
  preempt,
  drop
};
struct StepItem {
  SequenceId sequence;
  StepOp op = StepOp::append;
  std::uint32_t token_offset = 0;
  std::uint32_t token_count = 0;
  std::uint32_t value = 0;
};
struct StepMessage {
  std::uint64_t step_seq = 0;
  std::uint64_t completed_step = 0;
  std::span<const StepItem> items;
  std::span<const Token> tokens;
  std::span<const SequenceId> children{};  // of forks: an item's value is the index here
};
struct LookupMessage {
  const NamespaceFields* fields = nullptr;  // never null
  std::span<const Token> tokens;
};
struct WhyMessage {
  const NamespaceFields* fields = nullptr;  // never null
  std::span<const Token> tokens;
};
struct StatusMessage {};
struct TreeMessage {
  std::uint32_t node_limit = kTreeNodesMax;
};
struct DemoteMessage {
  Tier tier = Tier::device;
};
struct FlushMessage {};
struct ClearMessage {
  std::optional<Tier> tier;                 // nullopt: all tiers
  const NamespaceFields* fields = nullptr;  // null: all namespaces
};
struct SetEpochMessage {
  const NamespaceFields* fields = nullptr;  // never null
  std::uint64_t epoch = 0;                  // 0: the next one
};

using RequestMessage =
    std::variant<HelloMessage, HeartbeatMessage, ByeMessage, PoolMessage, OpenMessage, AdmitMessage,
                 StepMessage, LookupMessage, StatusMessage, TreeMessage, DemoteMessage,
                 FlushMessage, ClearMessage, SetEpochMessage, WhyMessage>;

// What one message may hold, by the bytes that the service takes.
struct MessageLimits {
  std::size_t bytes = kRequestBytesMax;
  // Of an Open: a namespace and the frame need some of the bytes.
  [[nodiscard]] std::size_t open_tokens() const {
    return std::min<std::size_t>(kTokensPerMessageMax, (bytes - kFrameBytesSpare) / sizeof(Token));
  }
  // Of a Step, half of whose bytes are for items, and the children of those that fork.
  [[nodiscard]] std::size_t step_items() const {
    constexpr std::size_t kItemBytes = sizeof(StepItem) + sizeof(SequenceId);
    return std::min<std::size_t>(kStepItemsMax, bytes / 2 / kItemBytes);
  }
  [[nodiscard]] std::size_t step_tokens() const {
    return std::min<std::size_t>(kTokensPerMessageMax, (bytes / 2 - 1'024) / sizeof(Token));
  }
  static constexpr std::size_t kFrameBytesSpare = 5 * kNamespaceFieldBytesMax + 1'024;
  static constexpr std::size_t kBytesMin = 64U << 10U;  // no service may take less
};

// ---------------------------------------------------------------- replies
struct HelloAnswer {
  std::uint32_t lease_ms = 0;
  std::uint32_t credits = 0;
  std::uint32_t message_bytes = 0;  // of a request; 0: not told
};
struct PoolAnswer {
  std::uint64_t pool_bytes = 0;
  std::vector<Pool::Group> groups;
};
struct AdmitAnswer {
  bool ready = false;
  Admission admission;
};
struct StepAnswer {
  struct Failure {
    std::uint32_t item = 0;
    Error error;
  };
  std::vector<Failure> failures;
  std::vector<TableDelta> deltas;
  std::vector<StepOutcome::Ended> ended;
  std::vector<BlockCopy> copies;
};
// monostate: an error, or a request whose success says it all.
using ReplyBody =
    std::variant<std::monostate, HelloAnswer, PoolAnswer, AdmitAnswer, StepAnswer, LookupHits,
                 ServiceStatus, TreeView, DemoteOutcome, FlushOutcome, ClearOutcome, WhyAnswer>;

enum class NoticeKind : std::uint8_t { sequence_ready, lease_expired };
struct Notice {
  std::uint64_t number = 0;
  SequenceId sequence;
  Account account;
  NoticeKind kind = NoticeKind::sequence_ready;
  ErrorCode code = ErrorCode::ok;
};

struct ReplyMessage {
  Id128 boot;
  RequestId request;  // 0: only notices
  Error error{ErrorCode::ok, {}, {}};
  std::uint32_t retry_after_us = 0;
  std::vector<Notice> notices;  // oldest first
  ReplyBody body;
};

}  // namespace kv::client
