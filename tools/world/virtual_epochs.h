// VirtualEpochs: what a Clear means to the bytes in the virtual world. With each Clear of all tiers
// and each new epoch the fingerprints of a namespace begin anew, so that older content that is
// served afterwards shows as wrong bytes (invariant 21).
// Owner: VirtualWorld. Threads: none. Cost: O(log namespaces); note_roots O(roots).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "allocator/base/token.h"
#include "allocator/prefix_tree.h"
#include "tools/world/fingerprint.h"

namespace kv::world {

class VirtualEpochs {
 public:
  // Fingerprint of the empty prefix of the namespace now.
  [[nodiscard]] Fingerprint start(const Digest& namespace_digest) const {
    const auto one = ones_.find(namespace_digest);
    const std::uint64_t epoch = all_ + (one == ones_.end() ? 0 : one->second);
    const Fingerprint plain = start_of(namespace_digest);
    return epoch == 0 ? plain : mix(plain, epoch);
  }
  // Of one namespace, or of all.
  void raise(const std::optional<Digest>& namespace_digest) {
    ++(namespace_digest ? ones_[*namespace_digest] : all_);
  }
  // After each step, once raise() was told what the step accepted: a retired root keeps the start
  // that it had while it was its namespace's.
  void note_roots(const PrefixTree& tree) {
    for (std::uint32_t r = 0; r < tree.root_count(); ++r) {
      if (tree.is_retired(RootId{r})) continue;
      roots_[RootId{r}] = start(tree.namespace_digest(RootId{r}));
    }
  }
  [[nodiscard]] Fingerprint start_of_root(RootId root) const { return roots_.at(root); }
  void forget_roots() { roots_.clear(); }

 private:
  std::uint64_t all_ = 0;
  std::map<Digest, std::uint64_t> ones_;
  std::map<RootId, Fingerprint> roots_;
};

}  // namespace kv::world
