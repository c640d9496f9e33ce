// MissHistory: what became of blocks that are cached no more, by block key: the last `capacity` of
// them exactly, and of those before only that they were cached once (with 1 % of false alarms, and
// not for ever: of six to twelve times as many).
//
// Owner: the Engine. Threads: none. Memory: at most 64 bytes an entry, taken at construction.
// Cost: record and find O(1).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "allocator/base/time_point.h"
#include "allocator/base/token.h"
#include "allocator/flat_map.h"
#include "cachesvc/core/actions.h"

namespace kv::core {

class MissHistory {
 public:
  struct Fact {
    TimePoint when;
    std::uint32_t reuses = 0;
    MissReason reason = MissReason::evicted;
    MissCause cause = MissCause::none;
    Tier tier = Tier::device;
  };

  // `now`: from here on everything is known. A capacity of 0 keeps nothing.
  MissHistory(std::uint32_t capacity, TimePoint now);

  // The newest fact of a key is the one that is kept. requires: fact.when never goes back.
  void record(const Digest& key, const Fact& fact);
  // Valid until the next record; null: not, or not any more.
  [[nodiscard]] const Fact* find(const Digest& key) const;
  // The key was recorded once, and what was recorded is lost.
  [[nodiscard]] bool is_lost(const Digest& key) const;
  // Every key recorded since then is still found.
  [[nodiscard]] TimePoint known_since() const { return known_since_; }

  [[nodiscard]] std::uint32_t size() const { return index_.size(); }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  using Name = std::array<std::uint64_t, 2>;  // the first half of a key
  struct Entry {
    Name name{};
    Fact fact;
  };
  // Bloom filters, the one that is filled first: 64 bits an entry, five a key, six keys an entry.
  static constexpr std::uint32_t kKeysPerEntry = 6;
  static constexpr std::uint32_t kProbes = 5;
  using Filter = std::vector<std::uint64_t>;

  [[nodiscard]] static Name name_of(const Digest& key);
  [[nodiscard]] std::uint32_t find_index(const Name& name) const;
  void forget(const Name& name);
  template <class Visit>
  void for_each_bit(const Name& name, Visit&& visit) const;

  std::vector<Entry> entries_;         // a ring
  std::vector<std::uint8_t> is_live_;  // else: a newer entry has the same key
  std::uint32_t next_ = 0;
  FlatMap index_;  // first word of the name -> place in the ring
  std::array<Filter, 2> lost_;
  std::uint64_t lost_count_ = 0;  // in the first filter
  TimePoint known_since_;
};

}  // namespace kv::core
