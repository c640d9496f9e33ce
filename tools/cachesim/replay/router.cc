#include "tools/cachesim/replay/router.h"

#include <tuple>

namespace kv::cachesim {

std::uint32_t Router::choose(TimePoint now, std::span<const std::unique_ptr<Machine>> machines,
                             std::uint32_t request) {
  const auto count = static_cast<std::uint32_t>(machines.size());
  if (count == 1) return 0;
  if (kind_ == RouterKind::random) return static_cast<std::uint32_t>(prng_.below(count));
  using Work = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t>;
  Work least{~std::uint64_t{0}, 0, 0, 0};
  for (std::uint32_t i = 0; i < count; ++i) {
    Machine& machine = *machines[i];
    const std::uint64_t own = machine.uncached_tokens(now, request);
    least = std::min(least, Work{machine.instance().prompt_tokens_left() + own,
                                 machine.instance().outstanding(), given_[i], i});
  }
  const std::uint32_t chosen = std::get<3>(least);
  ++given_[chosen];
  return chosen;
}

}  // namespace kv::cachesim
