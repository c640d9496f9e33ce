// The answers of the service as text for people (tables, no colours) and as JSON (numbers as
// numbers). Both end with a line break. Threads: none. Cost: O(answer).
#pragma once

#include <optional>
#include <string>

#include "plugins/client/admin.h"
#include "plugins/client/messages.h"

namespace kv::cachectl {

struct StatusReport {
  client::ServiceStatus status;
  std::string endpoint;
  client::Id128 boot;
  bool all_counters = false;  // as text: also those that are 0
};
struct LookupReport {
  client::LookupHits hits;
  std::uint64_t prompt_tokens = 0;
  std::uint32_t block_tokens = 0;
};
struct DemoteReport {
  Tier tier = Tier::device;
  client::DemoteOutcome outcome;
};

struct FlushReport {
  client::FlushOutcome outcome;
  bool disk_is_off = false;
  std::string disk_problem;  // why, when it is off against the configuration
};

struct ClearReport {
  std::optional<Tier> tier;  // nullopt: all
  bool one_namespace = false;
  client::ClearOutcome outcome;
};

[[nodiscard]] std::string as_text(const StatusReport& report);
[[nodiscard]] std::string as_text(const LookupReport& report);
[[nodiscard]] std::string as_text(const client::WhyAnswer& answer);
[[nodiscard]] std::string as_text(const client::TreeView& tree);
[[nodiscard]] std::string as_text(const DemoteReport& report);
[[nodiscard]] std::string as_text(const FlushReport& report);
[[nodiscard]] std::string as_text(const ClearReport& report);

// `indented`: over several lines; else one line.
[[nodiscard]] std::string as_json(const StatusReport& report, bool indented);
[[nodiscard]] std::string as_json(const LookupReport& report, bool indented);
[[nodiscard]] std::string as_json(const client::WhyAnswer& answer, bool indented);
[[nodiscard]] std::string as_json(const client::TreeView& tree, bool indented);
[[nodiscard]] std::string as_json(const DemoteReport& report, bool indented);
[[nodiscard]] std::string as_json(const FlushReport& report, bool indented);
[[nodiscard]] std::string as_json(const ClearReport& report, bool indented);

// "1.5 MiB"; exact below 1 KiB.
[[nodiscard]] std::string bytes_as_text(std::uint64_t bytes);
// Hits of all tiers by prompt tokens, of the counters; negative when no prompt was admitted yet.
[[nodiscard]] double hit_ratio(const client::ServiceStatus& status);
[[nodiscard]] std::string hex(const Digest& digest);
[[nodiscard]] std::string hex(const client::Id128& id);

}  // namespace kv::cachectl
