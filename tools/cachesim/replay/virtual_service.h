// VirtualService: the service as a run sees it. The Engine of cachesvc, and links that carry out
// its transfers in virtual time. A block of a trace is a block of one token to the Engine; what a
// block weighs on a link is told apart from that, and no byte is kept anywhere.
// Owner: Machine. Threads: none. Cost: as the Engine's steps.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "allocator/base/ids.h"
#include "allocator/base/time_point.h"
#include "allocator/kv_layout.h"
#include "cachesvc/core/actions.h"
#include "cachesvc/core/engine.h"
#include "cachesvc/core/inputs.h"
#include "tools/cachesim/replay/shared_link.h"

namespace kv::cachesim {

// By where the bytes go.
enum class LinkName : std::uint8_t { device_to_host, host_to_device, host_to_disk, disk_to_host };
inline constexpr std::size_t kLinkCount = 4;
inline constexpr std::array<const char*, kLinkCount> kLinkNames = {
    "device_to_host", "host_to_device", "host_to_disk", "disk_to_host"};

inline constexpr std::size_t kTiers = 3;  // device, host, disk

class VirtualService {
 public:
  struct Options {
    std::array<std::uint32_t, kTiers> slots{};
    std::uint64_t block_bytes = 0;  // that a transfer of one block moves
    std::array<LinkOptions, kLinkCount> links{};
    std::uint32_t sequences_max = 1;
  };
  explicit VirtualService(const Options& options);

  // One input, and whatever the Engine makes of it at this moment.
  void send(TimePoint now, const core::InputView& input);
  // What the Engine said since the last call, in its order.
  struct Answers {
    std::vector<core::Reply> replies;
    std::vector<core::Notice> notices;
    [[nodiscard]] bool empty() const { return replies.empty() && notices.empty(); }
  };
  void take_answers(Answers& into);
  [[nodiscard]] bool has_answers() const { return !answers_.empty(); }

  // When a transfer gets under way or ends.
  [[nodiscard]] TimePoint next() const;
  void advance(TimePoint now);
  // Rises with every transfer that has ended: what it held may be free.
  [[nodiscard]] std::uint64_t transfers_ended() const { return transfers_ended_; }

  [[nodiscard]] const KvLayout& layout() const { return layout_; }
  [[nodiscard]] std::uint32_t used_slots(Tier tier) const;
  [[nodiscard]] core::Counters counters() const { return engine_.status().counters; }
  [[nodiscard]] const SharedLink& link(LinkName name) const {
    return links_[static_cast<std::size_t>(name)];
  }

 private:
  struct Flight {
    std::uint64_t id = 0;
    std::uint32_t block_count = 0;
    bool from_device = false;
  };
  void step(TimePoint now, const core::InputView& input);
  void report(TimePoint now, std::uint64_t id);
  void settle(TimePoint now);

  Options options_;
  KvLayout layout_;
  core::Engine engine_;
  core::Actions actions_;
  std::vector<SharedLink> links_;
  std::vector<Flight> flights_;       // as many as the Engine has credits
  std::vector<std::uint64_t> ended_;  // of one link, scratch
  Answers answers_;
  std::uint64_t transfers_ended_ = 0;
};

}  // namespace kv::cachesim
