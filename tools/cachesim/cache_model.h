// A cache of blocks that takes requests in the order of arrival: what `hits` counts.
// Owner: the command. Threads: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tools/cachesim/trace.h"

namespace kv::cachesim {

class CacheModel {
 public:
  CacheModel() = default;
  CacheModel(const CacheModel&) = delete;
  CacheModel& operator=(const CacheModel&) = delete;
  CacheModel(CacheModel&&) = delete;
  CacheModel& operator=(CacheModel&&) = delete;
  virtual ~CacheModel() = default;

  // The next request: returns how many of its leading blocks are cached when it arrives, then
  // caches what the policy wants of it. The insert takes no time.
  virtual std::uint32_t take(std::span<const std::uint32_t> blocks) = 0;
};

// Production policies run through the service's PrefixCache; the others are oracles of cachesim.
struct PolicyEntry {
  std::string_view name;
  std::string_view what;
  bool production = false;
};
[[nodiscard]] std::span<const PolicyEntry> known_policies();

// Null: no policy of this name. requires: capacity > 0.
[[nodiscard]] std::unique_ptr<CacheModel> make_cache_model(std::string_view policy,
                                                           const Trace& trace,
                                                           std::uint32_t capacity);

}  // namespace kv::cachesim
