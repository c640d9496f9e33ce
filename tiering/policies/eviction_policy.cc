#include "tiering/policies/eviction_policy.h"

#include "tiering/policies/arc.h"
#include "tiering/policies/gdsf.h"
#include "tiering/policies/lfu_da.h"
#include "tiering/policies/s3fifo.h"

namespace kv {

std::string_view policy_name(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::lru:
      return "lru";
    case PolicyKind::arc:
      return "arc";
    case PolicyKind::s3fifo:
      return "s3fifo";
    case PolicyKind::gdsf:
      return "gdsf";
    case PolicyKind::lfu_da:
      return "lfu-da";
  }
  return "unknown";
}

std::optional<PolicyKind> policy_of_name(std::string_view name) {
  for (const PolicyKind kind : kPolicyKinds) {
    if (policy_name(kind) == name) return kind;
  }
  return std::nullopt;
}

std::unique_ptr<EvictionPolicy> make_policy(const PolicyOptions& options) {
  switch (options.kind) {
    case PolicyKind::lru:
      return nullptr;
    case PolicyKind::arc:
      return std::make_unique<ArcPolicy>(options.block_capacity, options.slot_count);
    case PolicyKind::s3fifo:
      return std::make_unique<S3FifoPolicy>(options.block_capacity, options.slot_count);
    case PolicyKind::gdsf:
      return std::make_unique<GdsfPolicy>(options.block_capacity, options.recompute_cost);
    case PolicyKind::lfu_da:
      return std::make_unique<LfuDaPolicy>(options.block_capacity);
  }
  return nullptr;
}

}  // namespace kv
